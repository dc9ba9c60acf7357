"""Features that are computed from several columns: TorchEasyRec's lookup, match, expr and the like as ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.entries import SIDES, Entry, column
from sparrow.config.torcheasyrec.tables import has_ids
from sparrow.data.computed import (
    BoolMask,
    Bucketize,
    Column,
    Combine,
    Computed,
    Constant,
    Custom,
    Each,
    EditDistance,
    Expr,
    KvDotProduct,
    Lookup,
    Match,
    Overlap,
)
from sparrow.registry import nearest

Entries = Mapping[str, Entry]


def input_of(entry: Entry, others: Entries, field: str = "expression", written: str | None = None) -> Column:
    """Return the column of an input such as ``user:age``, ``feature:bucket`` or ``const:7``."""
    text = entry.block[field] if written is None else written
    side, colon, name = (text or "").partition(":")
    if not colon or side in SIDES:
        return column(entry, field, text)
    if side == "const":
        return Constant(_constant(name))
    if side == "feature":
        return _of_feature(entry, others, field, name)
    entry.block.fail(f"must be a column with its side, such as item:price, got {text!r}", field)


def _inputs(entry: Entry, others: Entries, *fields: str) -> tuple[Column, ...]:
    return tuple(input_of(entry, others, field) for field in fields)


def _listed(entry: Entry, others: Entries) -> tuple[Column, ...]:
    """Return the columns of ``expression``, which has several."""
    return tuple(input_of(entry, others, "expression", written) for written in entry.block["expression"])


def source_fields(entry: Entry, others: Entries) -> dict[str, Any]:
    """Return the field ``column`` or ``compute`` of a feature of one input."""
    found = input_of(entry, others)
    return {"column": found} if isinstance(found, str) else {"compute": found}


def each_element(entry: Entry, made: Computed) -> Computed:
    """Return a column that is computed for each element of the sequences among its inputs."""
    block, sequence = entry.block, entry.sequence
    assert sequence is not None
    sequences = [name for name in made.columns if name in entry.sequences]
    if not sequences:
        block.fail("none of its columns is a sequence; name one in sequence_fields, or use a feature of single values")
    return block.make(Each, made, sequences=tuple(sequences), separator=sequence["sequence_delim"])


def _constant(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _of_feature(entry: Entry, others: Entries, field: str, name: str) -> Column:
    """Return the values of another feature: its column, its buckets, or what it computes."""
    other = others.get(name)
    if other is None:
        entry.block.fail(f"there is no feature '{name}': {nearest(name, others)}", field)
    if other.sequence is not None or other.block.get("normalizer"):
        what = "is a sequence" if other.sequence is not None else "has a normalizer"
        entry.block.fail(f"not supported: the feature '{name}' {what}; make its values a column, and read that", field)
    if other.kind in COMPUTED:
        found: Column = COMPUTED[other.kind](other, others)
    elif other.kind in ("id_feature", "raw_feature"):
        found = input_of(other, others)
    else:
        entry.block.fail(f"not supported: the feature '{name}' is a {other.kind}; read its columns instead", field)
    boundaries = other.block.get("boundaries")
    return Bucketize(found, boundaries=tuple(boundaries)) if boundaries else found


def _combiner(block: Block) -> Any:
    """Return the combiner of the values found; None where they are ids."""
    several = has_ids(block) or block["need_discrete"] or (block.get("value_dim") or 1) > 1
    if several:
        block.note("values that are ids, or several numbers, are not combined", "combiner")
        return None
    return block["combiner"].lower() or None if "combiner" in block else "sum"


def _lookup(entry: Entry, others: Entries) -> Computed:
    block = entry.block
    combiner = _combiner(block)
    several = (block["value_dim"] or 1) > 1
    if not several:
        block.note("a value is one number", "value_separator")
    if combiner is not None:
        block.note("values that are combined have no key", "need_key")
    return Lookup(
        *_inputs(entry, others, "map", "key"),
        separator=block["separator"],
        map_separator=block["separator"],
        value_separator=block["value_separator"] if several else None,
        combiner=combiner,
        with_key=block["need_key"] and combiner is None,
    )


def _match(entry: Entry, others: Entries) -> Computed:
    block = entry.block
    is_listed = has_ids(block) or block["need_discrete"]
    if not is_listed:
        block.note("values that are combined have no key", "show_pkey", "show_skey")
    # "ALL" for a key: all keys match.
    keys = {key: None if block[key] == "ALL" else input_of(entry, others, key) for key in ("pkey", "skey")}
    return Match(
        input_of(entry, others, "nested_map"),
        **keys,
        separator=block["separator"],
        combiner=None if is_listed else "sum",
        show_pkey=is_listed and block["show_pkey"],
        show_skey=is_listed and block["show_skey"],
    )


def _expr(entry: Entry, others: Entries) -> Computed:
    block = entry.block
    variables = {}
    for written in block["variables"]:
        found, name = input_of(entry, others, "variables", written), written.rpartition(":")[2]
        if found != name:
            variables[name] = found
    return Expr(block["expression"], variables=variables, separator=block["separator"], fill=block["fill_missing"])


def _combine(entry: Entry, others: Entries) -> Computed:
    block = entry.block
    return Combine(
        input_of(entry, others),
        values={each["key"]: each["value"] for each in block["value_map"]} or None,
        combiner=block["combiner"].lower(),
        separator=block["separator"],
    )


def _bool_mask(entry: Entry, others: Entries) -> Computed:
    inputs = _listed(entry, others)
    if len(inputs) != 2:
        entry.block.fail(f"takes two columns, the values and their marks, got {len(inputs)}", "expression")
    return BoolMask(*inputs, separator=entry.block["separator"])


def _overlap(entry: Entry, others: Entries) -> Computed:
    columns = _inputs(entry, others, "query", "title")
    return Overlap(*columns, method=entry.block["method"], separator=entry.block["separator"])


def _kv_dot_product(entry: Entry, others: Entries) -> Computed:
    separators = {"separator": entry.block["separator"], "pair_separator": entry.block["kv_delimiter"]}
    return KvDotProduct(*_inputs(entry, others, "query", "document"), **separators)


def _custom(entry: Entry, others: Entries) -> Computed:
    """Return the edit distance, or a function of your own with the operator's name."""
    block = entry.block
    block.note("the code is a Python function of operator_name, which --import FILE registers", "operator_lib_file")
    block.note("features are computed row by row", "is_op_thread_safe")
    arguments, given = _listed(entry, others), block["operator_params"]
    options = {} if given is None else {each["key"]: _option(each["value"]) for each in given["fields"]}
    if block["operator_name"] != "EditDistance":
        return Custom(block["operator_name"], arguments, options=options)
    if len(arguments) != 2:
        block.fail(f"EditDistance compares two columns, got {len(arguments)}", "expression")
    if options.pop("encoding", "utf-8") not in ("utf-8", "utf8") or options:
        block.fail("EditDistance takes the encoding utf-8 alone", "operator_params")
    return EditDistance(*arguments)


def _option(value: Block) -> Any:
    kinds = ("string_value", "number_value", "bool_value")
    return next((value[kind] for kind in kinds if kind in value), None)


COMPUTED: Final[Mapping[str, Callable[[Entry, Entries], Computed]]] = {
    "lookup_feature": _lookup,
    "match_feature": _match,
    "expr_feature": _expr,
    "combine_feature": _combine,
    "bool_mask_feature": _bool_mask,
    "overlap_feature": _overlap,
    "kv_dot_product": _kv_dot_product,
    "custom_feature": _custom,
}
"""The features that are computed, by the name of their message."""
