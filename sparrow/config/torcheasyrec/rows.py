"""From ids to rows of a table: ``num_buckets``, ``hash_bucket_size``, vocabularies, and the id of a missing value."""

from __future__ import annotations

from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.vocabularies import FIELDS, dynamic_rows

SIZES: Final = ("num_buckets", "hash_bucket_size", "vocab_list", "vocab_dict", "vocab_file")


def has_ids(block: Block) -> bool:
    """Return whether a feature that may give ids or numbers gives ids."""
    return any(field in block for field in (*SIZES, *FIELDS))


def size_field(block: Block) -> str:
    """Return the one field that gives the number of rows, or raise an error."""
    if block.get("value_dim") not in (None, 0, 1):
        block.differ("a row has the ids that the data has", "value_dim")
    if not block["embedding_dim"]:
        block.fail("is required: the dim of the feature's table, at least 1", "embedding_dim")
    sizes = [field for field in (*SIZES, *FIELDS) if field in block]
    dynamic = [field for field in sizes if field in FIELDS]
    if dynamic and len(sizes) > 1:  # TorchEasyRec looks at zch and dynamicemb first
        for field in sizes:
            if field != dynamic[0]:
                block.note(f"{dynamic[0]} gives the rows", field)
        sizes = dynamic
    if len(sizes) != 1:
        given = ", ".join(sizes) or "none"
        block.fail(f"give one of {', '.join((*SIZES, FIELDS[0]))} and {FIELDS[1]}, got {given}")
    return sizes[0]


def rows(block: Block, otherwise: str | None = None) -> dict[str, Any]:
    """Return the fields of our features that map ids to rows, and those of their table.

    ``otherwise``: the id of a missing value where the file gives none.
    """
    field = size_field(block)
    if field in FIELDS:
        fields: dict[str, Any] = {"dynamic": dynamic_rows(block)}
    elif field in ("num_buckets", "hash_bucket_size"):
        fields = {field: block[field]}
        block.note(f"{field} knows every id", "default_bucketize_value")
    else:
        fields = _vocabulary(block, field, block["default_value"] or otherwise)
    return {
        "default": default_id(block, "default_value", otherwise),
        **fields,
        "embedding_dim": block["embedding_dim"],
        "table": block["embedding_name"],
    }


def _vocabulary(block: Block, field: str, default: str | None) -> dict[str, Any]:
    """Return the rows of words. Row 0 is of missing words and row 1 of unknown ones, unless a row of these is given."""
    if field == "vocab_file":
        unknown = {"unknown": block["default_bucketize_value"]} if "default_bucketize_value" in block else {}
        return {"vocabulary": block[field], **unknown, **_has_rows(block[field])}
    if field == "vocab_list":
        first = 0 if "default_bucketize_value" in block else 2
        words = {word: first + place for place, word in enumerate(block[field])}
    else:
        words = {entry["key"]: entry["value"] for entry in block[field]}
    if "default_bucketize_value" in block:
        return {"vocabulary": words, "unknown": block["default_bucketize_value"]}
    missing = default or ""
    if not missing and all(word.removeprefix("-").isdecimal() for word in words):  # the column may hold integers
        return {"vocabulary": words, "unknown": 1}
    words.setdefault(missing, 0)
    return {"vocabulary": words, "unknown": 1, "default": missing}


def _has_rows(path: str) -> dict[str, Any]:
    """Return whether each line of a vocabulary is a word and its row, where the file can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return {"vocabulary_has_rows": len(file.readline().split()) > 1}
    except (OSError, UnicodeDecodeError):
        return {}


def default_id(block: Block, field: str, otherwise: str | None) -> int | str | None:
    """Return the id of a missing value: a number where ids are numbers."""
    given = block[field] or otherwise
    if not given:
        return None
    if "num_buckets" not in block:
        return str(given)
    try:
        return int(given)
    except ValueError:
        block.fail(f"must be an integer in quotes, got {given!r}", field)
