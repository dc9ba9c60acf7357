"""`Entry`: one feature of a file, with the sequence that it is part of, and the columns that its inputs name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.registry import nearest

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
    """

    name: str
    kind: str
    block: Block
    sequence: Block | None = None
    prefix: str = ""


def entries(blocks: Sequence[Block]) -> list[Entry]:
    """Return all features; two of one name are a problem."""
    found: dict[str, Entry] = {}
    for block in blocks:
        with block.findings.collecting():
            for entry in _of(block):
                if entry.name in found:
                    entry.block.fail(f"another feature is called '{entry.name}' already")
                found[entry.name] = entry
    return list(found.values())


def _of(block: Block) -> Iterator[Entry]:
    if block.broken and block.chosen("feature") is None:
        return
    kind, chosen = block.choose("feature")
    if kind != "sequence_feature":
        if "feature_name" not in chosen:
            return
        is_sequence = kind.startswith("sequence_")
        yield Entry(chosen["feature_name"], kind.removeprefix("sequence_"), chosen, chosen if is_sequence else None)
        return
    prefix = f"{chosen['sequence_name']}__"
    for member in chosen["features"]:
        found = member.chosen("feature")
        if found is not None and "feature_name" in found[1]:
            inner_kind, inner = found
            yield Entry(prefix + inner["feature_name"], inner_kind, inner, chosen, prefix)


def column(entry: Entry, others: Mapping[str, Entry], field: str = "expression", written: str | None = None) -> str:
    """Return the column of an input such as ``user:age``: the column ``age``.

    ``written``: the input, where the field holds several.
    """
    text = entry.block[field] if written is None else written
    if text is None:
        entry.block.fail("is required: the column that the feature is made from", field)
    side, colon, name = text.partition(":")
    name = name if colon else side
    if colon and side == "const":
        entry.block.fail(f"not supported: {text!r}; a constant is no column, so make it one, or remove it", field)
    if colon and side == "feature":
        return _of_feature(entry, others, field, name)
    if colon and side not in SIDES:
        entry.block.fail(f"must be a column with its side, such as item:price, got {text!r}", field)
    return _prefixed(entry, side if colon else "item", name)


def _prefixed(entry: Entry, side: str, name: str) -> str:
    """Return the name of a column; those that hold sequences of a sequence_feature begin with its name."""
    if not entry.prefix:
        return name
    chosen = entry.block["sequence_fields"]
    return entry.prefix + name if not chosen or name in chosen else name


def _of_feature(entry: Entry, others: Mapping[str, Entry], field: str, name: str) -> str:
    """Return the column of another feature that passes it on unchanged."""
    other = others.get(name)
    if other is None:
        entry.block.fail(f"there is no feature '{name}': {nearest(name, others)}", field)
    plain = other.kind == "id_feature" or (
        other.kind == "raw_feature" and not {"boundaries", "normalizer"} & set(other.block.given)
    )
    if not plain or other.sequence is not None:
        entry.block.fail(
            f"not supported: the feature '{name}' changes its values, and only columns can be read; "
            "write its values to a column, and read that",
            field,
        )
    return column(other, others)
