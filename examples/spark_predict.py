"""Predictions of an export in Spark: python examples/spark_predict.py EXPORT "rows/*.parquet" OUT."""

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
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            yield pa.RecordBatch.from_pydict(columns | model.predict(columns))

    rows = SparkSession.builder.getOrCreate().read.parquet(path)
    tasks = sp.serving.load(export).predict(rows.limit(1).toPandas())
    columns = [f"`{name}` {kind}" for name, kind in rows.dtypes] + [f"`{task}` FLOAT" for task in tasks]
    rows.mapInArrow(predictions, ", ".join(columns)).write.mode("overwrite").parquet(out)
