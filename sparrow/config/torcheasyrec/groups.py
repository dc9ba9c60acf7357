"""Feature groups: TorchEasyRec's ``feature_groups``, with their sequence groups and encoders, as ours.

A sequence group is a group of its own here, which an encoder reads. One of ids that a single ``pooling_encoder`` reads
is pooled by the lookup itself.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.layers import fields
from sparrow.data import Feature
from sparrow.models.sequences import EncoderRecord, encoders
from sparrow.registry import nearest


@dataclasses.dataclass(frozen=True)
class Groups:
    """The groups of a model.

    Attributes:
      features: the features of each group.
      encoders: the encoders whose results join a group.
      poolings: the pooling of each sequence that its lookup pools.
      names: the features that a group names.
      suffixes: by group and feature, the end of the name of a table of its own.
    """

    features: Mapping[str, tuple[str, ...]]
    encoders: Mapping[str, tuple[EncoderRecord, ...]]
    poolings: Mapping[str, str]
    names: frozenset[str]
    suffixes: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)


class _SequenceGroup(NamedTuple):
    name: str
    block: Block
    features: tuple[str, ...]
    encoders: list[Block]


def groups(block: Block, sequences: Mapping[str, str], known: Collection[str] | None) -> Groups:
    """Return the groups of ``model_config``.

    ``sequences``: the kinds of sequences by name, such as "id"; ``known``: the names of all features, or None where
    some could not be read, so that any name may be one.
    """
    features: dict[str, tuple[str, ...]] = {}
    made: dict[str, tuple[EncoderRecord, ...]] = {}
    poolings: dict[str, str] = {}
    suffixes: dict[tuple[str, str], str] = {}
    group_names = [group["group_name"] for group in block["feature_groups"]]
    of_lookup = _pooled_by_lookup(block, sequences)
    for group in block["feature_groups"]:
        with group.findings.collecting():
            name = group["group_name"]
            if name in features:
                group.fail(f"another group is called '{name}' already", "group_name")
            _check_names(group, known)
            is_in_order = group["group_type"] in ("SEQUENCE", "JAGGED_SEQUENCE")
            own: tuple[str, ...] = group["feature_names"]
            for feature in own:
                if feature in sequences and not is_in_order:
                    group.fail(
                        f"'{feature}' is a sequence; put it into sequence_groups with an encoder, or into a group of "
                        "the type SEQUENCE",
                        "feature_names",
                    )
            suffixes |= {(name, feature): group["embedding_name_suffix"] for feature in own}
            encoded: list[EncoderRecord] = []
            for found in _sequence_groups(group):
                _check_names(found.block, known)
                pooling = of_lookup(found)
                suffix = found.block["embedding_name_suffix"] or group["embedding_name_suffix"]
                if pooling is not None:
                    inner, names = name, tuple(feature for feature in found.features if feature in sequences)
                    own = (*own, *(feature for feature in names if feature not in own))
                    poolings |= dict.fromkeys(names, pooling)
                else:
                    inner = found.name if found.name not in group_names else f"{found.name}_sequences"
                    features[inner] = names = found.features
                    encoded += [encoder(each, inner) for each in found.encoders]
                suffixes |= {(inner, feature): suffix for feature in names}
            if own:
                features[name] = own
            if encoded:
                made[name] = tuple(encoded)
    named = frozenset(name for names in features.values() for name in names)
    return Groups(features, made, poolings, named, {place: suffix for place, suffix in suffixes.items() if suffix})


def with_own_tables(
    found: Sequence[tuple[Feature, Block]], groups: Groups
) -> tuple[list[tuple[Feature, Block]], Groups]:
    """Return the features and groups with a feature of its own for each ``embedding_name_suffix``, and so a table."""
    if not groups.suffixes:
        return list(found), groups
    tables = {feature.table_use.table for feature, _ in found if feature.table_use is not None}
    twins: dict[tuple[str, str], tuple[Feature, Block]] = {}
    for (_, name), suffix in groups.suffixes.items():
        for feature, block in found:
            if feature.name == name and (use := feature.table_use) is not None:
                table = f"{use.table}_{suffix}"
                if table in tables:
                    block.fail(
                        f"the table '{use.table}' with the suffix '{suffix}' has the name of another; rename one"
                    )
                twins[name, suffix] = feature.renamed(f"{name}_{suffix}", table), block
    renamed = {
        group: tuple(
            twins[pair][0].name if (pair := (name, groups.suffixes.get((group, name), ""))) in twins else name
            for name in names
        )
        for group, names in groups.features.items()
    }
    used = {name for names in renamed.values() for name in names}
    kept = [(feature, block) for feature, block in found if feature.name in used]
    return [*kept, *twins.values()], dataclasses.replace(groups, features=renamed)


def _check_names(block: Block, known: Collection[str] | None) -> None:
    for name in dict.fromkeys(block["feature_names"]):
        if known is not None and name not in known:
            with block.findings.collecting():
                block.fail(f"there is no feature '{name}': {nearest(name, known)}", "feature_names")


def _sequence_groups(group: Block) -> list[_SequenceGroup]:
    """Return the sequence groups of a group, each with its encoders; names that are left out are inferred."""
    blocks: tuple[Block, ...] = group["sequence_groups"]
    readers: tuple[Block, ...] = group["sequence_encoders"]
    if (blocks or readers) and group["group_type"] != "DEEP":
        group.fail("sequence_groups and sequence_encoders belong to a group of the type DEEP", "group_type")
    found = {}
    for block in blocks:
        if "group_name" not in block and len(blocks) > 1:
            block.fail("is required where a group has several sequence_groups", "group_name")
        name = block["group_name"] or group["group_name"]
        if name in found:
            block.fail(f"another sequence group is called '{name}' already", "group_name")
        found[name] = _SequenceGroup(name, block, block["feature_names"], [])
    for reader in readers:
        _, chosen = reader.choose("seq_module")
        if "input" not in chosen and len(found) != 1:
            chosen.fail("is required where a group has several sequence_groups", "input")
        name = chosen["input"] or next(iter(found), "")
        if name not in found:
            chosen.fail(f"there is no sequence group '{name}' in this group: {nearest(name, found)}", "input")
        found[name].encoders.append(reader)
    for sequence_group in found.values():
        if not sequence_group.encoders:
            sequence_group.block.fail("needs an encoder of its group_name among the sequence_encoders")
    return list(found.values())


def _pooled_by_lookup(block: Block, sequences: Mapping[str, str]) -> Callable[[_SequenceGroup], str | None]:
    """Return a function that gives the pooling of a sequence group which its lookups pool; None: an encoder does."""
    uses: Counter[str] = Counter()
    for group in block["feature_groups"]:
        for named in (group, *group["sequence_groups"]):
            uses.update(named["feature_names"])
    dropped = "variational_dropout" in block  # it counts the result of an encoder as one feature

    def pooling(found: _SequenceGroup) -> str | None:
        kind, first = found.encoders[0].choose("seq_module")
        members = [name for name in found.features if name in sequences]
        if kind != "pooling_encoder" or len(found.encoders) > 1 or dropped or first["max_seq_length"]:
            return None
        if not members or any(sequences[name] != "id" or uses[name] > 1 for name in members):
            return None
        chosen: str = first["pooling_type"]
        if chosen not in ("sum", "mean"):
            first.fail(f"must be 'sum' or 'mean', got {chosen!r}", "pooling_type")
        return chosen

    return pooling


def encoder(block: Block, group: str) -> EncoderRecord:
    """Return the record of an encoder that reads the group ``group``."""
    name, chosen = block.choose("seq_module")
    options = fields(chosen, encoders[name], ["input"])
    return chosen.make(encoders.make, name, input=group, max_length=chosen["max_seq_length"] or None, **options)
