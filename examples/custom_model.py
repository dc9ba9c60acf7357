"""A custom model: registered, trained from a config, exported, and served by a process that lacks its code.

python examples/custom_model.py [FOLDER] [--steps 600]

From the command line, with the class in a file of its own: sparrow train CONFIG --import FILE, sparrow export ...
"""

import argparse
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from flax import nnx

import sparrow as sp
from sparrow import config, exports, models, runs
from sparrow.data import ClickLog, write_clicks

FIELDS, IDS, DIM, BATCH = 8, 300, 8, 2048
NAMES = [f"id_{i}" for i in range(FIELDS)]


@models.register_model("fwfm")
class FwFM(nnx.Module):
    """A factorization machine that weighs each pair of fields.

    ::

        logit = w · [v_1 .. v_n] + Σ_{i<j} r_ij <v_i, v_j> + b

    Reference: Pan et al., Field-weighted Factorization Machines, WWW 2018.
    """

    def __init__(self, inputs: models.Inputs, *, use_linear: bool = True, rngs: nnx.Rngs):
        # A config may set the options after the star: numbers, names, lists and dataclasses.
        inputs.check("FwFM", required=["fields"])
        self.fields = inputs.vectors("fields")
        pairs = FIELDS * (FIELDS - 1) // 2
        self.pairs = nnx.Linear(pairs, 1, kernel_init=nnx.initializers.ones, rngs=rngs)
        self.linear = nnx.Linear(self.fields.dim, 1, rngs=rngs) if use_linear else nnx.data(None)

    def __call__(self, acts, numbers):
        logits = self.pairs(models.pairwise_dots(self.fields.stack(acts)))
        if self.linear is not None:
            logits += self.linear(self.fields.concat(acts, numbers))
        return {"logits": logits[:, 0]}


def described(steps: int) -> config.Config:
    clicks = {"name": "clicks", "fields": FIELDS, "ids": IDS}
    return config.from_mapping(
        {
            "model": {"architecture": {"name": "fwfm", "use_linear": True}, "groups": {"fields": NAMES}},
            "data": {
                "train": {**clicks, "impressions": steps * BATCH},
                "features": [{"kind": "id", "name": name, "num_buckets": IDS, "embedding_dim": DIM} for name in NAMES],
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"]}},
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.15},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.005},
                "batch_size": BATCH,
                "epochs": 1,
                "ema": 0.9,
            },
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="build/custom_model", help="build/custom_model unless given")
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    folder = Path(options.folder)
    trained = runs.train(described(options.steps), folder / "run", overwrite=True)
    exports.export(trained.program, trained.state, folder / "exported", overwrite=True)

    # A process of its own, which has never seen the class: predictions come from the export alone.
    unseen = ClickLog(impressions=32 * BATCH, fields=FIELDS, ids=IDS, start=10_000)
    write_clicks(unseen, folder / "rows.parquet")
    places = [str(folder / name) for name in ("exported", "rows.parquet", "scores.parquet")]
    subprocess.run([sys.executable, "-m", "sparrow.cli", "predict", *places, "--columns", "label"], check=True)

    scores, metric = pq.read_table(places[-1]), sp.metrics.ExactAUC()
    state = metric.update(metric.init(), scores["click"].to_numpy(), scores["label"].to_numpy())
    print(f"AUC {metric.compute(state):.4f}; the best possible is {unseen.best_auc():.4f}")


if __name__ == "__main__":
    main()
