"""`import_config`: a complete config of TorchEasyRec."""

from __future__ import annotations

from typing import Any

from sparrow.config.sections.config import Config
from sparrow.config.sections.data import Data, Negatives
from sparrow.config.torcheasyrec import tables, text
from sparrow.config.torcheasyrec.blocks import Block, read
from sparrow.config.torcheasyrec.features import features
from sparrow.config.torcheasyrec.models import model, poolings, tasks
from sparrow.config.torcheasyrec.negatives import negatives
from sparrow.config.torcheasyrec.training import evaluate, train
from sparrow.data import Csv, Feature, Parquet, Source


def import_config(source_text: str, source: str | None = None) -> Config:
    """Read a ``.config`` of TorchEasyRec. ``source`` is the file's name, for errors.

    >>> import_config("train_config { num_step: 100 }")
    Traceback (most recent call last):
    sparrow.errors.ConfigError: line 1: train_config.num_step: unknown field: did you mean 'num_steps'? ...
    """
    pipeline = read(text.parse(source_text, source), "EasyRecConfig", source)
    data, model_config = pipeline["data_config"], pipeline["model_config"]
    found = features(pipeline["feature_configs"], data, poolings(model_config))
    training = train(pipeline["train_config"], data["batch_size"], tables.frozen(tables.by_table(found)))
    checkpoint = training.checkpoint if "eval_input_path" in pipeline else None
    with pipeline.locating():
        return Config(
            data=_data(pipeline, data, [feature for feature, _ in found], negatives(data, model_config)),
            model=model(model_config, found),
            tasks=tasks(model_config, data),
            train=training,
            evaluate=evaluate(pipeline["eval_config"], data["eval_batch_size"], checkpoint),
            model_dir=pipeline["model_dir"],
        )


def _data(pipeline: Block, data: Block, found: list[Feature], drawn: Negatives | None) -> Data:
    if data["dataset_type"] not in ("ParquetDataset", "CsvDataset"):
        data.fail(
            f"not supported: {data['dataset_type']}; export the data to Parquet (ParquetDataset) or CSV", "dataset_type"
        )
    if "shuffle_buffer_size" in data and not data["shuffle"]:
        data.fail("has no effect without shuffle: true; remove it, or add that", "shuffle_buffer_size")
    has_eval = "eval_input_path" in pipeline
    with data.locating():
        return Data(
            train=_source(pipeline, "train_input_path", data),
            evaluate=_source(pipeline, "eval_input_path", data) if has_eval else None,
            features=tuple(found),
            negatives=drawn,
            # TorchEasyRec's buffer counts batches.
            shuffle_rows=data["shuffle_buffer_size"] * data["batch_size"] if data["shuffle"] else 0,
            drop_remainder=data["drop_remainder"],
        )


def _source(pipeline: Block, field: str, data: Block) -> Source:
    paths = tuple(part.strip() for part in pipeline[field].split(",") if part.strip())
    if not paths:
        pipeline.fail("must name a file, a folder or a pattern such as 'clicks/*.parquet'", field)
    path: Any = paths[0] if len(paths) == 1 else paths
    csv = data["dataset_type"] == "CsvDataset"
    for only_csv in ("delimiter", "with_header"):
        if only_csv in data and not csv:
            data.fail("belongs to CsvDataset", only_csv)
    if not csv:
        return Parquet(path)  # which knows its columns
    columns = _columns(data)
    header = data["with_header"]
    if not columns and not header:
        data.fail("is required for CSV files without a header", "input_fields")
    return Csv(path, columns=None if header else columns, separator=data["delimiter"], header=header)


def _columns(data: Block) -> tuple[str, ...]:
    """Return the columns of a file in order: ``input_fields``, or ``input_fields_str`` as "a:INT64;b:STRING"."""
    if "input_fields_str" not in data:
        return tuple(entry["input_name"] for entry in data["input_fields"])
    if data["input_fields"]:
        data.fail("cannot be given together with input_fields; keep one", "input_fields_str")
    entries = [entry.strip() for entry in data["input_fields_str"].split(";") if entry.strip()]
    return tuple(entry.rpartition(":")[0].strip() or entry for entry in entries)
