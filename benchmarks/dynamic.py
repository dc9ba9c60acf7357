"""A dynamic table of raw 64-bit ids against a vocabulary that is built first: the AUC of both, over several seeds.

    python benchmarks/dynamic.py                     # writes benchmarks/results/dynamic.md
    python benchmarks/dynamic.py --ratings 40000 --seeds 2 --no-write

Ratings are generated in the shape of MovieLens-1M: 6,000 users and 4,000 films, most ratings of a few films, a like
that depends on the user, the film and the product of eight hidden numbers of each. Both runs read the same ratings in
the same order; one knows the row of each id from the start, the other gives a row to an id when it comes. Their rows
start from other random values, as with another seed: so the mean over seeds is compared, with its standard error.
"""

from __future__ import annotations

import argparse
import io
import pathlib
from typing import Any

import numpy as np

from sparrow import config as configs
from sparrow import runs
from sparrow.data import Tables
from sparrow.embedding import mix64

HERE = pathlib.Path(__file__).parent
USERS, FILMS, HIDDEN = 6_000, 4_000, 8
NAMES = ["user", "film"]


def ratings(count: int, seed: int = 0) -> dict[str, Any]:
    """Return numbered users and films, and likes."""
    generator = np.random.default_rng(seed)
    active = generator.lognormal(0, 1.2, USERS)
    popular = 1 / (np.arange(FILMS) + 20.0)
    users = generator.choice(USERS, count, p=active / active.sum())
    films = generator.permutation(FILMS)[generator.choice(FILMS, count, p=popular / popular.sum())]
    tastes = [generator.normal(0, 0.5, (size, HIDDEN)) for size in (USERS, FILMS)]
    biases = [generator.normal(0, 0.7, size) for size in (USERS, FILMS)]
    logits = biases[0][users] + biases[1][films] + np.einsum("ij,ij->i", tastes[0][users], tastes[1][films])
    likes = generator.random(count) < 1 / (1 + np.exp(-logits))
    return {"user": users, "film": films, "label": likes.astype(np.float32)}


def config(given: dict[str, Any], seed: int, is_dynamic: bool, rows: float) -> configs.Config:
    """Return a run over 80 % of the ratings that is evaluated on the others."""
    features, columns, sizes = [], dict(given), {"user": USERS, "film": FILMS}
    for name in NAMES:
        size: dict[str, Any] = {"num_buckets": sizes[name]}
        if is_dynamic:
            columns[name] = mix64(given[name].astype(np.uint64)).view(np.int64)
            size = {"dynamic": {"rows": int(rows * sizes[name]) + 1}}
        features.append({"kind": "id", "name": name, "embedding_dim": 8, **size})
    cut = len(given["label"]) * 4 // 5
    initializer = {"name": "uniform", "low": -0.02, "high": 0.02}
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.05},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
                "batch_size": 1024,
                "epochs": 2,
                "seed": seed,
                "tensorboard": False,
            },
            "tasks": {"like": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["exact_auc"]}},
            "data": {
                "train": Tables({name: column[:cut] for name, column in columns.items()}),
                "evaluate": Tables({name: column[cut:] for name, column in columns.items()}),
                "features": features,
                "shuffle_rows": 65536,
            },
            "model": {
                "architecture": {"name": "deepfm", "deep": {"hidden_units": [32]}},
                "groups": {"wide": NAMES, "deep": NAMES},
                "tables": [{"tables": [".*"], "initializer": initializer}],
            },
        }
    )


def areas(given: dict[str, Any], seeds: int, is_dynamic: bool, rows: float = 1.0) -> np.ndarray[Any, Any]:
    """Return the area under the curve of one run for each seed."""
    made = []
    for seed in range(seeds):
        trained = runs.train(config(given, seed, is_dynamic, rows), stream=io.StringIO())
        made.append(trained.results["exact_auc"])
    return np.array(made)


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ratings", type=int, default=400_000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    given = ratings(options.ratings)
    before, dynamic = (areas(given, options.seeds, is_dynamic) for is_dynamic in (False, True))
    spread = [float(made.std(ddof=1) / np.sqrt(len(made))) for made in (before, dynamic)]
    head = f"{options.ratings:,} generated ratings of {USERS:,} users and {FILMS:,} films, 80 % to train on"
    lines = [
        "# A dynamic vocabulary beside one made beforehand: `python benchmarks/dynamic.py`",
        "",
        f"{head} for two epochs, the others to evaluate; DeepFM, dim 8; {options.seeds} seeds each.",
        "",
        "| | mean AUC | standard error of the mean | runs |",
        "|---|---:|---:|---|",
    ]
    for name, made, error in (
        ("vocabulary made beforehand", before, spread[0]),
        ("dynamic, raw 64-bit ids", dynamic, spread[1]),
    ):
        lines.append(f"| {name} | {made.mean():.5f} | {error:.5f} | {', '.join(f'{x:.5f}' for x in made)} |")
    error = float(np.hypot(*spread))
    lines += ["", f"Difference of the means: {dynamic.mean() - before.mean():+.5f}, standard error {error:.5f}."]
    print("\n".join(lines), flush=True)
    if not options.no_write:
        (HERE / "results" / "dynamic.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
