"""`import_config`: a complete config of TorchEasyRec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sparrow import dense
from sparrow.config.sections.config import Config
from sparrow.config.sections.data import Data
from sparrow.config.sections.tasks import Task
from sparrow.config.sections.train import Checkpoint, DenseOptimizer
from sparrow.config.torcheasyrec import tables, text
from sparrow.config.torcheasyrec.blocks import Block, Findings, Outcome, read
from sparrow.config.torcheasyrec.computed import Entry, entries
from sparrow.config.torcheasyrec.edits import Edit, edited
from sparrow.config.torcheasyrec.features import features
from sparrow.config.torcheasyrec.groups import Groups, groups, with_own_tables
from sparrow.config.torcheasyrec.inputs import cost, has_source, mask, sampled, source
from sparrow.config.torcheasyrec.models import domain_feature, labels_of, model, tasks, wide_tables
from sparrow.config.torcheasyrec.training import best_by, check_precision, checkpoint_of, evaluate, optimizers_of, train
from sparrow.data import Feature, RawFeature
from sparrow.errors import ConfigError
from sparrow.rules import SGD

_NO_OPTIMIZER: Final = DenseOptimizer(optimizer=dense.SGD(), learning_rate=0.0)


class Imported(NamedTuple):
    """A config of TorchEasyRec, read.

    Attributes:
      config: the config; None where it has problems.
      outcomes: the outcome of each of its fields.
      error: the problems; None where there are none.
    """

    config: Config | None
    outcomes: list[Outcome]
    error: ConfigError | None


def import_config(source_text: str, source: str | None = None, edits: Iterable[Edit] = ()) -> Config:
    """Read a ``.config`` of TorchEasyRec. ``source`` is the file's name, for errors; ``edits`` are made first.

    >>> import_config("train_config { num_step: 100 }")
    Traceback (most recent call last):
    sparrow.errors.ConfigError: line 1: train_config.num_step: unknown field: did you mean 'num_steps'? ...
    """
    imported = read_config(source_text, source, edits)
    if imported.config is None:
        raise imported.error or ConfigError("cannot be imported", source)
    return imported.config


def read_config(source_text: str, source: str | None = None, edits: Iterable[Edit] = ()) -> Imported:
    """Return the config with the outcome of each field, or all its problems."""
    findings = Findings(source)
    made = None
    with findings.collecting():
        message = edited(text.parse(source_text, source), edits)
        pipeline = read(message, "EasyRecConfig", findings)
        made = _Import(pipeline).config()
    try:
        findings.raise_problems()
    except ConfigError as error:
        return Imported(None, findings.outcomes(), error)
    return Imported(made, findings.outcomes(), None)


class _Import:
    """The import of one file, part by part: the problems of each are collected."""

    def __init__(self, pipeline: Block) -> None:
        self.pipeline, self.findings = pipeline, pipeline.findings
        self.made: dict[str, Any] = {}

    def config(self) -> Config | None:
        """Return the config; None where there are problems."""
        given = self.pipeline.given
        if "data_config" in given and "feature_configs" in given:
            with self.findings.part("data.features"):
                found = entries(self.pipeline["feature_configs"], self._grouped())
            if "model_config" in given:
                self._model_and_features(found)
            self._inputs()
        if "train_config" in given:
            self._train()
        self._evaluate()
        if not self.findings.problems:
            self.findings.refuse_unread()
        if self.findings.problems:
            return None
        made = self.made
        with self.pipeline.locating():
            return Config(
                data=Data(**made["data"]),
                model=made["model"],
                tasks=made["tasks"],
                train=made["train"],
                evaluate=made["evaluate"],
                model_dir=made["model_dir"],
            )

    def _grouped(self) -> set[str]:
        """Return the names of features in the groups of the model."""
        if "model_config" not in self.pipeline.given:
            return set()
        blocks = list(self.pipeline["model_config"]["feature_groups"])
        blocks += [inner for block in blocks for inner in block["sequence_groups"]]
        return {name for block in blocks if "feature_names" in block for name in block["feature_names"]}

    def _model_and_features(self, found: list[Entry]) -> None:
        block, data = self.pipeline["model_config"], self.pipeline["data_config"]
        sequences = {
            entry.name: "bags" if entry.has_bags else entry.kind.removesuffix("_feature")
            for entry in found
            if entry.sequence is not None
        }
        with self.findings.part("model.groups"):
            is_complete = not any(entry.broken for entry in self.pipeline["feature_configs"])
            grouped = groups(block, sequences, {entry.name for entry in found} if is_complete else None)
        single = _single_items(block, grouped)
        used = [entry.as_single() if entry.name in single else entry for entry in found if entry.name in grouped.names]
        for entry in found:
            if entry.name not in grouped.names:
                entry.block.note_all("the feature is in no group")
        with self.findings.part("data.features"):
            made = features(used, {entry.name: entry for entry in found}, data, grouped.poolings, _longest(block))
        columns = {feature.name: feature.columns[0] for feature, _ in made if feature.columns}
        with self.findings.collecting():
            made, grouped = with_own_tables(made, grouped)
        if not block.broken:
            with self.findings.collecting(), self.findings.part("tasks"):
                self.made["tasks"] = tasks(block, data, columns)
                self.made["labels"] = labels_of(block)
            with self.findings.collecting(), self.findings.part("model"):
                self.made["model"] = model(block, made, grouped)
        with self.findings.collecting(), self.findings.part("train.table_optimizers"):
            self.made["table_optimizers"] = tables.frozen(tables.by_table(made), wide_tables(block, made, grouped))
        with self.findings.collecting(), self.findings.part("data.mask"):
            self.made["mask"] = mask(data, made)
        if not block.broken and not any(field.endswith(("sampler", "sampler_v2")) for field in data.broken):
            with self.findings.collecting(), self.findings.part("data.negatives"):
                self.made["sampled"] = sampled(data, block, [feature for feature, _ in made], grouped)
        self.made["features"] = [*(feature for feature, _ in made), *_domain(block)]

    def _inputs(self) -> None:
        pipeline, data = self.pipeline, self.pipeline["data_config"]
        fields: dict[str, Any] = {}
        with self.findings.part("data"):
            with self.findings.collecting():
                fields["train"] = source(pipeline, "train_input_path", data)
            if has_source(pipeline, "eval_input_path"):
                with self.findings.collecting():
                    fields["evaluate"] = source(pipeline, "eval_input_path", data)
            else:
                pipeline.note(
                    "it is empty: nothing is evaluated; --eval_input_path FILES names data", "eval_input_path"
                )
            if not data["shuffle"]:
                data.note("shuffle is false", "shuffle_buffer_size")
            self.made["data"] = {
                **fields,
                "features": tuple(self.made.pop("features", ())),
                "labels": self.made.pop("labels", ()),
                **self.made.pop("sampled", {}),
                "mask": self.made.pop("mask", None),
                "cost": cost(data),
                # TorchEasyRec's buffer counts batches.
                "shuffle_rows": data["shuffle_buffer_size"] * data["batch_size"] if data["shuffle"] else 0,
                "drop_remainder": data["drop_remainder"],
            }

    def _train(self) -> None:
        block, given = self.pipeline["train_config"], self.pipeline.given
        optimizers = optimizers_of(block)
        made_tasks: dict[str, Task] = self.made.get("tasks", {})
        with self.findings.collecting(), self.findings.part("train.checkpoint.best_by"):
            self.made["best_by"] = best_by(self.pipeline["export_config"], made_tasks) if made_tasks else None
        if block.broken - {"sparse_optimizer", "dense_optimizer", "grad_clipping"}:
            return
        if "data_config" not in given:
            return
        # With problems of the optimizers there is no config; others in their place show the problems of the rest.
        optimizers = {"sparse_optimizer": SGD(0.0), "dense_optimizer": _NO_OPTIMIZER} | optimizers
        with self.findings.collecting(), self.findings.part("train"):
            self.made["checkpoint"] = checkpoint_of(block, self.made.get("best_by"))
            self.made["train"] = train(
                block,
                self.pipeline["data_config"]["batch_size"],
                optimizers,
                table_optimizers=self.made.get("table_optimizers", ()),
                checkpoint=self.made["checkpoint"],
                pareto_loss_weights=self._pareto(),
            )
            with self.findings.part("the export"):
                evaluation = self.pipeline["eval_config"]
                use_ema = None if evaluation is None else evaluation["use_dense_ema"]
                check_precision(self.pipeline["export_config"], self.made["train"], use_ema)

    def _pareto(self) -> bool:
        block = self.pipeline["model_config"]
        return bool(block is not None and block["use_pareto_loss_weight"] and len(self.made.get("tasks", ())) > 1)

    def _evaluate(self) -> None:
        when: Checkpoint | None = self.made.get("checkpoint")
        has_data = has_source(self.pipeline, "eval_input_path")
        data = self.pipeline["data_config"]
        with self.findings.collecting(), self.findings.part("evaluate"):
            size = None if data is None else data["eval_batch_size"]
            self.made["evaluate"] = evaluate(self.pipeline["eval_config"], size, when if has_data else None)
        with self.findings.part("model_dir"):
            self.made["model_dir"] = self.pipeline["model_dir"] or None


def _domain(block: Block) -> list[Feature]:
    """Return the feature that holds the number of an example's domain, where pepnet reads one."""
    found = block.chosen("model")
    if found is None or found[0] != "pepnet" or "domain_input_name" not in found[1]:
        return []
    name = domain_feature(found[1])
    return [RawFeature(name, column=name.removesuffix("_index"))]


def _single_items(block: Block, grouped: Groups) -> tuple[str, ...]:
    """Return the sequences that are items of two towers: here a row has one of them."""
    found = block.chosen("model")
    if found is None or found[0] != "hstu_match" or "item_tower" not in found[1]:
        return ()
    return tuple(grouped.features.get(found[1]["item_tower"]["input"], ()))


def _longest(block: Block) -> int | None:
    """Return the most elements of a sequence by the model itself; None: it has no limit."""
    found = block.chosen("model")
    return found[1].get("max_seq_len") if found is not None else None
