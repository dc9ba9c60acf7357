"""`import_config`: a complete config of TorchEasyRec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sparrow import dense
from sparrow.config.sections.config import Config
from sparrow.config.sections.data import Data
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
    """The import of one file, part by part: the problems of each are collected.

    Attributes:
      made: the sections of the config.
      data: the fields of the section ``data``.
      train: the fields of the section ``train`` that other messages than ``train_config`` give.
    """

    def __init__(self, pipeline: Block) -> None:
        self.pipeline, self.findings = pipeline, pipeline.findings
        self.made: dict[str, Any] = {"tasks": {}}
        self.data: dict[str, Any] = {}
        self.train: dict[str, Any] = {}

    def config(self) -> Config | None:
        """Return the config; None where there are problems."""
        given = self.pipeline.given
        if "data_config" in given and "feature_configs" in given:
            with self.findings.part("data.features"):
                found = entries(self.pipeline["feature_configs"], self._grouped())
            if "model_config" in given:
                self._model_and_features(found)
            self._inputs()
        checkpoint = self._train() if "train_config" in given else None
        self._evaluate(checkpoint)
        if not self.findings.problems:
            self.findings.refuse_unread()
        if self.findings.problems:
            return None
        with self.pipeline.locating():
            return Config(data=Data(**self.data), **self.made)

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
                self.data["labels"] = labels_of(block)
            with self.findings.collecting(), self.findings.part("model"):
                self.made["model"] = model(block, made, grouped)
        with self.findings.collecting(), self.findings.part("train.table_optimizers"):
            self.train["table_optimizers"] = tables.frozen(tables.by_table(made), wide_tables(block, made, grouped))
        with self.findings.collecting(), self.findings.part("data.mask"):
            self.data["mask"] = mask(data, made)
        if not block.broken and not any(field.endswith(("sampler", "sampler_v2")) for field in data.broken):
            with self.findings.collecting(), self.findings.part("data.negatives"):
                self.data |= sampled(data, block, [feature for feature, _ in made], grouped)
        self.data["features"] = (*(feature for feature, _ in made), *_domain(block))

    def _inputs(self) -> None:
        pipeline, data = self.pipeline, self.pipeline["data_config"]
        with self.findings.part("data"):
            with self.findings.collecting():
                self.data["train"] = source(pipeline, "train_input_path", data)
            if has_source(pipeline, "eval_input_path"):
                with self.findings.collecting():
                    self.data["evaluate"] = source(pipeline, "eval_input_path", data)
            else:
                text = "it is empty: nothing is evaluated; --eval_input_path FILES names data"
                pipeline.note(text, "eval_input_path")
            if not data["shuffle"]:
                data.note("shuffle is false", "shuffle_buffer_size")
            self.data |= {
                "cost": cost(data),
                # TorchEasyRec's buffer counts batches.
                "shuffle_rows": data["shuffle_buffer_size"] * data["batch_size"] if data["shuffle"] else 0,
                "drop_remainder": data["drop_remainder"],
            }

    def _train(self) -> Checkpoint | None:
        """Make the section ``train``, and return when it saves."""
        block, made_tasks, best = self.pipeline["train_config"], self.made["tasks"], None
        optimizers = optimizers_of(block)
        with self.findings.collecting(), self.findings.part("train.checkpoint.best_by"):
            best = best_by(self.pipeline["export_config"], made_tasks) if made_tasks else None
        if block.broken - {"sparse_optimizer", "dense_optimizer", "grad_clipping"}:
            return None
        if "data_config" not in self.pipeline.given:
            return None
        # With problems of the optimizers there is no config; others in their place show the problems of the rest.
        optimizers = {"sparse_optimizer": SGD(0.0), "dense_optimizer": _NO_OPTIMIZER} | optimizers
        checkpoint = None
        with self.findings.collecting(), self.findings.part("train"):
            checkpoint = checkpoint_of(block, best)
            own = self.pipeline["model_config"]
            is_pareto = own is not None and own["use_pareto_loss_weight"] and len(made_tasks) > 1
            fields = {**optimizers, **self.train, "checkpoint": checkpoint, "pareto_loss_weights": is_pareto}
            self.made["train"] = train(block, self.pipeline["data_config"]["batch_size"], **fields)
            with self.findings.part("the export"):
                evaluation = self.pipeline["eval_config"]
                use_ema = None if evaluation is None else evaluation["use_dense_ema"]
                check_precision(self.pipeline["export_config"], self.made["train"], use_ema)
        return checkpoint

    def _evaluate(self, checkpoint: Checkpoint | None) -> None:
        has_data = has_source(self.pipeline, "eval_input_path")
        data = self.pipeline["data_config"]
        with self.findings.collecting(), self.findings.part("evaluate"):
            size = None if data is None else data["eval_batch_size"]
            self.made["evaluate"] = evaluate(self.pipeline["eval_config"], size, checkpoint if has_data else None)
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
