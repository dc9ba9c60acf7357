"""Features of encoded columns: a column has the feature's name, and holds ids or numbers (``fg_mode: FG_NONE``).

With ``FG_BUCKETIZE`` it holds the values before the last step: words to hash or look up, numbers to cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.entries import Entry
from sparrow.config.torcheasyrec.tables import FIELDS, dynamic_rows, has_ids, rows, size_field
from sparrow.data import BagSequenceFeature, Feature, IdFeature, RawFeature, RawSequenceFeature, SequenceFeature

if TYPE_CHECKING:
    from sparrow.config.torcheasyrec.features import Context

_OF_RAW: Final = (
    *("expression", "default_value", "separator", "normalizer", "variables", "fill_missing", "map", "key", "combiner"),
    "value_map",
    *("need_key", "need_discrete", "value_separator", "nested_map", "pkey", "skey", "show_pkey", "show_skey"),
    *(
        "query",
        "title",
        "method",
        "document",
        "kv_delimiter",
        "sequence_fields",
        "stub_type",
        "default_bucketize_value",
    ),
)
"""Fields of columns that are not encoded yet."""

_ALWAYS_IDS: Final = ("IdFeature", "ComboFeature", "BoolMaskFeature")
"""Features that have ids, and need a number of rows."""


def encoded_feature(entry: Entry, context: Context) -> Feature:
    """Return the feature of an encoded column."""
    block = entry.block
    kept = ("default_value", "default_bucketize_value") if context.to_buckets else ()
    for field in _OF_RAW:
        if field not in kept:
            block.note("with fg_mode FG_NONE or FG_BUCKETIZE the column is encoded already", field)
    if entry.kind in ("tokenize_feature", "custom_feature"):
        block.fail("not supported with fg_mode FG_NONE or FG_BUCKETIZE; make it an id_feature or a raw_feature")
    sparse, cut = (_words(block), _cut(block)) if context.to_buckets else (_sparse(block), {})
    is_sequence = entry.sequence is not None
    if sparse is not None and entry.has_bags:
        element = IdFeature(
            entry.name, column=entry.name, separator=context.separator, pooling=block["pooling"], **sparse
        )
        fill = element.default is not None
        return BagSequenceFeature(entry.name, element=element, fill=fill, **_sequence_fields(entry, context, False))
    fields = _sequence_fields(entry, context, sparse is not None)
    if sparse is not None:
        kind: Any = SequenceFeature if is_sequence else IdFeature
        return kind(entry.name, column=entry.name, **sparse, **fields)  # type: ignore[no-any-return]
    for field in () if cut else ("embedding_dim", "embedding_name", "pooling"):
        block.note("the feature has no boundaries, and so no table", field)
    number = _default(block, float)
    if is_sequence:
        return RawSequenceFeature(
            entry.name,
            dim=block.get("value_dim") or 1,
            default=number,
            missing=number if number is not None else 0.0,
            **{**fields, "value_separator": context.separator},
            **cut,
        )
    missing = 0.0 if number is None else number
    return RawFeature(entry.name, column=entry.name, dim=block.get("value_dim") or 1, missing=missing, **fields, **cut)


def _sequence_fields(entry: Entry, context: Context, are_ids: bool) -> dict[str, Any]:
    block = entry.block
    if entry.sequence is None:
        for field in ("sequence_length", "sequence_delim"):
            block.note("the feature is no sequence", field)
        return _pooling(entry, context) if are_ids else {"separator": context.separator}
    made = {"max_length": context.max_length(entry), "separator": entry.sequence["sequence_delim"], "keep": "first"}
    if entry.kind == "id_feature" and are_ids:
        block.note("an element is one id, so there is nothing to pool", "pooling")
        made |= {"pooling": context.poolings.get(entry.name), "value_separator": context.separator}
    return made


def _pooling(entry: Entry, context: Context) -> dict[str, Any]:
    block = entry.block
    one = entry.kind == "id_feature" and block["value_dim"] == 1 and "pooling" not in block
    made: dict[str, Any] = {"separator": context.separator, "pooling": None if one else block["pooling"]}
    if entry.kind == "id_feature":
        made["weight_separator"] = ":" if block["weighted"] else None
    return made


def _sparse(block: Block) -> dict[str, Any] | None:
    """Return the rows of a column of ids; None: it holds numbers."""
    if "boundaries" not in block and block.kind not in _ALWAYS_IDS and not has_ids(block):
        return None
    table = {"embedding_dim": block["embedding_dim"], "table": block["embedding_name"], "default": _default(block, int)}
    if "boundaries" in block:  # the column holds the buckets
        return {"num_buckets": len(block["boundaries"]) + 1, **table}
    field = size_field(block)
    if field in FIELDS:
        return {"dynamic": dynamic_rows(block), "as_integer": True, **table}
    return {"num_buckets": _rows(block, field), **table}


def _words(block: Block) -> dict[str, Any] | None:
    """Return the rows of a column of words that are not ids yet; None: it holds numbers."""
    if block.kind in _ALWAYS_IDS or has_ids(block):
        block.note("with fg_mode FG_BUCKETIZE a missing value has its default_value", "fg_encoded_default_value")
        block.note("the feature has ids", "boundaries")
        return rows(block)
    block.note("with fg_mode FG_BUCKETIZE missing numbers have been filled", "default_value")
    return None


def _cut(block: Block) -> dict[str, Any]:
    """Return the buckets of a column of numbers; empty: they stay numbers."""
    boundaries = block.get("boundaries")
    if not boundaries or has_ids(block):
        return {}
    several = (block.get("value_dim") or 1) > 1
    if not several:
        block.note("a row has one bucket, so there is nothing to pool", "pooling")
    table = {"boundaries": boundaries, "embedding_dim": block["embedding_dim"], "table": block["embedding_name"]}
    return table | ({"pooling": block["pooling"]} if several else {})


def _rows(block: Block, field: str) -> int:
    """Return the rows of the table; those of a vocabulary are two more, of missing and of unknown values."""
    own: int = 2 * ("default_bucketize_value" not in block)
    match field:
        case "vocab_list":
            return len(block[field]) + own
        case "vocab_dict":
            return 1 + max(int(entry["value"]) for entry in block[field])
        case "vocab_file":
            try:
                lines = Path(block[field]).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                block.fail(f"cannot be read: {getattr(error, 'strerror', error)}", field)
            return len(lines)
    count: int = block[field]
    return count


def _default(block: Block, kind: type) -> Any:
    """Return the value of a missing row; None: it stays empty."""
    given = block["fg_encoded_default_value"]
    if not given:
        return None
    try:
        return kind(given)
    except ValueError:
        number = "an integer" if kind is int else "a number"
        block.fail(f"must be {number} in quotes, got {given!r}", "fg_encoded_default_value")
