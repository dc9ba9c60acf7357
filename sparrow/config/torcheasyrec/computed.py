"""Features with the columns that their inputs name; those computed from several columns, such as lookup and match."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.layers import record
from sparrow.config.torcheasyrec.tables import has_ids
from sparrow.data import computed
from sparrow.registry import nearest

_ONE_INPUT: Final = ("id_feature", "raw_feature", "combine_feature", "tokenize_feature")
SIDES: Final = ("user", "item", "context")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One feature of a file.

    Attributes:
      name: its name; that of a sequence_feature's member begins with the name of the sequence.
      kind: such as "id_feature".
      block: its message.
      sequence: the message with the length and the separator, where it is a sequence.
      prefix: the beginning of the names of its columns, where it is a member of a sequence_feature.
      sequences: the columns of its inputs that are sequences, as far as these were read.
    """

    name: str
    kind: str
    block: Block
    sequence: Block | None = None
    prefix: str = ""
    sequences: dict[str, None] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def has_bags(self) -> bool:
        """Whether an element of the sequence may have several ids."""
        kinds = ("tokenize_feature", "bool_mask_feature")
        is_several = self.kind == "id_feature" and self.block["value_dim"] not in (None, 1)
        return self.sequence is not None and (is_several or self.kind in kinds)

    def as_single(self) -> Entry:
        """Return the feature as one of a single element per row, such as the item of two towers."""
        if self.sequence is not None and self.sequence is not self.block:
            self.sequence.note("a row has one item: write a row for each", "sequence_length", "sequence_delim")
        return dataclasses.replace(self, sequence=None)


def entries(blocks: Sequence[Block], grouped: Collection[str] = ()) -> list[Entry]:
    """Return all features; two of one name are a problem.

    ``grouped``: the names in the groups of the model. Members of sequences are named after them: ``clicks__item``,
    or ``clicks_item``, which TorchEasyRec writes with USE_RTP=1 in its environment.
    """
    found: dict[str, Entry] = {}
    for block in blocks:
        with block.findings.collecting():
            for entry in _of(block, grouped):
                if entry.name in found:
                    entry.block.fail(f"another feature is called '{entry.name}' already")
                found[entry.name] = entry
    return list(found.values())


def _of(block: Block, grouped: Collection[str]) -> Iterator[Entry]:
    if block.broken and block.chosen("feature") is None:
        return
    kind, chosen = block.choose("feature")
    if kind != "sequence_feature":
        if "feature_name" not in chosen:
            return
        is_sequence = kind.startswith("sequence_")
        yield Entry(chosen["feature_name"], kind.removeprefix("sequence_"), chosen, chosen if is_sequence else None)
        return
    found = [member.chosen("feature") for member in chosen["features"]]
    members = [(kind, inner) for kind, inner in filter(None, found) if "feature_name" in inner]
    prefix, short = f"{chosen['sequence_name']}__", f"{chosen['sequence_name']}_"
    names = [inner["feature_name"] for _, inner in members]
    if any(short + name in grouped for name in names) and not any(prefix + name in grouped for name in names):
        prefix = short
    for inner_kind, inner in members:
        yield Entry(prefix + inner["feature_name"], inner_kind, inner, chosen, prefix)


def column(entry: Entry, field: str, text: str | None) -> str:
    """Return the column of an input such as ``user:age``: the column ``age``."""
    if not text:
        entry.block.fail("is required: the column that the feature is made from", field)
    side, _, name = text.rpartition(":")
    chosen = entry.block["sequence_fields"]
    # Without sequence_fields, the inputs of a kind with several are sequences where they are the item's.
    if entry.sequence is None or not (name in chosen if chosen else entry.kind in _ONE_INPUT or side == "item"):
        return name
    # Columns that hold sequences of a sequence_feature begin with its name.
    entry.sequences[entry.prefix + name] = None
    return entry.prefix + name


Entries = Mapping[str, Entry]


def input_of(entry: Entry, others: Entries, field: str = "expression", written: str | None = None) -> computed.Column:
    """Return the column of an input such as ``user:age``, ``feature:bucket`` or ``const:7``."""
    text = entry.block[field] if written is None else written
    side, colon, name = (text or "").partition(":")
    if not colon or side in SIDES:
        return column(entry, field, text)
    if side == "const":
        return computed.Constant(_constant(name))
    if side == "feature":
        return _of_feature(entry, others, field, name)
    entry.block.fail(f"must be a column with its side, such as item:price, got {text!r}", field)


def _made(entry: Entry, others: Entries, kind: Any, *inputs: str, **fields: Any) -> computed.Computed:
    """Return the record of a message with the same fields, whose ``inputs`` name columns; ``fields``: its others."""
    columns = {field: input_of(entry, others, field) for field in inputs}
    made: computed.Computed = record(entry.block, kind, **columns, **fields)
    return made


def _listed(entry: Entry, others: Entries) -> tuple[computed.Column, ...]:
    """Return the columns of ``expression``, which has several."""
    return tuple(input_of(entry, others, "expression", written) for written in entry.block["expression"])


def source_fields(entry: Entry, others: Entries) -> dict[str, Any]:
    """Return the field ``column`` or ``compute`` of a feature of one input."""
    found = input_of(entry, others)
    return {"column": found} if isinstance(found, str) else {"compute": found}


def each_element(entry: Entry, made: computed.Computed) -> computed.Computed:
    """Return a column that is computed for each element of the sequences among its inputs."""
    block, sequence = entry.block, entry.sequence
    assert sequence is not None
    sequences = [name for name in made.columns if name in entry.sequences]
    if not sequences:
        block.fail("none of its columns is a sequence; name one in sequence_fields, or use a feature of single values")
    return block.make(computed.Each, made, sequences=tuple(sequences), separator=sequence["sequence_delim"])


def _constant(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _of_feature(entry: Entry, others: Entries, field: str, name: str) -> computed.Column:
    """Return the values of another feature: its column, its buckets, or what it computes."""
    other = others.get(name)
    if other is None:
        entry.block.fail(f"there is no feature '{name}': {nearest(name, others)}", field)
    if other.sequence is not None or other.block.get("normalizer"):
        what = "is a sequence" if other.sequence is not None else "has a normalizer"
        entry.block.fail(f"not supported: the feature '{name}' {what}; make its values a column, and read that", field)
    if other.kind in COMPUTED:
        found: computed.Column = COMPUTED[other.kind](other, others)
    elif other.kind in ("id_feature", "raw_feature"):
        found = input_of(other, others)
    else:
        entry.block.fail(f"not supported: the feature '{name}' is a {other.kind}; read its columns instead", field)
    boundaries = other.block.get("boundaries")
    return computed.Bucketize(found, boundaries=tuple(boundaries)) if boundaries else found


def _combiner(block: Block) -> Any:
    """Return the combiner of the values found; None where they are ids."""
    several = has_ids(block) or block["need_discrete"] or (block.get("value_dim") or 1) > 1
    if several:
        block.note("values that are ids, or several numbers, are not combined", "combiner")
        return None
    return block["combiner"].lower() or None if "combiner" in block else "sum"


def _lookup(entry: Entry, others: Entries) -> computed.Computed:
    block = entry.block
    combiner = _combiner(block)
    several = (block["value_dim"] or 1) > 1
    if not several:
        block.note("a value is one number", "value_separator")
    if combiner is not None:
        block.note("values that are combined have no key", "need_key")
    separators = {"map_separator": block["separator"], "value_separator": block["value_separator"] if several else None}
    with_key = block["need_key"] and combiner is None
    return _made(entry, others, computed.Lookup, "map", "key", combiner=combiner, with_key=with_key, **separators)


def _match(entry: Entry, others: Entries) -> computed.Computed:
    block = entry.block
    is_listed = has_ids(block) or block["need_discrete"]
    if not is_listed:
        block.note("values that are combined have no key", "show_pkey", "show_skey")
    # "ALL" for a key: all keys match.
    options = {key: None if block[key] == "ALL" else input_of(entry, others, key) for key in ("pkey", "skey")}
    options |= {field: is_listed and block[field] for field in ("show_pkey", "show_skey")}
    return _made(entry, others, computed.Match, "nested_map", combiner=None if is_listed else "sum", **options)


def _expr(entry: Entry, others: Entries) -> computed.Computed:
    block = entry.block
    variables = {}
    for written in block["variables"]:
        found, name = input_of(entry, others, "variables", written), written.rpartition(":")[2]
        if found != name:
            variables[name] = found
    return _made(entry, others, computed.Expr, variables=variables, fill=block["fill_missing"])


def _combine(entry: Entry, others: Entries) -> computed.Computed:
    values = {each["key"]: each["value"] for each in entry.block["value_map"]} or None
    fields = {"column": input_of(entry, others), "values": values, "combiner": entry.block["combiner"].lower()}
    return _made(entry, others, computed.Combine, **fields)


def _bool_mask(entry: Entry, others: Entries) -> computed.Computed:
    inputs = _listed(entry, others)
    if len(inputs) != 2:
        entry.block.fail(f"takes two columns, the values and their marks, got {len(inputs)}", "expression")
    return computed.BoolMask(*inputs, separator=entry.block["separator"])


def _custom(entry: Entry, others: Entries) -> computed.Computed:
    """Return the edit distance, or a function of your own with the operator's name."""
    block = entry.block
    block.note("the code is a Python function of operator_name, which --import FILE registers", "operator_lib_file")
    block.note("features are computed row by row", "is_op_thread_safe")
    arguments, given = _listed(entry, others), block["operator_params"]
    kinds = ("string_value", "number_value", "bool_value")
    options: dict[str, Any] = {}
    for each in () if given is None else given["fields"]:
        options[each["key"]] = next((each["value"][kind] for kind in kinds if kind in each["value"]), None)
    if block["operator_name"] != "EditDistance":
        return computed.Custom(block["operator_name"], arguments, options=options)
    if len(arguments) != 2:
        block.fail(f"EditDistance compares two columns, got {len(arguments)}", "expression")
    if options.pop("encoding", "utf-8") not in ("utf-8", "utf8") or options:
        block.fail("EditDistance takes the encoding utf-8 alone", "operator_params")
    return computed.EditDistance(*arguments)


COMPUTED: Final[Mapping[str, Callable[[Entry, Entries], computed.Computed]]] = {
    "lookup_feature": _lookup,
    "match_feature": _match,
    "expr_feature": _expr,
    "combine_feature": _combine,
    "bool_mask_feature": _bool_mask,
    "overlap_feature": lambda entry, others: _made(entry, others, computed.Overlap, "query", "title"),
    "kv_dot_product": lambda entry, others: _made(entry, others, computed.KvDotProduct, "query", "document"),
    "custom_feature": _custom,
}
"""The features that are computed, by the name of their message."""
