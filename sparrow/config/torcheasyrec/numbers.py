"""Numbers as inputs: normalizers, such as ``method=zscore,mean=1.5,standard_deviation=2.0``, buckets, embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.layers import record
from sparrow.config.torcheasyrec.tables import table_of
from sparrow.data import AutoDis, MLPEmbedding

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


def missing_number(block: Block) -> float | None:
    """Return the number of a missing value; None: there is none."""
    written = block["default_value"]
    if written == "":
        return None
    try:
        return float(written)
    except ValueError:
        block.fail(f"must be a number in quotes, got {written!r}", "default_value")


def dense_fields(block: Block) -> dict[str, Any]:
    """Return how numbers become an input: cut into buckets, or transformed."""
    boundaries = block["boundaries"] or None
    learned = block.chosen("dense_emb")
    if learned is not None:
        if boundaries is not None:
            block.fail(f"cannot be given together with {learned[0]}; keep one", "boundaries")
        block.note("the embedding is a function of the number, and has no table", "embedding_name", "pooling")
        embedding = record(learned[1], MLPEmbedding if learned[0] == "mlp" else AutoDis)
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
