"""Features of encoded columns, and numbers as inputs: normalizers, buckets, embeddings.

An encoded column has the feature's name, and holds ids or numbers (``fg_mode: FG_NONE``). With ``FG_BUCKETIZE`` it
holds the values before the last step: words to hash or look up, numbers to cut. A normalizer is written
``method=zscore,mean=1.5,standard_deviation=2.0``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sparrow import data
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.computed import Entry
from sparrow.config.torcheasyrec.layers import record
from sparrow.config.torcheasyrec.tables import FIELDS, dynamic_rows, has_ids, rows, size_field, table_of

NO_TABLE: Final = "the feature has no boundaries, and so no table"
_NORMALIZERS: Final[Mapping[str, tuple[str, ...]]] = {
    "zscore": ("mean", "standard_deviation"),
    "minmax": ("min", "max"),
    "log10": ("threshold", "default"),
}


def normalizer(block: Block) -> dict[str, Any]:
    """Return the fields of the message's normalizer, where it has one."""
    written: str | None = block["normalizer"]
    if not written:
        return {}
    if written.replace(" ", "").startswith("method=expression,expr="):
        return {"expression": written.partition("expr=")[2].strip()}
    given = dict(part.strip().partition("=")[::2] for part in written.split(","))
    method = given.pop("method", "")
    if method not in _NORMALIZERS:
        known = [f"method={name},{names[0]}=..,{names[1]}=.." for name, names in _NORMALIZERS.items()]
        known.append("method=expression,expr=..")
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


def dense_fields(block: Block) -> dict[str, Any]:
    """Return how numbers become an input: cut into buckets, or transformed."""
    boundaries = block["boundaries"] or None
    learned = block.chosen("dense_emb")
    if learned is not None:
        if boundaries is not None:
            block.fail(f"cannot be given together with {learned[0]}; keep one", "boundaries")
        block.note("the embedding is a function of the number, and has no table", "embedding_name", "pooling")
        embedding = record(learned[1], data.MLPEmbedding if learned[0] == "mlp" else data.AutoDis)
        return {"embedding": embedding, "embedding_dim": block["embedding_dim"], **normalizer(block)}
    if boundaries is None:
        block.note(NO_TABLE, "embedding_dim", "embedding_name", "pooling")
        return normalizer(block)
    return {**normalizer(block), **buckets(block)}


def buckets(block: Block) -> dict[str, Any]:
    """Return the fields of numbers that are cut into buckets, with a row each; several are pooled."""
    table = {"boundaries": block["boundaries"], **table_of(block)}
    if (block.get("value_dim") or 1) > 1:
        return {**table, "pooling": block["pooling"]}
    block.note("a row has one bucket, so there is nothing to pool", "pooling")
    return table


_OF_RAW: Final = (
    *("expression", "default_value", "separator", "normalizer", "variables", "fill_missing", "map", "key", "combiner"),
    *("value_map", "need_key", "need_discrete", "value_separator", "nested_map", "pkey", "skey", "show_pkey"),
    *("show_skey", "query", "title", "method", "document", "kv_delimiter", "sequence_fields", "stub_type"),
    "default_bucketize_value",
)
"""Fields of columns that are not encoded yet."""

_ALWAYS_IDS: Final = ("IdFeature", "ComboFeature", "BoolMaskFeature")
"""Features that have ids, and need a number of rows."""


@dataclasses.dataclass(frozen=True)
class Context:
    """The rest of the file, as far as features depend on it.

    Attributes:
      entries: all features, by name.
      poolings: the pooling of each sequence that its lookup pools.
      separator: between the values of an encoded column.
      longest: the most elements of a sequence by the model, for sequences without a length; None: it has no limit.
      to_buckets: whether encoded columns hold words and numbers that are still to become ids (FG_BUCKETIZE).
    """

    entries: Mapping[str, Entry]
    poolings: Mapping[str, Any]
    separator: str
    longest: int | None = None
    to_buckets: bool = False

    def sequence(self, entry: Entry) -> dict[str, Any]:
        """Return the fields of a sequence: its own length, or the model's; the first elements of longer rows stay."""
        assert entry.sequence is not None
        max_length = entry.sequence["sequence_length"] or self.longest
        if not max_length:
            entry.block.fail("is required: the most elements of a sequence, at least 1", "sequence_length")
        if entry.sequence is not entry.block:
            entry.block.note("the sequence_feature around it has it", "sequence_length", "sequence_delim")
        return {"max_length": max_length, "separator": entry.sequence["sequence_delim"], "keep": "first"}


def encoded_feature(entry: Entry, context: Context) -> data.Feature:
    """Return the feature of an encoded column."""
    block = entry.block
    kept = ("default_value", "default_bucketize_value") if context.to_buckets else ()
    unread = (field for field in _OF_RAW if field not in kept)
    block.note("with fg_mode FG_NONE or FG_BUCKETIZE the column is encoded already", *unread)
    if entry.kind in ("tokenize_feature", "custom_feature"):
        block.fail("not supported with fg_mode FG_NONE or FG_BUCKETIZE; make it an id_feature or a raw_feature")
    ids = _words(block) if context.to_buckets else _sparse(block)
    if ids is not None:
        return _ids(entry, context, ids)
    is_cut = context.to_buckets and block.get("boundaries")
    cut = buckets(block) if is_cut else {}
    if not is_cut:
        block.note(NO_TABLE, "embedding_dim", "embedding_name", "pooling")
    number, dim = block.quoted("fg_encoded_default_value", float), block.get("value_dim") or 1
    missing = 0.0 if number is None else number
    if entry.sequence is None:
        block.note("the feature is no sequence", "sequence_length", "sequence_delim")
        separator = context.separator
        return data.RawFeature(entry.name, column=entry.name, dim=dim, missing=missing, separator=separator, **cut)
    fields = {**context.sequence(entry), "value_separator": context.separator, **cut}
    return data.RawSequenceFeature(entry.name, dim=dim, default=number, missing=missing, **fields)


def _ids(entry: Entry, context: Context, ids: dict[str, Any]) -> data.Feature:
    """Return a feature of ids; ``ids``: their rows."""
    block, has_weights = entry.block, entry.kind == "id_feature"
    if entry.has_bags:
        separator, pooling = context.separator, block["pooling"]
        element = data.IdFeature(entry.name, column=entry.name, separator=separator, pooling=pooling, **ids)
        fill = element.default is not None
        return data.BagSequenceFeature(entry.name, element=element, fill=fill, **context.sequence(entry))
    if entry.sequence is None:
        block.note("the feature is no sequence", "sequence_length", "sequence_delim")
        is_alone = has_weights and block["value_dim"] == 1 and "pooling" not in block
        options: dict[str, Any] = {"pooling": None if is_alone else block["pooling"]}
        if has_weights:
            options["weight_separator"] = ":" if block["weighted"] else None
        return data.IdFeature(entry.name, column=entry.name, separator=context.separator, **ids, **options)
    fields = context.sequence(entry)
    if has_weights:
        block.note("an element is one id, so there is nothing to pool", "pooling")
        fields |= {"pooling": context.poolings.get(entry.name), "value_separator": context.separator}
    return data.SequenceFeature(entry.name, column=entry.name, **ids, **fields)


def _sparse(block: Block) -> dict[str, Any] | None:
    """Return the rows of a column of ids; None: it holds numbers."""
    if "boundaries" not in block and block.kind not in _ALWAYS_IDS and not has_ids(block):
        return None
    table = {**table_of(block), "default": block.quoted("fg_encoded_default_value", int)}
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
