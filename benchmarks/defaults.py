"""The defaults of `sparrow.fit` on generated tables, beside a small grid around them and a linear model.

    python benchmarks/defaults.py                       # the defaults alone
    python benchmarks/defaults.py --grid --only ids     # and the grid, on one table
    python benchmarks/defaults.py --choices FOLDER --clicks FILES --ratings FILE --peers PYTHON

Public data, three seeds each, beside implicit's ALS and LightGBM in the environment ``--peers``; nothing is downloaded:

choices
    ``train.txt``, ``valid.txt`` and ``test.txt``, a line for each user: the user, then the items. Recall@20 among all
    items without those of training, mean over users. The rows of ``valid.txt`` are for early stopping.
clicks
    Files in libfm's format, one number a field, labels -1 and 1, such as Frappe's, and the names of the fields, by
    which `fit` knows ids of many values. A fifth of the rows is the test.
ratings
    A Parquet file of users, items, ratings and further columns, such as MovieLens-100k joined. A tenth is the test.

Each table is cut into rows to fit on, of which `fit` holds a tenth out for early stopping, and rows to test on. The
linear model is scikit-learn's, on one-hot ids and standardized numbers, with the best of three strengths of its
penalty. The grid's best is chosen by the test rows, which favors the grid.
"""

from __future__ import annotations

import argparse
import io
import itertools
import pathlib
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import sparrow as sp

TEST = 0.25
GRID = {
    "sparse": (("adagrad", 0.02), ("adagrad", 0.1), ("adam", 0.001), ("adam", 0.005)),
    "dense": (0.0005, 0.003),
    "dim": (4, 16),
}
TUNED: dict[str, Any] = {
    "embedding_dim": 256,
    "overrides": ["tasks.match.losses=[{name: in_batch_softmax, temperature: 0.17}]"],
}
"""Two towers for the data of --choices."""


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _words(prefix: str, numbers: Any) -> list[str]:
    return [f"{prefix}{number}" for number in numbers]


def _zipf(rng: Any, count: int, rows: int) -> Any:
    """Return ids of which the first are the most frequent."""
    weights = 1 / (np.arange(count) + 5.0)
    return rng.choice(count, rows, p=weights / weights.sum())


def mixed(rows: int = 20_000, seed: int = 0) -> pd.DataFrame:
    """Categories of 4 to 200 values and numbers, one with a hump, and one pair of categories that interact."""
    rng = np.random.default_rng(seed)
    sizes = {"plan": 4, "country": 30, "device": 12, "page": 200}
    ids = {name: rng.integers(0, size, rows) for name, size in sizes.items()}
    effects = sum(rng.normal(0, 0.5, size)[ids[name]] for name, size in sizes.items())
    pairs = rng.normal(0, 1.0, (4, 12))[ids["plan"], ids["device"]]
    age, income, noise = rng.normal(40, 12, rows), rng.lognormal(3, 1, rows), rng.normal(size=rows)
    logit = effects + pairs + 1.2 * np.exp(-(((age - 40) / 8) ** 2)) + 0.5 * np.log(income) - 2.5
    columns = {name: _words(name[0], numbers) for name, numbers in ids.items()}
    return pd.DataFrame(columns | {"age": age, "income": income, "noise": noise, "y": _draw(rng, logit)})


def ids(rows: int = 100_000, seed: int = 1) -> pd.DataFrame:
    """Users and items with tastes of 4 dims; nearly all of the signal is in the two ids."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 5_000, rows), _zipf(rng, 2_000, rows)
    tastes = (rng.normal(size=(count, 4)) for count in (5_000, 2_000))
    both = np.einsum("nd,nd->n", *(held[which] for held, which in zip(tastes, (user, item), strict=True)))
    logit = 0.9 * both + rng.normal(0, 1, 5_000)[user] + rng.normal(0, 1, 2_000)[item] - 0.5
    hour = rng.integers(0, 24, rows)
    return pd.DataFrame({"user_id": user * 7919, "item_id": _words("i", item), "hour": hour, "y": _draw(rng, logit)})


def sparse(rows: int = 50_000, seed: int = 2) -> pd.DataFrame:
    """Ids of 30,000 values, most of them seen twice, beside a few good columns: easy to learn by heart."""
    rng = np.random.default_rng(seed)
    visitor, campaign, slot = rng.integers(0, 30_000, rows), rng.integers(0, 300, rows), rng.integers(0, 10, rows)
    bid = rng.lognormal(0, 0.7, rows)
    logit = rng.normal(0, 0.6, 30_000)[visitor] + rng.normal(0, 0.8, 300)[campaign] + rng.normal(0, 0.5, 10)[slot]
    logit += 0.8 * np.log(bid) - 1
    columns = {"visitor_id": _words("v", visitor), "campaign": _words("c", campaign), "slot": slot, "bid": bid}
    return pd.DataFrame(columns | {"y": _draw(rng, logit)})


def rare(rows: int = 200_000, seed: int = 3) -> pd.DataFrame:
    """Two positives in a hundred rows."""
    rng = np.random.default_rng(seed)
    sizes = {"site": 2_000, "ad": 500, "region": 50}
    held = {name: _zipf(rng, size, rows) for name, size in sizes.items()}
    logit = sum(rng.normal(0, 0.6, size)[held[name]] for name, size in sizes.items())
    age = rng.exponential(10, rows)
    logit = logit - 0.05 * age + rng.normal(0, 0.7, (50, 500))[held["region"], held["ad"]] * 0.7 - 4.3
    return pd.DataFrame(
        {name: _words(name[0], numbers) for name, numbers in held.items()} | {"age": age, "y": _draw(rng, logit)}
    )


def small(rows: int = 10_000, seed: int = 4) -> pd.DataFrame:
    """Few rows: users and items that like each other by parity, as ids alone, and a number."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 500, rows), rng.integers(0, 300, rows)
    logit = np.where(user % 2 == item % 2, 1.5, -1.5) + 0.3 * rng.normal(size=rows)
    return pd.DataFrame({"user": user, "item": item, "price": rng.lognormal(2, 1, rows), "y": _draw(rng, logit)})


def regression(rows: int = 30_000, seed: int = 5) -> pd.DataFrame:
    """Return prices by place, kind and size, with a scale of their own."""
    rng = np.random.default_rng(seed)
    place, kind = rng.integers(0, 400, rows), rng.integers(0, 8, rows)
    size, year = rng.lognormal(4.4, 0.4, rows), rng.integers(1900, 2024, rows)
    value = rng.normal(0, 60, 400)[place] + rng.normal(0, 30, 8)[kind] + 2.0 * size + 0.4 * np.abs(year - 1960)
    columns = {"place": _words("p", place), "kind": _words("k", kind), "size": size, "year": year}
    return pd.DataFrame(columns | {"y": value + rng.normal(0, 20, rows)})


def ratings(rows: int = 100_000, seed: int = 6) -> pd.DataFrame:
    """Stars from 1 to 5, of 1,000 users for 1,700 items."""
    rng = np.random.default_rng(seed)
    user, item = _zipf(rng, 1_000, rows), _zipf(rng, 1_700, rows)
    tastes = (rng.normal(size=(count, 5)) for count in (1_000, 1_700))
    both = np.einsum("nd,nd->n", *(held[which] for held, which in zip(tastes, (user, item), strict=True)))
    score = 3.5 + 0.45 * rng.normal(size=1_000)[user] + 0.5 * rng.normal(size=1_700)[item] + 0.22 * both
    stars = np.clip(np.round(score + rng.normal(0, 0.8, rows)), 1, 5)
    return pd.DataFrame({"user_id": user + 1, "item_id": item + 1, "y": stars})


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    made.__name__: made for made in (mixed, ids, sparse, rare, small, regression, ratings)
}


def _draw(rng: Any, logit: Any) -> Any:
    return (rng.random(len(logit)) < _sigmoid(logit)).astype(np.int64)


def score(truth: Any, predicted: Any) -> float:
    """Return the AUC, or the root mean square error of numbers."""
    from sklearn.metrics import roc_auc_score

    if set(np.unique(truth)) <= {0, 1}:
        return float(roc_auc_score(truth, predicted))
    return float(np.sqrt(np.mean((truth - predicted) ** 2)))


def cut(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rows to fit on and rows to test on."""
    test = np.random.default_rng(9).random(len(frame)) < TEST
    return frame[~test].reset_index(drop=True), frame[test].reset_index(drop=True)


def fitted(frame: pd.DataFrame, **options: Any) -> tuple[float, str]:
    """Return the score of `fit` on the test rows, and its length and time."""
    train, test = cut(frame)
    began = time.perf_counter()
    run = sp.fit(train, target="y", stream=io.StringIO(), **options)
    seconds = time.perf_counter() - began
    truth = test.pop("y").to_numpy()
    return score(truth, run.predict(test)["y"]), f"best step {run.step} of {run.steps}, {seconds:.0f} s"


def linear(frame: pd.DataFrame) -> float:
    """Return the score of the linear model."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    train, test = cut(frame)
    truth, labels = test.pop("y").to_numpy(), train.pop("y").to_numpy()
    numbers = [name for name in train if train[name].dtype.kind == "f" or name == "year"]
    words = [name for name in train if name not in numbers]
    found = []
    for strength in (0.03, 0.3, 3.0):
        binary = set(np.unique(labels)) <= {0, 1}
        model = LogisticRegression(C=strength, max_iter=300) if binary else Ridge(alpha=1 / strength)
        columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), words), (StandardScaler(), numbers))
        fitted_ = make_pipeline(columns, model).fit(train, labels)
        predicted = fitted_.predict_proba(test)[:, 1] if binary else fitted_.predict(test)
        found.append(score(truth, predicted))
    return max(found) if binary else min(found)


ALS = """
import sys, numpy as np, scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
train, users, seed, tuned, out = np.load(sys.argv[1]), np.load(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
matrix = sp.csr_matrix((np.ones(len(train), np.float32), train.T), shape=(max(train[:, 0].max(), users.max()) + 1,
                                                                         train[:, 1].max() + 1))
options = dict(factors=64, regularization=10, alpha=5, iterations=20) if tuned == "tuned" else {}
model = AlternatingLeastSquares(random_state=seed, num_threads=1, **options)
model.fit(matrix, show_progress=False)
np.save(out, model.recommend(users, matrix[users], N=20)[0])
"""
LIGHTGBM = """
import sys, numpy as np, pandas as pd, lightgbm
train, test, kind, seed = pd.read_parquet(sys.argv[1]), pd.read_parquet(sys.argv[2]), sys.argv[3], int(sys.argv[4])
labels = train.pop("y")
if kind == "categories":
    kinds = {name: pd.CategoricalDtype(sorted({*train[name], *test[name]})) for name in train}
    train, test = train.astype(kinds), test.astype(kinds)
model = lightgbm.LGBMClassifier(random_state=seed, verbose=-1, n_jobs=1).fit(train, labels)
np.save(sys.argv[5], model.predict_proba(test)[:, 1])
"""


def pairs(file: pathlib.Path) -> pd.DataFrame:
    """Return users and items of a file with a line for each user."""
    lines = [np.array(line.split(), np.int64) for line in file.read_text().splitlines()]
    rows = [np.stack([np.full(len(line) - 1, line[0]), line[1:]], axis=1) for line in lines]
    return pd.DataFrame(np.concatenate(rows), columns=["user", "item"])


def choices(folder: pathlib.Path, peers: str | None, seed: int) -> None:
    """Print Recall@20 of two towers and of ALS, both by default and tuned."""
    train, valid, test = (pairs(folder / f"{part}.txt") for part in ("train", "valid", "test"))
    chosen = test.groupby("user")["item"].agg(set)
    users = chosen.index.to_numpy()

    def recall(lists: Any) -> float:
        return float(np.mean([len(chosen[user] & set(items)) / len(chosen[user]) for user, items in lists]))

    for name, options in (("default", {}), ("tuned", TUNED)):
        began, worked = time.perf_counter(), time.process_time()
        run = sp.fit(train, user="user", item="item", evaluate=valid, seed=seed, stream=io.StringIO(), **options)
        took = f"{time.perf_counter() - began:.0f} s ({time.process_time() - worked:.0f} s of processor time)"
        found = run.recommend(pd.DataFrame({"user": users}), k=20, exclude_seen=True)
        ours = f"fit {name} {recall(found.groupby('user')['item']):.4f} in {took}"
        print(f"choices, seed {seed}: {ours}, best step {run.step} of {run.steps}", flush=True)
    if peers is None:
        return
    with tempfile.TemporaryDirectory() as scratch:
        files = [f"{scratch}/{name}.npy" for name in ("train", "users", "out")]
        np.save(files[0], train.to_numpy())
        np.save(files[1], users)
        for way in ("default", "tuned"):
            subprocess.run([peers, "-c", ALS, *files[:2], str(seed), way, files[2]], check=True)
            lists = zip(users, np.load(files[2]).tolist(), strict=True)
            print(f"choices, seed {seed}: ALS {way} {recall(lists):.4f}", flush=True)


def clicks(files: list[pathlib.Path], fields: list[str], peers: str | None, seed: int) -> None:
    """Print AUC and log loss by default, and those of LightGBM with columns as categories and as numbers."""
    from sklearn.metrics import log_loss, roc_auc_score

    lines = [line.split() for file in files for line in file.read_text().splitlines()]
    frame = pd.DataFrame([[int(each.split(":")[0]) for each in line[1:]] for line in lines], columns=fields)
    frame["y"] = [int(float(line[0]) > 0) for line in lines]
    is_test = np.random.default_rng(seed).random(len(frame)) < 0.2
    train, test = frame[~is_test].reset_index(drop=True), frame[is_test].reset_index(drop=True)
    truth = test.pop("y")

    def show(name: str, predicted: Any) -> None:
        area, loss = roc_auc_score(truth, predicted), log_loss(truth, predicted)
        print(f"clicks, seed {seed}: {name} AUC {area:.4f}, log loss {loss:.4f}", flush=True)

    run = sp.fit(train, target="y", seed=seed, stream=io.StringIO())
    show(f"fit (best step {run.step} of {run.steps})", run.predict(test)["y"])
    if peers is None:
        return
    with tempfile.TemporaryDirectory() as scratch:
        paths = [f"{scratch}/{name}.parquet" for name in ("train", "test")]
        train.to_parquet(paths[0])
        test.to_parquet(paths[1])
        for kind in ("categories", "numbers"):
            subprocess.run([peers, "-c", LIGHTGBM, *paths, kind, str(seed), f"{scratch}/out.npy"], check=True)
            show(f"LightGBM, {kind}", np.load(f"{scratch}/out.npy"))


def columns(file: pathlib.Path, seed: int) -> None:
    """Print the error of ratings with all columns, and with user and item alone."""
    frame = pd.read_parquet(file)
    is_test = np.random.default_rng(seed).random(len(frame)) < 0.1
    for name, used in (("all columns", list(frame)), ("user and item", ["user_id", "movie_id", "rating"])):
        run = sp.fit(frame.loc[~is_test, used], target="rating", seed=seed, stream=io.StringIO())
        predicted = run.predict(frame.loc[is_test, [each for each in used if each != "rating"]])["rating"]
        error = score(frame.loc[is_test, "rating"].to_numpy(), predicted)
        print(f"ratings, seed {seed}: {name} {error:.4f}", flush=True)


def main() -> None:
    """Print a line for each table, and for each point of the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TABLES, nargs="*", default=list(TABLES))
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--choices", type=pathlib.Path)
    parser.add_argument("--clicks", type=pathlib.Path, nargs="+")
    parser.add_argument("--fields", default="user,item,daytime,weekday,isweekend,homework,cost,weather,country,city")
    parser.add_argument("--ratings", type=pathlib.Path)
    parser.add_argument("--peers", help="a Python with implicit and lightgbm")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for seed in range(options.seeds):
        if options.choices:
            choices(options.choices, options.peers, seed)
        if options.clicks:
            clicks(options.clicks, options.fields.split(","), options.peers, seed)
        if options.ratings:
            columns(options.ratings, seed)
    if options.choices or options.clicks or options.ratings:
        return
    for name in options.only:
        frame = TABLES[name]()
        got, about = fitted(frame)
        print(f"{name:10} fit {got:.4f}  linear {linear(frame):.4f}  ({len(frame):,} rows; {about})", flush=True)
        if not options.grid:
            continue
        for (rule, rate), dense, dim in itertools.product(*GRID.values()):
            overrides = [
                f"train.sparse_optimizer={{name: {rule}, learning_rate: {rate}}}",
                f"train.dense_optimizer.learning_rate={dense}",
            ]
            got, about = fitted(frame, embedding_dim=dim, overrides=overrides)
            print(f"  {rule} {rate:g}, dense {dense:g}, dim {dim}: {got:.4f}  ({about})", flush=True)


if __name__ == "__main__":
    main()
