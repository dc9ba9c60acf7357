"""Predictions of an export in Spark: python examples/spark_predict.py EXPORT "rows/*.parquet" OUT.

Adds a column ``predicted_<task>`` for each task.
"""

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import sparrow as sp

if __name__ == "__main__":
    export, path, out = sys.argv[1:]

    def predictions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        model = sp.serving.load(export)  # once in each task; tables are memory-mapped, and shared
        for rows in batches:
            for task, values in model.predict(pa.Table.from_batches([rows])).items():
                rows = rows.append_column(f"predicted_{task}", pa.array(values))
            yield rows

    rows = SparkSession.builder.getOrCreate().read.parquet(path)
    columns = [f"`{name}` {kind}" for name, kind in rows.dtypes]
    columns += [f"`predicted_{task}` FLOAT" for task in sp.serving.load(export).predict(rows.limit(1).toArrow())]
    rows.mapInArrow(predictions, ", ".join(columns)).write.mode("overwrite").parquet(out)
