"""Features: TorchEasyRec's ``feature_configs`` as ours.

With ``fg_mode: FG_NONE`` a column has the feature's name and holds ids that are already encoded, with ``FG_BUCKETIZE``
values that are to be hashed, looked up or cut into buckets; otherwise it is the column that ``expression`` names, and
is encoded here. Hashed ids then fall into other rows than in TorchEasyRec.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.computed import COMPUTED, Entry, column, each_element, source_fields
from sparrow.config.torcheasyrec.encoded import Context, dense_fields, encoded_feature
from sparrow.config.torcheasyrec.tables import has_ids, rows, table_of
from sparrow.data import (
    BagSequenceFeature,
    ComboFeature,
    Feature,
    IdFeature,
    RawFeature,
    RawSequenceFeature,
    SequenceFeature,
    TokenizeFeature,
)


def fg_mode(data: Block) -> str:
    """Return the mode of ``data_config``; the older ``fg_encoded`` counts where it is given."""
    if "fg_encoded" in data:
        return "FG_NONE" if data["fg_encoded"] else "FG_DAG"
    mode: str = data["fg_mode"]
    return mode


def features(
    used: Sequence[Entry], entries: Mapping[str, Entry], data: Block, poolings: Mapping[str, Any], longest: int | None
) -> list[tuple[Feature, Block]]:
    """Return the used ones of all features, each with its message; problems are collected."""
    mode = fg_mode(data)
    is_encoded = mode in ("FG_NONE", "FG_BUCKETIZE")
    context = Context(entries, poolings, data["fg_encoded_multival_sep"], longest, mode == "FG_BUCKETIZE")
    if not is_encoded:
        data.note("it is of encoded columns, fg_mode FG_NONE or FG_BUCKETIZE", "fg_encoded_multival_sep")
    made: list[tuple[Feature, Block]] = []
    for entry in used:
        if entry.block.broken:
            continue
        findings = entry.block.findings
        with findings.collecting(), findings.part(f"data.features '{entry.name}'"), entry.block.locating():
            feature = encoded_feature(entry, context) if is_encoded else feature_of(entry, context)
            made.append((feature, entry.block))
    return made


def feature_of(entry: Entry, context: Context) -> Feature:
    """Return the feature of columns that are not encoded."""
    entry.block.note("it is of encoded columns, fg_mode FG_NONE", "fg_encoded_default_value")
    entry.block.note("a feature is read where a group has it", "stub_type")
    if entry.sequence is None:
        entry.block.note("the feature is no sequence", "sequence_length", "sequence_delim", "sequence_fields")
        return KINDS[entry.kind](entry, context)
    return SEQUENCES.get(entry.kind, _computed_sequence)(entry, context)


def _ids(entry: Entry, context: Context, otherwise: str | None = None) -> IdFeature:
    """Return ids of a column; ``otherwise``: the id of a missing value where the file gives none."""
    block = entry.block
    # One id per row needs no pooling, and can share the table of features with any pooling.
    is_alone = entry.sequence is None and block["value_dim"] == 1 and "pooling" not in block
    return IdFeature(
        entry.name,
        pooling=None if is_alone else block["pooling"],
        separator=block["separator"],
        weight_separator=":" if block["weighted"] else None,
        **source_fields(entry, context.entries),
        **rows(block, otherwise),
    )


def _raw(entry: Entry, context: Context) -> Feature:
    block = entry.block
    return RawFeature(
        entry.name,
        dim=block["value_dim"] or 1,
        separator=block["separator"],
        missing=block.quoted("default_value", float),
        **source_fields(entry, context.entries),
        **dense_fields(block),
    )


def _tokens(entry: Entry, context: Context) -> TokenizeFeature:
    block = entry.block
    if block["tokenizer_type"] != "bpe":
        kind = block["tokenizer_type"]
        block.fail(f"not supported: {kind!r}; convert it to a tokenizer.json (bpe)", "tokenizer_type")
    return TokenizeFeature(
        entry.name,
        vocabulary=block["vocab_file"],
        normalize=_normalize(block["text_normalizer"]),
        default=block["default_value"] or None,
        pooling=block["pooling"],
        **table_of(block),
        **source_fields(entry, context.entries),
    )


def _computed_ids(entry: Entry, context: Context, otherwise: str | None = None) -> Feature:
    block, compute = entry.block, COMPUTED[entry.kind](entry, context.entries)
    return IdFeature(entry.name, compute=compute, pooling=block["pooling"], **rows(block, otherwise))


def _computed(entry: Entry, context: Context) -> Feature:
    """Return ids or numbers that are computed from several columns."""
    block = entry.block
    if has_ids(block) or entry.kind == "bool_mask_feature":
        block.note("the feature has ids", "boundaries")
        return _computed_ids(entry, context)
    compute = COMPUTED[entry.kind](entry, context.entries)
    block.note("numbers are numbers; ids have num_buckets or the like", "need_discrete")
    missing, dim = _missing(entry), block.get("value_dim") or 1
    return RawFeature(entry.name, compute=compute, dim=dim, missing=missing, **dense_fields(block))


def _missing(entry: Entry) -> float | None:
    """Return the number of a missing value; a combination of no values is 0, where the file gives no other number."""
    is_combined = entry.kind == "combine_feature" and not entry.block["default_value"]
    return 0.0 if is_combined else entry.block.quoted("default_value", float)


def _combo(entry: Entry, context: Context) -> Feature:
    block = entry.block
    if block["default_value"]:
        block.fail("not supported: a missing value is crossed as one more value; remove it", "default_value")
    block.note("a row has one crossed id, so there is nothing to pool", "pooling")
    cross = tuple(_crossed(entry, written) for written in block["expression"])
    return ComboFeature(entry.name, cross=cross, hash_bucket_size=block["hash_bucket_size"], **table_of(block))


def _crossed(entry: Entry, written: str) -> str:
    if written.partition(":")[0] in ("feature", "const"):
        entry.block.fail(f"not supported: {written!r}; columns are crossed, so make it one", "expression")
    return column(entry, "expression", written)


def _sequence(entry: Entry, context: Context) -> Feature:
    """Return the ids of a sequence. A row without elements gets one, the default: "0" unless given."""
    block = entry.block
    if block["weighted"]:
        block.fail("not supported: ids of sequences have no weights, in TorchEasyRec neither; remove it", "weighted")
    if entry.has_bags:
        return _bags(entry, context, _ids(entry, context, "0"))
    block.note("an element is one id", "separator")
    block.note("an element is one id, so there is nothing to pool", "pooling")
    source, pooling = source_fields(entry, context.entries), context.poolings.get(entry.name)
    return SequenceFeature(entry.name, **source, pooling=pooling, **context.sequence(entry), **rows(block, "0"))


def _bags(entry: Entry, context: Context, element: Feature) -> Feature:
    """Return a sequence whose elements another feature reads."""
    sequences = tuple(name for name in element.columns if name in entry.sequences)
    if not sequences:
        entry.block.fail("none of its columns is a sequence; name one in sequence_fields")
    fields = context.sequence(entry)
    return BagSequenceFeature(entry.name, element=element, fill=True, sequences=sequences, **fields)


def _tokenize_sequence(entry: Entry, context: Context) -> Feature:
    made = _tokens(entry, context)
    return _bags(entry, context, dataclasses.replace(made, default=made.default or "0"))


def _raw_sequence(entry: Entry, context: Context) -> Feature:
    block = entry.block
    missing = block.quoted("default_value", float) if "default_value" in block else 0.0
    fields = dense_fields(block)
    return RawSequenceFeature(
        entry.name,
        **source_fields(entry, context.entries),
        dim=block["value_dim"] or 1,
        value_separator=block["separator"],
        missing=missing,
        default=missing,
        **context.sequence(entry),
        **fields,
    )


def _computed_sequence(entry: Entry, context: Context) -> Feature:
    """Return the ids or numbers that are computed for each element of a sequence."""
    block = entry.block
    for field in ("need_discrete", "zch", "dynamicemb"):
        if block.get(field):
            block.fail("not supported in sequences; make its values a column, and read that", field)
    are_ids = has_ids(block)
    if entry.kind in ("lookup_feature", "match_feature") and (are_ids or (block.get("value_dim") or 1) > 1):
        block.fail("not supported: an element has one number; make its values a column, and read that")
    compute = each_element(entry, COMPUTED[entry.kind](entry, context.entries))
    fields: dict[str, Any] = context.sequence(entry) | {"separator": None, "compute": compute}
    if are_ids:
        block.note("the feature has ids", "boundaries")
        block.note("an element is one id, so there is nothing to pool", "pooling")
        return SequenceFeature(entry.name, pooling=context.poolings.get(entry.name), **fields, **rows(block, "0"))
    missing = _missing(entry) or 0.0
    return RawSequenceFeature(entry.name, missing=missing, default=missing, **fields, **dense_fields(block))


SEQUENCES: Final[dict[str, Callable[[Entry, Context], Feature]]] = {
    "id_feature": _sequence,
    "raw_feature": _raw_sequence,
    "combo_feature": lambda entry, context: _bags(entry, context, _combo(entry, context)),
    "tokenize_feature": _tokenize_sequence,
    "bool_mask_feature": lambda entry, context: _bags(entry, context, _computed_ids(entry, context, "0")),
}
"""The sequences that are columns, by the name of their element's message; others are computed."""
KINDS: Final[dict[str, Callable[[Entry, Context], Feature]]] = {
    "id_feature": _ids,
    "raw_feature": _raw,
    "combo_feature": _combo,
    "tokenize_feature": _tokens,
    **dict.fromkeys(COMPUTED, _computed),
}
"""The features that are not sequences, by the name of their message."""


_OPTIONS: Final[dict[str, Any]] = {
    "TEXT_LOWER2UPPER": "upper",
    "TEXT_UPPER2LOWER": "lower",
    "TEXT_SBC2DBC": "half_width",
    "TEXT_CHT2CHS": None,  # traditional characters stay
    "TEXT_FILTER": "remove_symbols",
    "TEXT_SPLITCHRS": "split_chinese",
    "TEXT_REMOVE_SPACE": "remove_space",
}
_DEFAULT: Final = ("TEXT_LOWER2UPPER", "TEXT_SBC2DBC", "TEXT_CHT2CHS", "TEXT_FILTER")


def _normalize(block: Block | None) -> Any:
    if block is None:
        return ()
    for field in ("max_length", "stop_char_file"):
        if block[field]:
            block.fail("not supported; remove it", field)
    made = (_OPTIONS[option] for option in block["norm_options"] or _DEFAULT)
    return tuple(option for option in made if option is not None)
