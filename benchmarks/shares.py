"""Processor time of a process that reads its share of the data, relative to one that reads all: ``python shares.py``.

Rows have 12 strings, 8 ids of 64 bits and 13 numbers; batches of 16,384 are read, converted and cut, not packed.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from sparrow.data import Converter, Csv, IdFeature, Parquet, RawFeature
from sparrow.feed import Batching, Division, Pipeline

ROWS, BATCH, GROUP = 1_000_000, 16_384, 32_768
STRINGS = [f"s{i}" for i in range(12)]
IDS = [f"i{i}" for i in range(8)]
NUMBERS = [f"n{i}" for i in range(13)]


class Nobody:
    """The other processes, of which no question is asked before the end."""

    def tell(self, share, epoch, rows, is_last):
        """Nobody listens."""

    def failed(self, share):
        """Nobody listens."""

    def have(self, share, epoch, rows, is_over):
        """Return that the epoch has ended everywhere."""
        return False


def table():
    """Return the rows."""
    rng = np.random.default_rng(0)
    words = pa.array([f"value-{i:05x}" for i in range(50_000)])
    columns = {name: words.take(pa.array(rng.integers(0, 50_000, ROWS))) for name in STRINGS}
    columns |= {name: rng.integers(0, 2**40, ROWS) for name in IDS}
    columns |= {name: rng.normal(size=ROWS).astype(np.float32) for name in NUMBERS}
    return pa.table(columns | {"click": rng.integers(0, 2, ROWS)})


def seconds(source, division):
    """Return the processor time of one epoch, and its rows."""
    features = [IdFeature(name, hash_bucket_size=100_000, embedding_dim=8) for name in STRINGS + IDS]
    features += [RawFeature(name) for name in NUMBERS]
    pipeline = Pipeline(source, Converter(features, ["click"]), Batching(BATCH, shuffle_rows=262_144))
    pipeline.divide(division)
    began = time.process_time()
    rows = sum(len(batch) for batch in pipeline)
    return time.process_time() - began, rows


def main():
    """Measure, interleaved."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        made = table()
        pq.write_table(made, path / "rows.parquet", row_group_size=GROUP)
        pyarrow.csv.write_csv(made, path / "rows.csv")
        for source in (Parquet(str(path / "rows.parquet")), Csv(str(path / "rows.csv"))):
            kinds = {"all": Division(1, 0, 2, Nobody()), "share": Division(2, 0, 2, Nobody())}
            found = {kind: [] for kind in kinds}
            for _ in range(4):
                for kind, division in kinds.items():
                    found[kind].append(seconds(source, division))
            least = {kind: min(one for one, _ in times) for kind, times in found.items()}
            rows = {kind: times[0][1] for kind, times in found.items()}
            ratio = least["share"] / least["all"]
            print(f"{type(source).__name__}: rows {rows}, seconds {least}, share / all {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
