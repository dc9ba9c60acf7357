"""Predictions of an export in Ray Data: python examples/ray_predict.py EXPORT "rows/*.parquet" OUT.

Adds a column ``predicted_<task>`` for each task.
"""

import sys

import pyarrow as pa
import ray

import sparrow as sp


class Predictions:
    def __init__(self, export: str) -> None:
        self.model = sp.serving.load(export)  # once in each worker; tables are memory-mapped, and shared

    def __call__(self, rows: pa.Table) -> pa.Table:
        for task, values in self.model.predict(rows).items():
            rows = rows.append_column(f"predicted_{task}", pa.array(values))
        return rows


if __name__ == "__main__":
    export, rows, out = sys.argv[1:]
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=16)  # grows with the cluster; reading needs processors, too
    ray.data.read_parquet(rows).map_batches(
        Predictions, fn_constructor_args=[export], batch_format="pyarrow", batch_size=4096, compute=pool
    ).write_parquet(out)
