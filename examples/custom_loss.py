"""A custom loss: counts with a Poisson distribution, trained from a config, predicted and served.

python examples/custom_loss.py [FOLDER] [--steps 400]

A loss describes the output that it trains: here the logarithm of the expected count. `prediction` makes the count
of it, and every part after training calls it: metrics, files of predictions, exports and services.

From the command line, with the class in a file of its own: sparrow train CONFIG --import FILE
"""

import argparse
import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow import config, losses, runs, serving

USERS, ITEMS, BATCH, UNSEEN = 50, 80, 512, 8192


@losses.register_loss("poisson_counts")
@dataclasses.dataclass(frozen=True)
class PoissonCounts(losses.Loss):
    """The negative logarithm of the likelihood of a count, without the part that no parameter changes.

    ::

        rate  = exp(output)
        value = rate - labels * output
    """

    meaning = "expected count"
    label_kind = "real"

    def __call__(self, outputs, labels):
        return jnp.exp(outputs) - labels * outputs

    def prediction(self, output):
        return jnp.exp(output)


def visits(rows: int, seed: int) -> pa.Table:
    """Return counts whose expectation is the product of a number of the user and one of the item."""
    truth, draw = np.random.default_rng(0), np.random.default_rng(seed)
    of_user, of_item = truth.normal(0.0, 0.5, USERS), truth.normal(-0.2, 0.5, ITEMS)
    user, item = draw.integers(0, USERS, rows), draw.integers(0, ITEMS, rows)
    count = draw.poisson(np.exp(of_user[user] + of_item[item]))
    return pa.table({"user": user, "item": item, "visits": count.astype(np.float32)})


def described(folder: Path) -> config.Config:
    sizes = {"user": USERS, "item": ITEMS}
    return config.from_mapping(
        {
            "model": {
                "architecture": {"name": "multi_tower", "towers": [{"input": "all"}], "final": {"hidden_units": [16]}},
                "groups": {"all": list(sizes)},
            },
            "data": {
                "train": {"name": "parquet", "path": str(folder / "train.parquet")},
                "evaluate": {"name": "parquet", "path": str(folder / "unseen.parquet")},
                "features": [
                    {"kind": "id", "name": name, "num_buckets": size, "embedding_dim": 4}
                    for name, size in sizes.items()
                ],
            },
            "tasks": {"visits": {"label": "visits", "losses": ["poisson_counts"], "metrics": ["mae"]}},
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.1},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.005},
                "batch_size": BATCH,
                "epochs": 1,
            },
        }
    )


def main(folder: Path, steps: int) -> dict[str, float]:
    """Train, evaluate, predict, export and serve. Return the mean of the labels and of each way's predictions."""
    folder.mkdir(parents=True, exist_ok=True)
    unseen = visits(UNSEEN, seed=2)
    pq.write_table(visits(steps * BATCH, seed=1), folder / "train.parquet")
    pq.write_table(unseen, folder / "unseen.parquet")

    trained = runs.train(described(folder), folder / "run", overwrite=True)
    evaluated = trained.evaluate()

    trained.predict_file(folder / "unseen.parquet", folder / "scores.parquet")
    scores = pq.read_table(folder / "scores.parquet")["visits"].to_numpy()

    trained.export(folder / "exported", overwrite=True)
    served = serving.load(folder / "exported").predict(unseen.select(["user", "item"]))["visits"]

    labels = unseen["visits"].to_numpy()
    return {
        "mean of the labels": float(labels.mean()),
        "mean of the predictions": float(scores.mean()),
        "mean of the served predictions": float(np.mean(served)),
        "mean absolute error of evaluation": evaluated["mae"],
        "mean absolute error of the predictions": float(np.abs(scores - labels).mean()),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="build/custom_loss", help="build/custom_loss unless given")
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    for name, value in main(Path(options.folder), options.steps).items():
        print(f"{name:<40} {value:.4f}")
