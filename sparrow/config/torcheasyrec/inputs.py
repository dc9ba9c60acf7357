"""The examples: input paths and their files, masks, costs, and the samplers of negatives and of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sparrow.config.sections.data import Cost, LeafAncestors, Mask, Negatives, Tree
from sparrow.config.torcheasyrec.architectures import MATCHING
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.groups import Groups
from sparrow.data import Csv, EdgeTable, Feature, Parquet, Source, Split

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
        data.note("it is of CsvDataset", "delimiter", "with_header")
        data.note("Parquet files name their columns", "input_fields", "input_fields_str")
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
        data.note("no feature has use_mask", "sample_mask_prob", "negative_sample_mask_prob")
        for _, block in features:
            block.note("sample_mask_prob and negative_sample_mask_prob are 0", "use_mask")
        return None
    if data.chosen("sampler") is None:
        data.note("there are no negatives", "negative_sample_mask_prob")
        of_negatives = 0.0
    return data.make(Mask, features=tuple(hidden), share=share, negatives_share=of_negatives)


def cost(data: Block) -> Cost | None:
    """Return the limit of the cost of a batch; None: a batch has ``batch_size`` rows whatever they cost."""
    if not data["batch_cost_size"]:
        data.note("batch_cost_size is 0", "batch_cost_size", "sample_cost_field")
        return None
    if not data["sample_cost_field"]:
        data.fail("is required with batch_cost_size", "sample_cost_field")
    data.differ("here a batch also has at most batch_size rows", "batch_cost_size")
    return data.make(Cost, column=data["sample_cost_field"], limit=data["batch_cost_size"])


def _columns(data: Block) -> tuple[str, ...]:
    """Return the columns of a file in order: ``input_fields``, or ``input_fields_str`` as "a:INT64;b:STRING"."""
    if "input_fields_str" not in data:
        return tuple(entry["input_name"] for entry in data["input_fields"])
    if data["input_fields"]:
        data.fail("cannot be given together with input_fields; keep one", "input_fields_str")
    entries = [entry.strip() for entry in data["input_fields_str"].split(";") if entry.strip()]
    return tuple(entry.rpartition(":")[0].strip() or entry for entry in entries)


_ITEMS: Final = ("id", "weight", "attrs")
_PAIRS: Final = ("userid", "itemid", "weight")
_EDGES: Final = ("src_id", "dst_id", "weight")
_KEEP: Final = ("UNIFORM", "ARITHMETIC", "RECIPROCAL")


def sampled(data: Block, model: Block, features: Sequence[Feature], groups: Groups) -> dict[str, Any]:
    """Return the field ``negatives`` or ``tree`` of our section ``data``; neither where nothing is drawn."""
    name, chosen = model.choose("model")
    found = data.chosen("sampler")
    in_batch = name in MATCHING and chosen["in_batch_negative"]
    if found is None:
        if name in MATCHING and not in_batch:
            chosen.fail("needs a negative_sampler in data_config, or in_batch_negative: true")
        return {}
    kind, block = found
    if kind == "tdm_sampler":
        if name != "tdm":
            data.fail(f"{name} reads no tree; remove it", kind)
        return {"tree": _tree(block, features)}
    if name not in MATCHING:
        data.fail(f"{name} takes no negatives; remove it", kind)
    if in_batch:
        chosen.fail(f"cannot be given together with the {kind} of data_config; keep one", "in_batch_negative")
    group = chosen["item_tower"]["input"]
    of_items = [feature for feature in features if feature.name in groups.features.get(group, ())]
    return {"negatives": _negatives(block, group, of_items)}


def _attributes(block: Block, features: Sequence[Feature]) -> tuple[str, ...]:
    """Return the columns of the items' attributes; a member of a sequence_feature is meant by its own name too."""
    read = [column for feature in features for column in feature.columns]
    return tuple(
        name if name in read else next((column for column in read if column.endswith(f"__{name}")), name)
        for name in block["attr_fields"]
    )


def _negatives(block: Block, group: str, features: Sequence[Feature]) -> Negatives:
    if not block["attr_fields"]:
        block.fail("is required: the columns that attrs holds, in order", "attr_fields")
    path = "input_path" if block.kind == "NegativeSampler" else "item_input_path"
    by_user: dict[str, Any] = {}
    if path == "item_input_path":
        block.note("users are those of the pairs", "user_input_path")
        by_user["user_column"] = block["user_id_field"]
    for field, edges in (("positives", "pos_edge_input_path"), ("hard", "hard_neg_edge_input_path")):
        if edges in block:
            by_user[field] = EdgeTable(_table(block, edges, _PAIRS), "userid", "itemid")
    if "hard" in by_user:
        by_user["hard_count"] = block["num_hard_sample"] or 1
    return block.make(
        Negatives,
        items=Split(_table(block, path, _ITEMS), "attrs", block["attr_delimiter"], _attributes(block, features)),
        group=group,
        id_column=block["item_id_field"],
        items_id_column="id",
        weight_column="weight",
        count=block["num_sample"],
        evaluate_count=block["num_eval_sample"] or None,
        **by_user,
    )


def _tree(block: Block, features: Sequence[Feature]) -> Tree:
    """Return the tree. The attributes of a node begin with its level and its id, named in attr_fields or not."""
    block.note("it is of the search for candidates, not of training", "predict_edge_input_path")
    block.note("an evaluation draws as training does", "num_eval_sample")
    identity, given = block["item_id_field"], [name for name in block["attr_fields"] if name != "tree_level"]
    attributes = ("tree_level", identity, *(name for name in given if name != identity))
    kind = block["probability_type"]
    if kind not in _KEEP:
        block.fail(f"must be one of {', '.join(_KEEP)}, got {kind!r}", "probability_type")
    nodes = Split(_table(block, "item_input_path", _ITEMS), "attrs", block["attr_delimiter"], attributes)
    edges = _table(block, "edge_input_path", _EDGES)
    return block.make(
        Tree,
        nodes=nodes,
        features=tuple(feature.name for feature in features if set(feature.columns) <= set(attributes)),
        id_column=identity,
        nodes_id_column="id",
        counts=block["layer_num_sample"],
        ancestors=LeafAncestors(source=edges, leaf_column="src_id", ancestor_column="dst_id"),
        level_column="tree_level",
        weight_column="weight",
        keep_ratio=block["remain_ratio"],
        keep_weights=kind.lower(),
    )


def _table(block: Block, field: str, columns: tuple[str, ...]) -> Source:
    """Return a table of a sampler: Parquet files, or text files whose columns are ``columns``."""
    path, override = block[field].strip(), f"{'.'.join(map(str, block.path))}.{field}=FILES"
    if not path:
        block.fail(f"is empty; add {override}", field)
    if path.startswith(_MAXCOMPUTE):
        block.fail(f"MaxCompute tables are not read; export the table to Parquet files, and add {override}", field)
    with block.locating():
        if path.endswith((".parquet", ".pq")):
            block.note("Parquet files have columns", "field_delimiter")
            return Parquet(path)
        return Csv(path, columns=columns, header=True, separator=block["field_delimiter"] or "\t", quote=None)
