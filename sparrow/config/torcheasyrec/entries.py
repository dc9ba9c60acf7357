"""`Entry`: one feature of a file, with the sequence that it is part of, and the columns that its inputs name."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from sparrow.config.torcheasyrec.blocks import Block

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

    def as_single(self) -> Entry:
        """Return the feature as one of a single element per row, such as the item of two towers."""
        if self.sequence is not None and self.sequence is not self.block:
            for field in ("sequence_length", "sequence_delim"):
                self.sequence.note("a row has one item: write a row for each", field)
        return dataclasses.replace(self, sequence=None)


def entries(blocks: Sequence[Block], grouped: Collection[str] = ()) -> list[Entry]:
    """Return all features; two of one name are a problem.

    ``grouped``: the names in the groups of the model. They tell how members of sequences are named: ``clicks__item``,
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
    name = text.rpartition(":")[2]
    if not entry.prefix:
        return name
    # Columns that hold sequences of a sequence_feature begin with its name.
    chosen = entry.block["sequence_fields"]
    return entry.prefix + name if not chosen or name in chosen else name
