"""The sources of examples: the input paths, and the kind of files that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sparrow.config.sections.data import Cost, Mask
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.data import Csv, Feature, Parquet, Source

_MAXCOMPUTE: Final = "odps://"
_TABLES: Final = ("OdpsDataset", "OdpsDatasetV1")


def has_source(pipeline: Block, field: str) -> bool:
    """Return whether a path is given."""
    return bool(pipeline[field].strip())


def source(pipeline: Block, field: str, data: Block) -> Source:
    """Return the source of ``train_input_path`` or ``eval_input_path``.

    Paths of files are read as Parquet also where the config is of MaxCompute tables.
    """
    flag = f"--{field} FILES"
    paths = tuple(part.strip() for part in pipeline[field].split(",") if part.strip())
    if not paths:
        pipeline.fail(f"is empty; add {flag}, with a file, a folder or a pattern such as 'clicks/*.parquet'", field)
    if any(path.startswith(_MAXCOMPUTE) for path in paths):
        pipeline.fail(f"MaxCompute tables are not read; export the table to Parquet files, and add {flag}", field)
    path: Any = paths[0] if len(paths) == 1 else paths
    kind = data["dataset_type"]
    if kind == "KafkaDataset":
        data.fail("not supported: KafkaDataset; write Parquet files, and set ParquetDataset", "dataset_type")
    if kind in _TABLES:
        data.note("the input paths name files, which are read as Parquet", "dataset_type")
    if kind != "CsvDataset":
        for field_of_csv in ("delimiter", "with_header"):
            data.note("it is of CsvDataset", field_of_csv)
        for field_of_columns in ("input_fields", "input_fields_str"):
            data.note("Parquet files name their columns", field_of_columns)
        for entry in data["input_fields"]:
            entry.note("Parquet files name their columns", "input_name")
        return Parquet(path)
    columns, header = _columns(data), data["with_header"]
    if not columns and not header:
        data.fail("is required for CSV files without a header", "input_fields")
    return Csv(path, columns=None if header else columns, separator=data["delimiter"], header=header)


def mask(data: Block, features: Sequence[tuple[Feature, Block]]) -> Mask | None:
    """Return the features that are hidden in some examples; None: none is."""
    share, of_negatives = data["sample_mask_prob"], data["negative_sample_mask_prob"]
    hidden = [feature.name for feature, block in features if block["use_mask"]]
    if not hidden or not (share or of_negatives):
        for field in ("sample_mask_prob", "negative_sample_mask_prob"):
            data.note("no feature has use_mask", field)
        for _, block in features:
            block.note("sample_mask_prob and negative_sample_mask_prob are 0", "use_mask")
        return None
    sampler = data.chosen("sampler")
    if sampler is None:
        data.note("there are no negatives", "negative_sample_mask_prob")
        of_negatives = 0.0
    elif sampler[0] == "tdm_sampler":
        data.fail("not supported with a tdm_sampler; remove it", "sample_mask_prob")
    with data.locating():
        return Mask(features=tuple(hidden), share=share, negatives_share=of_negatives)


def cost(data: Block) -> Cost | None:
    """Return the limit of the cost of a batch; None: a batch has ``batch_size`` rows whatever they cost."""
    if not data["batch_cost_size"]:
        for field in ("batch_cost_size", "sample_cost_field"):
            data.note("batch_cost_size is 0", field)
        return None
    if not data["sample_cost_field"]:
        data.fail("is required with batch_cost_size", "sample_cost_field")
    data.differ("here a batch also has at most batch_size rows", "batch_cost_size")
    with data.locating():
        return Cost(column=data["sample_cost_field"], limit=data["batch_cost_size"])


def _columns(data: Block) -> tuple[str, ...]:
    """Return the columns of a file in order: ``input_fields``, or ``input_fields_str`` as "a:INT64;b:STRING"."""
    if "input_fields_str" not in data:
        return tuple(entry["input_name"] for entry in data["input_fields"])
    if data["input_fields"]:
        data.fail("cannot be given together with input_fields; keep one", "input_fields_str")
    entries = [entry.strip() for entry in data["input_fields_str"].split(";") if entry.strip()]
    return tuple(entry.rpartition(":")[0].strip() or entry for entry in entries)
