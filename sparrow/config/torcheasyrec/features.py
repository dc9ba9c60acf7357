"""Features: TorchEasyRec's id, raw, combo and sequence features as ours.

With ``fg_mode: FG_NONE`` a column has the feature's name and holds ids that are already encoded; otherwise it is the
column that ``expression`` names, and is encoded here. Hashed ids then fall into other rows than in TorchEasyRec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.vocabularies import FIELDS, dynamic_rows
from sparrow.data import ComboFeature, Feature, IdFeature, RawFeature, SequenceFeature


def features(blocks: tuple[Block, ...], data: Block, poolings: Mapping[str, str]) -> list[tuple[Feature, Block]]:
    """Return all features, each with its message. ``poolings`` holds the pooling of sequences, by feature."""
    if data["fg_mode"] == "FG_BUCKETIZE":
        data.fail("not supported: FG_NONE, FG_NORMAL and FG_DAG are", "fg_mode")
    encoded = data["fg_mode"] == "FG_NONE"
    found: list[tuple[Feature, Block]] = []
    for block in blocks:
        kind, chosen = block.choose("feature")
        for feature, of in _of_kind(kind, chosen, data, encoded, poolings):
            if any(feature.name == other.name for other, _ in found):
                of.fail(f"another feature is called '{feature.name}' already")
            found.append((feature, of))
    return found


def _of_kind(
    kind: str, block: Block, data: Block, encoded: bool, poolings: Mapping[str, str]
) -> Iterator[tuple[Feature, Block]]:
    with block.locating():
        match kind:
            case "id_feature":
                for field in ("sequence_length", "sequence_delim"):
                    if field in block:
                        block.fail("belongs to a sequence_id_feature", field)
                yield _id(block, data, encoded), block
            case "raw_feature":
                yield _raw(block, data, encoded), block
            case "combo_feature":
                yield _combo(block, encoded), block
            case "sequence_id_feature":
                if "sequence_length" not in block:
                    block.fail("is required", "sequence_length")
                name = block["feature_name"]
                yield _sequence(block, name, name if encoded else _column(block), block, poolings, encoded), block
            case _:
                for entry in block["features"]:
                    _, chosen = entry.choose("feature")
                    prefix = f"{block['sequence_name']}__"
                    name = prefix + chosen["feature_name"]
                    column = name if encoded else prefix + _column(chosen)
                    with chosen.locating():
                        yield _sequence(chosen, name, column, block, poolings, encoded), chosen


def _id(block: Block, data: Block, encoded: bool) -> IdFeature:
    return IdFeature(
        block["feature_name"],
        # One id a row needs no pooling, and can share the table of features with any pooling.
        pooling=None if block["value_dim"] == 1 and "pooling" not in block else block["pooling"],
        separator=data["fg_encoded_multival_sep"] if encoded else block["separator"],
        weight_separator=":" if block["weighted"] else None,
        **_ids(block, block["feature_name"], encoded),
    )


def _sequence(
    block: Block, name: str, column: str, sequence: Block, poolings: Mapping[str, str], encoded: bool
) -> SequenceFeature:
    """Return the ids of a sequence. Where a row holds more than ``sequence_length``, the first ones are kept."""
    if block["weighted"]:
        block.fail("not supported: the ids of a sequence have no weights", "weighted")
    return SequenceFeature(
        name,
        max_length=sequence["sequence_length"],
        separator=sequence["sequence_delim"],
        keep="first",
        pooling=poolings.get(name),
        **{**_ids(block, name, encoded), "column": column},
    )


_SIZES: Final = ("num_buckets", "hash_bucket_size", "vocab_list", "vocab_file")


def _ids(block: Block, name: str, encoded: bool) -> dict[str, Any]:
    """Return the fields that id features and sequences share: the column, and how its entries become rows."""
    value_dim = block["value_dim"]
    if value_dim not in (None, 0, 1):
        block.fail(f"not supported: ids may be one or any number a row (1 or 0), got {value_dim}", "value_dim")
    sizes = [field for field in (*_SIZES, *FIELDS) if field in block]
    if len(sizes) != 1:
        given = ", ".join(sizes) or "none"
        block.fail(f"give one of {', '.join((*_SIZES, FIELDS[0]))} and {FIELDS[1]}, got {given}")
    field = sizes[0]
    if encoded and field.startswith("vocab"):
        block.fail("not supported with fg_mode FG_NONE, where ids are already numbers; use num_buckets", field)
    ours = {"vocab_list": "vocabulary", "vocab_file": "vocabulary"}.get(field, field)
    fields: dict[str, Any] = {"num_buckets" if encoded else ours: block[field]}
    if field in FIELDS:
        fields = {"dynamic": dynamic_rows(block), "as_integer": encoded}
    return {
        **fields,
        "embedding_dim": block["embedding_dim"],
        "column": name if encoded else _column(block),
        "default": _default(block, encoded),
        "table": block["embedding_name"],
    }


def _raw(block: Block, data: Block, encoded: bool) -> Feature:
    name = block["feature_name"]
    separator = data["fg_encoded_multival_sep"] if encoded else block["separator"]
    table = {"embedding_dim": block["embedding_dim"], "table": block["embedding_name"]}
    column = name if encoded else _column(block)
    if block["boundaries"] and encoded:  # the column holds the buckets
        buckets = len(block["boundaries"]) + 1
        return IdFeature(name, num_buckets=buckets, pooling=block["pooling"], separator=separator, **table)
    return RawFeature(
        name,
        column=column,
        dim=block["value_dim"],
        separator=separator,
        missing=_number(block, "fg_encoded_default_value" if encoded else "default_value"),
        boundaries=block["boundaries"] or None,
        **table,
        **_normalizer(block, encoded),
    )


def _combo(block: Block, encoded: bool) -> Feature:
    name = block["feature_name"]
    size, dim, table = block["hash_bucket_size"], block["embedding_dim"], block["embedding_name"]
    if encoded:
        return IdFeature(name, num_buckets=size, embedding_dim=dim, table=table, pooling=block["pooling"])
    columns = tuple(expression.rpartition(":")[2] for expression in block["expression"])
    if block["default_value"]:
        block.fail("not supported: a missing value is crossed as one more value; remove it", "default_value")
    return ComboFeature(name, cross=columns, hash_bucket_size=size, embedding_dim=dim, table=table)


def _column(block: Block) -> str:
    """Return the column of an expression: ``user:age`` is the column ``age`` of the user's side."""
    if "expression" not in block:
        block.fail("is required: the column that the feature is made from", "expression")
    column: str = block["expression"].rpartition(":")[2]
    return column


def _default(block: Block, encoded: bool) -> int | str | None:
    """Return the id that replaces a missing one: a number where ids are numbers."""
    field = "fg_encoded_default_value" if encoded else "default_value"
    given: str | None = block[field]
    if not given:
        return None
    if not encoded and "num_buckets" not in block:
        return given
    try:
        return int(given)
    except ValueError:
        block.fail(f"must be an integer in quotes, got {given!r}", field)


def _number(block: Block, field: str) -> float | None:
    written = block[field]
    if written is None or written == "":
        return None if field == "default_value" else 0.0
    try:
        return float(written)
    except ValueError:
        block.fail(f"must be a number in quotes, got {written!r}", field)


_NORMALIZERS: Final[Mapping[str, tuple[str, ...]]] = {
    "zscore": ("mean", "standard_deviation"),
    "minmax": ("min", "max"),
    "log10": ("threshold", "default"),
}


def _normalizer(block: Block, encoded: bool) -> dict[str, Any]:
    """Return the fields of a normalizer such as ``method=zscore,mean=1.5,standard_deviation=2.0``."""
    written: str | None = block["normalizer"]
    if written is None or encoded:  # an encoded column is normalized already
        return {}
    given = dict(part.strip().partition("=")[::2] for part in written.split(","))
    method = given.pop("method", "")
    if method not in _NORMALIZERS:
        known = (f"method={name},{names[0]}=..,{names[1]}=.." for name, names in _NORMALIZERS.items())
        block.fail(f"not supported: {written!r}; write {' or '.join(known)}", "normalizer")
    names = _NORMALIZERS[method]
    if given.keys() != set(names):
        block.fail(f"{method} takes {' and '.join(names)}, got {written!r}", "normalizer")
    try:
        first, second = (float(given[name]) for name in names)
    except ValueError:
        block.fail(f"{' and '.join(names)} must be numbers, got {written!r}", "normalizer")
    match method:
        case "zscore":
            return {"mean": first, "std": second}
        case "minmax":
            if first >= second:
                block.fail(f"min must be below max, got {written!r}", "normalizer")
            return {"mean": first, "std": second - first}
    return {"log10_above": first, "log10_default": second}
