"""`Entry`: one feature of a file, with the sequence that it is part of, and the columns that its inputs name."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from sparrow.config.torcheasyrec.blocks import Block

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
    side, _, name = text.rpartition(":")
    chosen = entry.block["sequence_fields"]
    # Without sequence_fields, the inputs of a kind with several are sequences where they are the item's.
    if entry.sequence is None or not (name in chosen if chosen else entry.kind in _ONE_INPUT or side == "item"):
        return name
    # Columns that hold sequences of a sequence_feature begin with its name.
    entry.sequences[entry.prefix + name] = None
    return entry.prefix + name
