"""From a config to tables, model inputs and batches: how the sections ``data``, ``model`` and ``train`` meet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from sparrow.config.building.auto_vocabularies import fill_vocabularies
from sparrow.config.building.optimizers import table_rules
from sparrow.config.building.two_towers import (
    candidate_keys,
    checked_label,
    item_column,
    label_lengths,
    label_of,
    read_labels,
    user_column,
)
from sparrow.config.sections.config import Config
from sparrow.config.sections.data import Data, Mask, Tree
from sparrow.config.sections.model import Model, table_options
from sparrow.config.sections.tasks import Task
from sparrow.data import (
    Converter,
    Feature,
    Label,
    Masks,
    NegativeSampler,
    NumberEmbedding,
    Sampler,
    TableUse,
    TreeSampler,
    distinct_rows,
    lookup_specs,
)
from sparrow.data.sources import Reader
from sparrow.embedding import FeatureSpec
from sparrow.errors import ConfigError, Path, problems_of
from sparrow.feed import Batching, Content, Cost, Pipeline
from sparrow.models import Inputs
from sparrow.registry import nearest

WIDE: Final = "_wide"
"""The suffix of a feature's name where it has a table of its own for a wide group."""


@dataclasses.dataclass(frozen=True)
class Assembly:
    """The parts of the embedder and the model.

    Attributes:
      features: the features that the pipeline reads.
      specs: the lookups, for `sparrow.Embedder`; each table has its rule.
      ids_of: for each lookup, the feature whose ids it takes. A feature with a table of its own for a wide group is
        looked up twice, and read once.
      inputs: the inputs of the model.
      item_id: the key of the item that an example chose, for two towers; None: not known.
      user_id: the key of the user, for two towers; None: not known.
      label_lengths: the labels that have a number for each candidate of an example, after a sequence of candidates.
      lengths: the most elements of each sequence in order, by the name that it has in the model.
      embeddings: the embeddings that the model learns of numbers, with their dims, by feature.
      bags: of the sequences whose elements are bags: the pooling, and the output with the numbers of ids.
    """

    features: tuple[Feature, ...]
    specs: tuple[FeatureSpec, ...]
    ids_of: Mapping[str, str]
    inputs: Inputs
    item_id: str | None = None
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    embeddings: Mapping[str, tuple[NumberEmbedding, int]] = dataclasses.field(default_factory=dict)
    user_id: str | None = None
    label_lengths: tuple[tuple[str, tuple[str, ...]], ...] = ()
    bags: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)

    def lookups(self, ids: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ids of a batch by lookup, for `sparrow.Embedder.pack`."""
        return {lookup: ids[feature] for lookup, feature in self.ids_of.items()}

    @property
    def alike(self) -> list[tuple[str, tuple[str, ...]]]:
        """The groups with several sequences in order, whose lengths must agree, and the features of these."""

        def output(name: str) -> str:
            return self.bags[name][1] if name in self.bags else self.ids_of.get(name, name)

        groups = [
            (group, tuple(output(name) for name in names if name in self.lengths))
            for group, names in self.inputs.groups.items()
        ]
        return [(group, names) for group, names in groups if len(names) > 1]

    def content(self, tasks: Mapping[str, Task]) -> Content:
        """Return the content of batches for these tasks."""
        losses = [(task, loss) for task in tasks.values() for loss in task.losses]
        candidates = [self.lengths[names[0]] for _, names in self.label_lengths]
        return Content(
            ids_of=self.ids_of,
            alike=tuple(self.alike),
            label_lengths=self.label_lengths,
            most_candidates=candidates[0] if candidates else None,
            keys=frozenset(column for _, loss in losses for column in loss.key_columns),
            classes=frozenset(task.label for task, loss in losses if loss.label_kind == "class"),
            item_id=self.item_id,
            user_id=self.user_id,
        )


def assemble(config: Config) -> Assembly:
    """Tables, lookups and model inputs of a config."""
    data, model = need(config.data, "data"), need(config.model, "model")
    fill_vocabularies(config)
    features = {feature.name: feature for feature in data.features}
    groups = _groups(model, features)
    uses: dict[str, TableUse] = {}
    ids_of: dict[str, str] = {}
    for group, names in model.groups.items():
        for name, lookup in zip(names, groups[group], strict=True):
            if (use := features[name].table_use) is not None:
                own: dict[str, Any] = (
                    {} if lookup == name else {"table": use.table + WIDE, "embedding_dim": model.wide_dim}
                )
                uses[lookup] = dataclasses.replace(use, **own)
                ids_of[lookup] = name
    _check_positions(model, groups, uses, {name: features[ids_of.get(name, name)].sequence_length for name in uses})
    with problems_of("data", "features"):
        tables = [use.table for use in uses.values()]
        rules = table_rules(config.train, dict.fromkeys(tables))
        options = table_options(model.tables, dict.fromkeys(tables))
        specs = lookup_specs(uses, rules.__getitem__, options)
    dims = {name: feature.width for name, feature in features.items() if not feature.is_sparse}
    dims |= {lookup: use.embedding_dim for lookup, use in uses.items()}
    lengths = _lengths(groups, {name: features[ids_of.get(name, name)].sequence_length for name in dims})
    inputs = Inputs(
        acts={name: dims[name] for name in uses if name not in lengths},
        numbers={name: dim for name, dim in dims.items() if name not in lengths and name not in uses},
        groups=groups,
        sequences={name: dims[name] for name in lengths},
    )
    learned = {name: feature.learned_embedding for name, feature in features.items()}
    embeddings = {name: embedding for name, embedding in learned.items() if embedding is not None}
    return Assembly(
        features=tuple(data.features),
        specs=tuple(specs),
        ids_of=ids_of,
        inputs=inputs,
        item_id=item_column(config),
        lengths=lengths,
        embeddings=embeddings,
        user_id=user_column(config),
        label_lengths=tuple(label_lengths(config)),
        bags={lookup: pooling for lookup, name in ids_of.items() if (pooling := features[name].element_pooling)},
    )


def _check_positions(
    model: Model, groups: Mapping[str, list[str]], uses: Mapping[str, TableUse], lengths: Mapping[str, int | None]
) -> None:
    """Refuse a loss at every position where the item and an element of its history have rows of different tables."""
    architecture: Any = model.architecture
    if not getattr(architecture, "every_position", False):
        return
    history = getattr(architecture, "history_input", None) or architecture.channel.name
    elements = [name for name in groups.get(history, ()) if name not in uses or lengths[name] is not None]
    for element, item in zip(elements, groups.get(architecture.item_tower.input, ()), strict=False):
        tables = [None if name not in uses else uses[name].table for name in (element, item)]
        if tables[0] != tables[1]:
            problem = (
                f"every_position needs '{element}' and '{item}' to share a table; they have {tables[0]}, {tables[1]}"
            )
            raise ConfigError(problem, at=("model", "architecture", "every_position"))


def _lengths(groups: Mapping[str, list[str]], lengths: Mapping[str, int | None]) -> dict[str, int]:
    """Return the lengths of the sequences in order, which must be the same within a group."""
    for group, names in groups.items():
        ordered = [name for name in names if lengths[name] is not None]
        for name in ordered[1:]:
            if lengths[name] != lengths[ordered[0]]:
                problem = (
                    f"the sequences '{ordered[0]}' and '{name}' differ in max_length: {lengths[ordered[0]]} and "
                    f"{lengths[name]}; sequences of one group must have the same max_length"
                )
                raise ConfigError(problem, at=("model", "groups", group))
    return {name: length for name, length in lengths.items() if length is not None}


def train_pipeline(config: Config, prepare: Callable[[Any], Any] | None = None) -> Pipeline[Any]:
    """Return the batches to train on. With a number of steps there is no last epoch."""
    data = need(config.data, "data")
    return _pipeline(
        config,
        data.train_rows,
        prepare,
        _masked(config, _sampler(config, data.negatives.count if data.negatives else None)),
        is_training=True,
        batch_size=config.train.batch_size,
        epochs=config.train.epochs,
        cost=None if data.cost is None else Cost(data.cost.column, data.cost.limit),
        shuffle_rows=data.shuffle_rows,
        drop_remainder=data.drop_remainder,
    )


def evaluate_pipeline(config: Config) -> Pipeline[Any]:
    """One pass over the data to evaluate on, in its own order."""
    source = need(need(config.data, "data").evaluate_rows, "data", "evaluate")
    negatives = need(config.data, "data").negatives
    count = None if negatives is None else negatives.evaluate_count or negatives.count
    size = config.evaluate.batch_size or config.train.batch_size
    return _pipeline(config, source, None, _sampler(config, count), is_training=False, batch_size=size)


def _sampler(config: Config, count: int | Literal["all"] | None) -> Callable[[Reader], Sampler] | None:
    """Return a function that makes the sampler once the examples are open; None: there is no sampler."""
    return _tree(config) if need(config.data, "data").tree is not None else _negatives(config, count)


def _masked(config: Config, sampler: Callable[[Reader], Sampler] | None) -> Callable[[Reader], Sampler] | None:
    """Return ``sampler`` with the masks of ``data.mask``, if any."""
    data = need(config.data, "data")
    section: Mask | None = data.mask
    if section is None:
        return sampler
    features = _named(config, "mask", section.features)

    def make(examples: Reader) -> Sampler:
        with problems_of("data", "mask", "features"):
            return Masks(
                features,
                examples.schemas[0][1],
                share=section.share,
                negatives_share=section.negatives_share,
                seed=config.train.seed,
                sampler=None if sampler is None else sampler(examples),
            )

    return make


def _named(config: Config, section: str, names: Sequence[str]) -> list[Feature]:
    """Return the features that ``data.<section>.features`` names."""
    known = {feature.name: feature for feature in need(config.data, "data").features}
    for place, name in enumerate(names):
        if name not in known:
            where: Path = ("data", section, "features", place)
            raise ConfigError(f"unknown feature '{name}': {nearest(name, known)}", at=where)
    return [known[name] for name in names]


def _tree(config: Config) -> Callable[[Reader], Sampler]:
    """Return a function that makes the sampler of a tree's nodes."""
    data = need(config.data, "data")
    section: Tree = data.tree
    features = _named(config, "tree", section.features)
    nodes_id = section.nodes_id_column or section.id_column

    def make(examples: Reader) -> Sampler:
        _, kinds = examples.schemas[0]
        return TreeSampler(
            section.nodes,
            features,
            id_column=nodes_id,
            form=section.form,
            counts=section.counts,
            chosen_key=section.id_column,
            labels=[task.label for task in config.tasks.values()],
            weight_column=section.weight_column,
            keep_ratio=section.keep_ratio,
            keep_weights=section.keep_weights,
            seed=config.train.seed,
            like={**kinds, nodes_id: kinds[section.id_column]},
            bad_rows=data.bad_rows,
        )

    return make


def _negatives(config: Config, count: int | Literal["all"] | None) -> Callable[[Reader], Sampler] | None:
    """Return a function that makes the sampler of negatives; None: there are none."""
    data, model = need(config.data, "data"), need(config.model, "model")
    section = data.negatives
    if section is None or count is None:
        return None
    where: Path = ("data", "negatives", "group")
    if section.group not in model.groups:
        raise ConfigError(f"unknown group '{section.group}': {nearest(section.group, model.groups)}", at=where)
    of_items = [section.group, getattr(model.architecture, "item_augment", section.group)]  # the groups of an item
    names = {name for group in of_items for name in model.groups.get(group, ())}
    for group, others in model.groups.items():
        if group not in of_items and (shared := names & set(others)):
            problem = f"the feature '{min(shared)}' is in the group '{group}' too, whose examples draw no negatives"
            raise ConfigError(problem, at=where)
    items_id = section.items_id_column or section.id_column

    def make(examples: Reader) -> Sampler:
        _, kinds = examples.schemas[0]
        features = [feature for feature in data.features if feature.name in names]
        source = section.items
        if source is None:
            columns = [items_id, *(column for feature in features for column in feature.columns)]
            source = distinct_rows(data.train_events, columns, items_id, data.bad_rows)
        return NegativeSampler(
            source,
            features,
            id_column=items_id,
            count=None if count == "all" else count,
            weight_column=section.weight_column,
            chosen_key=section.id_column,
            user_key=section.user_column,
            positives=section.positives,
            hard=section.hard,
            hard_count=section.hard_count or 0,
            seed=config.train.seed,
            like={**kinds, items_id: kinds[section.id_column]},
            user_kind=None if section.user_column is None else kinds[section.user_column],
            bad_rows=data.bad_rows,
        )

    return make


def _pipeline(
    config: Config, source: Any, prepare: Any, negatives: Any, *, is_training: bool, **options: Any
) -> Pipeline[Any]:
    data: Data = need(config.data, "data")
    fill_vocabularies(config)
    tasks = config.tasks.values()
    made = {label.name: label for label in data.labels}
    labels = dict.fromkeys(name for task in tasks for name in read_labels(task))
    keys = [column for task in tasks for loss in task.losses for column in loss.key_columns]
    keys += [data.tree.id_column] if data.tree is not None else candidate_keys(config, source, is_training)
    # Training rows need no groups of metrics that only evaluation computes.
    uses = [use for task in tasks for use in (task.train_metrics if is_training else task.metrics)]
    keys += [use.group_by for use in uses if use.group_by]
    cost: Cost | None = options.get("cost")
    weights = [task.sample_weight for task in tasks if task.sample_weight] + ([] if cost is None else [cost.column])
    converter = Converter(
        data.features,
        labels=[label_of(config, checked_label(config, made.get(name, Label(name)), made)) for name in labels],
        weights=list(dict.fromkeys(weights)),
        keys=list(dict.fromkeys(keys)),
        times=[data.time_column] if is_training and data.time_column is not None else [],
    )
    shared = {name: getattr(data, name) for name in ("bad_rows", "dead_letters", "ahead", "threads", "memory_ahead")}
    event_time = data.event_time if is_training else None
    batching = Batching(seed=config.train.seed, event_time=event_time, **shared, **options)
    return Pipeline(source, converter, batching, prepare=prepare, negatives=negatives)


def need(section: Any, *path: str) -> Any:
    """Return the section, which a config may leave out and a run may not."""
    if section is None:
        raise ConfigError("is required", at=path)
    return section


def _groups(model: Model, features: Mapping[str, Feature]) -> dict[str, list[str]]:
    """Return the names of the lookups and numbers in each group."""
    groups: dict[str, list[str]] = {}
    for group, names in model.groups.items():
        where: Path = ("model", "groups", group)
        for name in names:
            if name not in features:
                raise ConfigError(f"unknown feature '{name}': {nearest(name, features)}", at=where)
        wide = group in model.architecture.wide_groups
        groups[group] = [name + WIDE if wide and features[name].is_sparse else name for name in names]
    used = {name for names in model.groups.values() for name in names}
    for name in features:
        if name not in used:
            raise ConfigError(
                f"the feature '{name}' is in no group; add it to one, or remove it", at=("model", "groups")
            )
    for lookup in {lookup for names in groups.values() for lookup in names} - used:
        if lookup in features:
            raise ConfigError(f"'{lookup}' is the name of a wide table; choose another", at=("data", "features"))
    return groups
