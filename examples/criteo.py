"""Train examples/deepfm_criteo.yaml on generated files of Criteo's layout, and compare with the best possible AUC.

python examples/criteo.py [FOLDER] [--rows 1000000] [FIELD=VALUE ...]
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import sparrow as sp
from sparrow import config, runs
from sparrow.data import ClickLog

COUNTS, CATEGORIES, CHUNK = 13, 26, 50_000
INTERACTING, WORDS = 8, 40  # the first categories act in pairs too, the others and the counts each by itself
TRUTH = ClickLog(fields=INTERACTING, ids=WORDS, bias=-1.5)
SLOPES = np.random.default_rng(1).normal(0.0, 0.1, COUNTS)
EFFECTS = np.random.default_rng(2).normal(0.0, 0.1, (CATEGORIES - INTERACTING, WORDS))


def generate(file: Path, rows: int, start: int) -> float:
    """Write lines of a label, 13 counts and 26 categories. Return the AUC of the true probabilities."""
    metric = sp.metrics.ExactAUC()
    best = metric.init()
    words = pa.array([f"{(i + 1) * 2654435761 % 2**32:08x}" for i in range(CATEGORIES * WORDS)])
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        for index in range(-(-rows // CHUNK)):
            batch = TRUTH.batch(start + index, min(CHUNK, rows - index * CHUNK))
            size, rng = len(batch.ids), np.random.default_rng([start, index])
            counts = rng.geometric(0.1, (size, COUNTS)) - 1
            others = rng.integers(0, WORDS, (size, len(EFFECTS)))
            log_odds = np.log(batch.probabilities / (1 - batch.probabilities))
            log_odds += (np.log1p(counts) - 1.9) @ SLOPES + EFFECTS[np.arange(len(EFFECTS)), others].sum(axis=1)
            probabilities = 1 / (1 + np.exp(-log_odds))
            labels = (rng.random(size) < probabilities).astype(np.int8)
            best = metric.update(best, probabilities, labels)
            ids = np.concatenate([batch.ids, others], axis=1) + WORDS * np.arange(CATEGORIES)
            columns = [labels, *counts.T, *(words.take(pa.array(column)) for column in ids.T)]
            table = pa.table(columns, names=[str(i) for i in range(len(columns))])
            form = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
            pa.csv.write_csv(table, out, form)
    return metric.compute(best)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="build/criteo", help="where files go; build/criteo unless given")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options, overrides = parser.parse_known_args()
    began = time.perf_counter()
    folder = Path(options.folder)
    generate(folder / "train" / "train.txt", options.rows, start=0)
    best = generate(folder / "evaluate" / "train.txt", options.rows // 8, start=100_000)
    print(f"generated {options.rows} lines in {time.perf_counter() - began:.0f} s")
    paths = [f"data.{part}.path={folder / part}" for part in ("train", "evaluate")]
    loaded = config.load(Path(__file__).with_name("deepfm_criteo.yaml"), [*paths, *overrides])
    trained = runs.train(loaded, folder / "model", overwrite=True)  # of an earlier demo
    auc = trained.results["auc"]
    print(f"{trained.examples_per_second:,.0f} examples per second; all of it took {time.perf_counter() - began:.0f} s")
    print(f"AUC {auc:.4f}; the best possible is {best:.4f} (difference {best - auc:.4f})")


if __name__ == "__main__":
    main()
