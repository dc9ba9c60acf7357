"""Quality on public data: models with fixed configs, and published figures for the same protocol.

    python benchmarks/quality.py ml-1m                  # or ml-100k, or a folder with Criteo's train.txt
    python benchmarks/quality.py ml-1m --models deepfm,dssm --epochs 2 --write

The folder is the data set as it was unpacked (Criteo's sample: dac_sample.txt); nothing is downloaded. With
``--write`` the table goes into ``benchmarks/results/quality.md``. Protocols:

ranking, MovieLens
    Ratings above 3 are a yes, below 3 a no, 3 is left out. 80 % of the rows at random to train on, 10 % to test on.
matching, MovieLens
    Every rating is a choice. The newest of each user is held out and ranked among 99 items that the user never rated.
ranking, Criteo
    80 % of the lines at random to train on, 10 % to test on.
"""

from __future__ import annotations

import argparse
import datetime
import io
import pathlib
import platform
import tempfile
import time
from typing import Any, NamedTuple

import jax
import numpy as np
import pyarrow.parquet as pq

if __package__:
    from benchmarks import quality_data as data
else:
    import quality_data as data

from sparrow import config as configs
from sparrow import metrics, runs
from sparrow.data.sources.criteo import CATEGORIES, COUNTS
from sparrow.versions import versions

HERE = pathlib.Path(__file__).parent
DIM = 16
TOP = 10
RATINGS_1M = 1_000_209
"""The ratings of MovieLens-1M: published figures stand beside these alone."""
DRAWN = 512
"""Negatives per batch in training, drawn uniformly."""


class Published(NamedTuple):
    """A figure of a paper, for one protocol on MovieLens-1M."""

    model: str
    first: float  # AUC, or HR@10
    second: float  # log loss, or NDCG@10
    paper: str


AUTOINT = "Song et al., AutoInt, CIKM 2019, arXiv 1810.11921, table 2 (means of ten runs)"
REVISITED = (
    "Rendle et al., Neural Collaborative Filtering vs. Matrix Factorization Revisited, arXiv 2005.09683, dim 192 "
    "(popularity and NeuMF as Dacrema et al. reproduced them)"
)
# Checked on 2026-11-16: AutoInt's against a copy of the paper's HTML; Rendle et al.'s against a reader's summary of the
# paper, because the paper itself was not at hand.
PUBLISHED = {
    "ranking": (
        Published("logistic regression", 0.7716, 0.4424, AUTOINT),
        Published("factorization machine", 0.8252, 0.3998, AUTOINT),
        Published("AutoInt", 0.8456, 0.3797, AUTOINT),
    ),
    "matching": (
        Published("popularity", 0.4535, 0.2543, REVISITED),
        Published("NeuMF", 0.7093, 0.4349, REVISITED),
        Published("matrix factorization", 0.7294, 0.4523, REVISITED),
    ),
}


def units(*hidden: int) -> dict[str, Any]:
    return {"hidden_units": list(hidden), "dropout_ratio": 0.2}


LAYER = {"lcb_feature_num": 8, "fmb_feature_num": 8, "feature_num_mlp": units(64)}
MASKS = {"n_mask_blocks": 3, "hidden_dim": 64, "top_mlp": units(64)}
ALL, PAIR, SPARSE = ("all",), ("wide", "deep"), ("sparse",)
RANKERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "wide_and_deep": ({"deep": units(128, 64)}, PAIR),
    "deepfm": ({"deep": units(128, 64)}, PAIR),
    "xdeepfm": ({"cin_layer_size": [32, 16], "deep": units(128, 64), "final": units(32)}, PAIR),
    "dlrm": ({"final": units(128, 64)}, SPARSE),
    "wukong": ({"wukong_layers": [LAYER, LAYER], "final": units(64)}, SPARSE),
    "dcn_v1": ({"cross_num": 3, "deep": units(128, 64), "final": units(32)}, ALL),
    "dcn_v2": ({"cross_num": 2, "deep": units(128, 64), "final": units(32)}, ALL),
    "mask_net": ({"mask_net_module": MASKS}, ALL),
}
"""Models with their options and the groups that they read, each of all features."""
MATCHERS = ("dssm",)


def training(epochs: float, file: pathlib.Path, rate: float) -> dict[str, Any]:
    """Return the section ``train``; ``rate``: the learning rate of the tables."""
    rows = pq.read_metadata(file).num_rows
    size = max(1, min(2048, rows // 8))
    return {
        "sparse_optimizer": {"name": "adam", "learning_rate": rate},
        "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
        "batch_size": size,
        "steps": max(1, round(epochs * rows / size)),
        "log_every_steps": 10**6,
    }


def sources(folder: pathlib.Path) -> dict[str, Any]:
    files = {part: {"name": "parquet", "path": str(folder / f"{file}.parquet")} for part, file in FILES.items()}
    return {**files, "shuffle_rows": 200_000}


FILES = {"train": "train", "evaluate": "test"}


def features(columns: list[str]) -> list[dict[str, Any]]:
    """Return the features of MovieLens or of Criteo."""
    table = {"embedding_dim": DIM}
    if "category_1" in columns:
        counts = [
            {"kind": "raw", "name": name, "boundaries": [0, 1, 2, 4, 8, 16, 64, 256, 4096], **table} for name in COUNTS
        ]
        return counts + [{"kind": "id", "name": name, "hash_bucket_size": 100_000, **table} for name in CATEGORIES]
    ids = {"user_id": 10_000, "movie_id": 10_000, "gender": 10, "age": 100, "occupation": 100}
    made = [
        {"kind": "id", "name": name, "hash_bucket_size": rows, **table} for name, rows in ids.items() if name in columns
    ]
    genres = {"kind": "id", "name": "genres", "hash_bucket_size": 100, "separator": "|", "pooling": "mean", **table}
    return [*made, genres]


def rank(name: str, folder: pathlib.Path, epochs: float) -> tuple[float, float]:
    """Train a ranker; return AUC and log loss of the test rows."""
    options, groups = RANKERS[name]
    described = pq.read_schema(folder / "train.parquet")
    used = features(described.names)
    names = [feature["name"] for feature in used]
    config = configs.from_mapping(
        {
            "data": {**sources(folder), "features": used},
            "model": {"architecture": {"name": name, **options}, "groups": dict.fromkeys(groups, names)},
            "tasks": {
                "click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["exact_auc", "log_loss"]}
            },
            "train": training(epochs, folder / "train.parquet", 0.001),
        }
    )
    results = runs.train(config, stream=io.StringIO()).results
    return results["exact_auc"], results["log_loss"]


def match(name: str, folder: pathlib.Path, epochs: float) -> tuple[float, float]:
    """Train two towers of ids on the softmax over items drawn; return HR@10 and NDCG@10 among the candidates."""
    table = {"kind": "id", "hash_bucket_size": 100_000, "embedding_dim": 64}
    towers = {f"{side}_tower": {"input": side} for side in ("user", "item")}
    config = configs.from_mapping(
        {
            "data": {
                "train": sources(folder)["train"],
                "shuffle_rows": 200_000,
                "features": [{**table, "name": "user_id"}, {**table, "name": "movie_id"}],
                "negatives": {
                    "items": {"name": "parquet", "path": str(folder / "items.parquet")},
                    "group": "item",
                    "id_column": "movie_id",
                    "count": DRAWN,
                },
            },
            "model": {
                "architecture": {"name": name, **towers, "similarity": "inner_product", "negatives": "sampled"},
                "groups": {"user": ["user_id"], "item": ["movie_id"]},
            },
            "tasks": {"match": {"label": "label", "losses": ["sampled_softmax"]}},
            "train": training(epochs, folder / "train.parquet", 0.005),
        }
    )
    trained = runs.train(config, stream=io.StringIO())
    vectors = {}
    for file in ("test", "items"):
        out = folder / f"{file}_vectors.parquet"
        runs.predict(trained.program, trained.state, str(folder / f"{file}.parquet"), out, columns=["movie_id"])
        vectors[file] = pq.read_table(out)
    query = np.stack(vectors["test"]["user_vector"].to_numpy())
    item = np.stack(vectors["items"]["item_vector"].to_numpy())
    place = {movie: i for i, movie in enumerate(vectors["items"]["movie_id"].to_pylist())}
    candidates = np.load(folder / "candidates.npy")
    ids = np.concatenate([vectors["test"]["movie_id"].to_numpy()[:, None], candidates], axis=1)
    rows = np.vectorize(place.__getitem__)(ids)  # (users, 1 + candidates), the item held out first
    scores = np.einsum("ud,ucd->uc", query, item[rows])
    relevant = np.zeros(scores.shape, np.float32)
    relevant[:, 0] = 1
    found = []
    for metric in (metrics.HitRateAtK(top_k=TOP), metrics.NDCGAtK(top_k=TOP)):
        found.append(float(metric.compute(metric.update(metric.init(), scores, relevant))))
    return found[0], found[1]


def measured(
    folder: pathlib.Path, models: list[str], epochs: float, seed: int
) -> list[tuple[str, str, float, float, float]]:
    """Return for each model: the protocol, its name, both figures, and the seconds."""
    is_movielens = any((folder / name).is_file() for name in ("u.data", "ratings.dat", "ratings.csv"))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        made: dict[str, pathlib.Path] = {}
        for name in models:
            protocol = "matching" if name in MATCHERS else "ranking"
            if protocol == "matching" and not is_movielens:
                continue
            if protocol not in made:
                made[protocol] = pathlib.Path(scratch) / protocol
                made[protocol].mkdir()
                prepare = data.matching if protocol == "matching" else data.ranking if is_movielens else data.criteo
                prepare(folder, made[protocol], seed)
            began = time.perf_counter()
            figures = (match if protocol == "matching" else rank)(name, made[protocol], epochs)
            rows.append((protocol, name, *figures, time.perf_counter() - began))
            print(f"{protocol} {name}: {figures[0]:.4f} {figures[1]:.4f}", flush=True)
    return rows


def report(folder: pathlib.Path, rows: list[tuple[str, str, float, float, float]], epochs: float, title: str) -> str:
    """Return the tables as Markdown."""
    heads = {"ranking": ("AUC", "log loss"), "matching": (f"HR@{TOP}", f"NDCG@{TOP}")}
    made = [f"## {title}", ""]
    device = jax.devices()[0]
    machine = f"{device.device_kind}, {platform.processor() or platform.machine()}, jax {versions()['jax']}"
    made += [f"{datetime.date.today()}, {epochs:g} epochs, {machine}. Data: `{folder.name}`.", ""]
    is_1m = _lines(folder / "ratings.dat") == RATINGS_1M
    for protocol, (first, second) in heads.items():
        of_protocol = [row for row in rows if row[0] == protocol]
        if not of_protocol:
            continue
        made += [f"| {protocol} | {first} | {second} | seconds |", "|---|---|---|---|"]
        made += [f"| {name} | {a:.4f} | {b:.4f} | {seconds:.0f} |" for _, name, a, b, seconds in of_protocol]
        if is_1m:
            made += [f"| published: {p.model} | {p.first:.4f} | {p.second:.4f} | |" for p in PUBLISHED[protocol]]
        made.append("")
        if is_1m:
            papers = "; ".join(dict.fromkeys(p.paper for p in PUBLISHED[protocol]))
            made += [f"Published figures are of MovieLens-1M, quoted and not reproduced: {papers}.", ""]
    return "\n".join(made)


def _lines(file: pathlib.Path) -> int:
    if not file.is_file():
        return 0
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def main(arguments: list[str] | None = None) -> str:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", default=",".join([*RANKERS, *MATCHERS]), help="names, separated by commas")
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--title", default="Measured")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    models = given.models.split(",")
    for name in models:
        if name not in (*RANKERS, *MATCHERS):
            parser.error(f"unknown model '{name}'; choose from {', '.join([*RANKERS, *MATCHERS])}")
    known = ("u.data", "ratings.dat", "ratings.csv", "train.txt", "dac_sample.txt", "train.txt.gz", "dac_sample.txt.gz")
    if not any((given.folder / name).is_file() for name in known):
        parser.error(f"{given.folder} holds none of {', '.join(known)}; name the folder that the data was unpacked to")
    made = report(given.folder, measured(given.folder, models, given.epochs, given.seed), given.epochs, given.title)
    print(made)
    if given.write:
        file = HERE / "results" / "quality.md"
        before = file.read_text(encoding="utf-8") if file.is_file() else "# Quality\n"
        file.write_text(f"{before.rstrip()}\n\n{made}", encoding="utf-8")
    return made


if __name__ == "__main__":
    main()
