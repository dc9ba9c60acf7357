"""Samplers: TorchEasyRec's negative samplers and its sampler of a tree's nodes as ours.

A table of items holds ``id``, ``weight`` and ``attrs``, the values of the items' columns joined by a delimiter; a table
of pairs holds ``userid`` and ``itemid``, that of a tree ``src_id`` and ``dst_id``. As a text file a table is separated
by tabs, and its first line has names and types, such as ``id:int64<tab>weight:float<tab>attrs:string``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sparrow.config.sections.data import LeafAncestors, Negatives, Tree, UserItems
from sparrow.config.torcheasyrec.architectures import MATCHING
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.groups import Groups
from sparrow.data import Csv, Feature, Parquet, Source, Split

_ITEMS: Final = ("id", "weight", "attrs")
_PAIRS: Final = ("userid", "itemid", "weight")
_EDGES: Final = ("src_id", "dst_id", "weight")
_KEEP: Final[dict[str, Any]] = {"UNIFORM": "uniform", "ARITHMETIC": "arithmetic", "RECIPROCAL": "reciprocal"}


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
            by_user[field] = UserItems(source=_table(block, edges, _PAIRS), user_column="userid", item_column="itemid")
    if "hard" in by_user:
        by_user["hard_count"] = block["num_hard_sample"] or 1
    with block.locating():
        return Negatives(
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
    with block.locating():
        return Tree(
            nodes=nodes,
            features=tuple(feature.name for feature in features if set(feature.columns) <= set(attributes)),
            id_column=identity,
            nodes_id_column="id",
            counts=block["layer_num_sample"],
            ancestors=LeafAncestors(source=edges, leaf_column="src_id", ancestor_column="dst_id"),
            level_column="tree_level",
            weight_column="weight",
            keep_ratio=block["remain_ratio"],
            keep_weights=_KEEP[kind],
        )


def _table(block: Block, field: str, columns: tuple[str, ...]) -> Source:
    """Return a table of a sampler: Parquet files, or text files whose columns are ``columns``."""
    path, override = block[field].strip(), f"{'.'.join(map(str, block.path))}.{field}=FILES"
    if not path:
        block.fail(f"is empty; add {override}", field)
    if path.startswith("odps://"):
        block.fail(f"MaxCompute tables are not read; export the table to Parquet files, and add {override}", field)
    with block.locating():
        if path.endswith((".parquet", ".pq")):
            block.note("Parquet files have columns", "field_delimiter")
            return Parquet(path)
        return Csv(path, columns=columns, header=True, separator=block["field_delimiter"] or "\t", quote=None)
