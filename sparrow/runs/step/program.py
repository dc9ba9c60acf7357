"""`Program`: a config as the functions and the state that a run works with."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from sparrow.config import Assembly, Config, ConfigError, assemble, need, optimizer, problems_of
from sparrow.data import Batch, Growing, ItemCounts
from sparrow.embedding import Embedder, EmbeddingState, Ragged
from sparrow.feed import Feed, Preparer
from sparrow.losses import Platt, pareto_weights
from sparrow.models import Complete, Functional, Inputs, NumberEmbeddings, functional
from sparrow.optimizer import Optimizer, OptimizerState, cast
from sparrow.registry import nearest
from sparrow.runs.recorded.traffic import Traffic
from sparrow.runs.step.calls import one_by_one
from sparrow.runs.step.compiling import Compiled
from sparrow.runs.step.memory import refuse_large_layers, refuse_large_tables
from sparrow.runs.step.on_mesh import for_this_host, kept_everywhere, mesh_of
from sparrow.tasks import POSITIONS, Scores, States, predictions, total_loss

Use = Literal["train", "evaluate", "predict"]
"""The use of batches."""
MOST_IN_CALL: Final = 8
"""The most steps of a call, where the config gives none: a GPU is then busy three times as long as a call takes."""
IN_CALL: Final = 2**17
"""Examples of such a call: steps with larger batches keep a GPU busy by themselves."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """The values that a training step changes; donated to it.

    Attributes:
      optimizer: tables, dense parameters and their optimizer state.
      rest: values that the model itself changes: keys of dropout, batch statistics.
      metrics: the states of the metrics of training.
    """

    optimizer: OptimizerState
    rest: Any
    metrics: States

    def parts(self) -> dict[str, Any]:
        """Return the state without tables and slots, as one tree whose paths are the names in a checkpoint."""
        embedding = self.optimizer.embedding
        optimizer: Any = dataclasses.replace(self.optimizer, embedding=None)  # type: ignore[arg-type]
        return {
            "embedding": {"step": embedding.step, "seed": embedding.seed},
            "optimizer": optimizer,
            "rest": self.rest,
            "metrics": self.metrics,
        }

    @classmethod
    def joined(cls, embedding: EmbeddingState, parts: Mapping[str, Any]) -> TrainState:
        """Return the state of `parts` and the tables."""
        embedding = dataclasses.replace(embedding, **parts["embedding"])
        optimizer = dataclasses.replace(parts["optimizer"], embedding=embedding)
        return cls(optimizer, parts["rest"], parts["metrics"])


@dataclasses.dataclass(frozen=True)
class Program:
    """A config, ready to run. `Program.of` makes it.

    Attributes:
      config: the config that it was made from.
      assembly: the features, lookups and model inputs.
      embedder: the tables.
      optimizer: the optimizer of tables and dense parameters.
      apply: the model.
      fresh: parameters and rest of the model before the first step.
      item_counts: the frequency of each item in the data to train on, for in-batch negatives; None: not used.
      has_statistics: whether the model keeps statistics of batches.
      id_kinds: whether columns of ids held integers or strings in training, where the two are different ids.
    """

    config: Config
    assembly: Assembly
    embedder: Embedder
    optimizer: Optimizer
    apply: Functional
    fresh: tuple[Any, Any]
    item_counts: ItemCounts | None = None
    has_statistics: bool = False
    id_kinds: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> Program:
        """Build everything, or raise `ConfigError` for parts that do not fit together."""
        assembly = assemble(config)
        section = need(config.model, "model")
        mesh = mesh_of(config)
        complete = Complete(section.architecture, section.encoders, section.variational_dropout)

        def model_of(inputs: Inputs, rngs: nnx.Rngs) -> nnx.Module:
            return complete.build(inputs, rngs=rngs)

        def build() -> Any:
            rngs = nnx.Rngs(config.train.seed)
            if assembly.embeddings:
                return NumberEmbeddings(model_of, assembly.inputs, assembly.embeddings, rngs=rngs)
            return model_of(assembly.inputs, rngs)

        with problems_of("model"):
            apply, params, rest, has_statistics = _built(build)
        with problems_of("train", "mesh"):
            places = config.train.mesh
            dtype = "float32" if places is None else places.exchange_dtype
            given = "rows" if places is None or places.placement == "auto" else places.placement
            embedder = Embedder(assembly.specs, mesh=mesh, placement=given, exchange_dtype=dtype)
        with problems_of("train", "dense_optimizer"):  # patterns of parameters are known to match, or not, only here
            trainer = optimizer(config.train, embedder)
            jax.eval_shape(trainer.tx.init, params)
        refuse_calls(config, embedder)
        return cls(*(config, assembly, embedder, trainer, apply, (params, rest)), has_statistics=has_statistics)

    def preparer(self, traffic: Traffic | None = None, *, use: Use = "evaluate") -> Preparer:
        """Return the work of a pipeline's thread on each batch. Each pipeline has its own, with its own sizes.

        ``use``: the use of the batches.
        """
        pads = may_pad(self.config, use, has_statistics=self.has_statistics)
        return Preparer(self.embedder, self.assembly.content(self.config.tasks), traffic, self.item_counts, pads=pads)

    @property
    def steps_per_call(self) -> int:
        """The steps of a call where nothing is due between them, as given, or chosen for the device.

        A call waits for all of its batches: data that grows would train late, and what is due by the time of the data
        would come late. Where the log's interval has a divisor, no step is left before a line, which would need a
        program of its own.
        """
        train, data = self.config.train, self.config.data
        if train.steps_per_call is not None:
            return train.steps_per_call
        by_time = data is not None and (isinstance(data.train, Growing) or data.time_column is not None)
        if train.pipeline == "stale" or by_time:
            return 1
        most = self.batches_per_call(train.batch_size * train.accumulate)
        return max((n for n in range(2, most + 1) if train.log_every_steps % n == 0), default=most)

    def batches_per_call(self, examples: int) -> int:
        """Return the batches of a call on this device, of ``examples`` each, where nothing is due between them."""
        if jax.default_backend() == "cpu" or self.embedder.shards is not None:
            return 1
        return max(1, min(MOST_IN_CALL, IN_CALL // examples))

    @functools.cached_property
    def train_scores(self) -> Scores:
        return Scores(self.config.tasks, train=True, windows=self.config.evaluate.windows is not None)

    @functools.cached_property
    def predictions(self) -> Compiled:
        """From the optimizer's state, the rest and a call's batches to the predictions, by column; compiled once."""

        def predicted(optimizer: OptimizerState, rest: Any, feeds: tuple[Feed, ...]) -> dict[str, jax.Array]:
            def of_batch(_: None, feed: Feed) -> tuple[None, dict[str, jax.Array]]:
                return None, predictions(self.config.tasks, self.outputs(optimizer, rest, feed))

            everywhere: dict[str, jax.Array] = for_this_host(self.embedder, one_by_one(of_batch, None, feeds, 0)[1])
            return everywhere

        return Compiled("prediction", predicted, batch=2)

    def calibrated(self, by_task: Mapping[str, Sequence[float]]) -> Program:
        """Return the program with the predictions of these tasks scaled by slope and intercept."""
        if not by_task:
            return self
        scaled = {name: self.config.tasks[name].calibrated(Platt(*values)) for name, values in by_task.items()}
        config = self.config.model_copy(update={"tasks": {**self.config.tasks, **scaled}})
        return dataclasses.replace(self, config=config)

    def completed(self, batch: Batch) -> Batch:
        """Return rows of some features with missing values for all others, such as those of the other tower."""
        count = len(batch)
        ids, numbers, sequences = dict(batch.ids), dict(batch.numbers), dict(batch.sequences)
        for feature in (each for own in self.assembly.features for each in own.outputs):
            if any(feature.name in part for part in (ids, numbers, sequences)):
                continue
            if feature.part == "numbers":
                numbers[feature.name] = np.zeros((count, feature.width), np.float32)
            elif feature.part == "ids":
                ids[feature.name] = Ragged(np.zeros(0, np.int32), np.zeros(count + 1, np.int64))
            else:
                empty = np.zeros((0, feature.width), np.float32)
                sequences[feature.name] = Ragged(empty, np.zeros(count + 1, np.int64))
        return dataclasses.replace(batch, ids=ids, numbers=numbers, sequences=sequences)

    def init(self) -> TrainState:
        """Return the state before the first step, which depends on the seed alone."""
        embedding = self.embedder.init(jax.random.key(self.config.train.seed))
        if self.config.train.checkpoint.deltas is not None or self.config.export is not None:
            with problems_of(*(("export",) if self.config.export is not None else ("train", "checkpoint", "deltas"))):
                embedding = self.embedder.tracked(embedding)
        if self.embedder.shards is None:
            optimizer, *others = jax.jit(self._others)(*self.fresh)  # one program: each operation outside has its own
        else:
            optimizer, *others = self.embedder.on_its_devices(self._others(*self.fresh))
        return TrainState(dataclasses.replace(optimizer, embedding=embedding), *others)

    def _others(self, params: Any, rest: Any) -> tuple[OptimizerState, Any, States]:
        """Return the first state without the tables, from copies: a step donates its buffers."""
        params, rest = jax.tree.map(jnp.copy, (params, rest))
        without: Any = None
        return self.optimizer.init(without, params), rest, self.train_scores.init()

    def allocated(self) -> TrainState:
        """Return `init`, or raise `ConfigError` with the numbers where the memory cannot hold it."""
        refuse_large_tables(self.embedder)
        return self.init()

    def loss(self, params: Any, acts: Any, rest: Any, feed: Feed) -> tuple[jax.Array, tuple[Any, ...]]:
        """Return the total loss of a batch, its terms by task, the model's outputs, and its new rest."""
        acts = self._of_examples(acts, feed)
        before = rest  # the same keys of dropout for the gradients of the tasks
        outputs, rest = self.apply.train(params, rest, *self.padded(acts, feed))
        total, terms = total_loss(self.config.tasks, outputs, feed.columns)
        outputs = {name: output for name, output in outputs.items() if name != POSITIONS}
        if self.config.train.pareto_loss_weights:
            weights = self._pareto_weights(params, acts, before, feed)
            total = total + sum((weight - 1) * terms[task] for task, weight in weights.items())
        return total, (terms, outputs, rest)

    def _pareto_weights(self, params: Any, acts: Any, rest: Any, feed: Feed) -> dict[str, jax.Array]:
        """Return the weight of each task: constants, of the gradients of the dense parameters."""
        tasks = self.config.tasks

        def losses_of(params: Any) -> jax.Array:
            outputs, _ = self.apply.train(params, rest, *self.padded(jax.lax.stop_gradient(acts), feed))
            _, terms = total_loss(tasks, outputs, feed.columns)
            return jnp.stack([terms[task] for task in tasks])

        jacobian = jax.jacrev(losses_of)(jax.lax.stop_gradient(params))
        rows = [leaf.reshape(len(tasks), -1).astype(jnp.float32) for leaf in jax.tree.leaves(jacobian)]
        gram = functools.reduce(jnp.add, [row @ row.T for row in rows])
        floors = jnp.array([task.pareto_min_loss_weight for task in tasks.values()])
        return dict(zip(tasks, jax.lax.stop_gradient(pareto_weights(gram, floors)), strict=True))

    def outputs(self, state: OptimizerState, rest: Any, feed: Feed) -> Mapping[str, jax.Array]:
        """Return the model's outputs for a batch, without dropout, in the precision that it is trained in."""
        acts = self.embedder.lookup(state.embedding, feed.packed)
        return self.forward(state.params, rest, *self.padded(self._of_examples(acts, feed), feed))

    def _of_examples(self, acts: dict[str, Any], feed: Feed) -> dict[str, Any]:
        """Return what `Feed.examples` does; on every device where the devices cannot share the examples evenly."""
        acts, shards = feed.examples(acts), self.embedder.shards
        if shards is None or feed.size % shards.count == 0:
            return acts
        return {
            name: act if feed.has_rows(acts, name) else kept_everywhere(self.embedder, act)
            for name, act in acts.items()
        }

    def padded(self, acts: Mapping[str, jax.Array], feed: Feed) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the activations and numbers as the model takes them: ordered ones are `sparrow.Sequence`."""
        lengths, bags = self.assembly.lengths, self.assembly.bags
        jagged, given = feed.packed.jagged(acts), feed.sequences
        pooled = {name: jagged.pop(name).pool(given[sizes], by) for name, (by, sizes) in bags.items()}
        given = {name: held for name, held in given.items() if name in lengths} | pooled
        sequences: dict[str, Any] = {name: held.pad(lengths[name]) for name, held in jagged.items()}
        sequences = self._of_examples(sequences, feed)
        numbers = {name: held.pad(lengths[name]) for name, held in given.items()}
        shards = self.embedder.shards
        if shards is None:
            sequences = {name: held._replace(jagged=jagged[name]) for name, held in sequences.items()}
            numbers = {name: held._replace(jagged=given[name]) for name, held in numbers.items()}
        elif feed.size % shards.count == 0:
            sequences, numbers = (
                {name: held._replace(shards=shards) for name, held in each.items()} for each in (sequences, numbers)
            )
        sequences |= {name: numbers.pop(name) for name in pooled}
        return {**acts, **sequences}, {**feed.numbers, **numbers}

    def forward(self, params: Any, rest: Any, acts: Any, numbers: Any) -> Mapping[str, jax.Array]:
        """Return the model's outputs from the activations, as `outputs` does after the lookup."""
        precision = self.optimizer.precision
        return self.apply.predict(cast(params, precision), rest, cast(acts, precision), numbers)

    def check(self, state: TrainState, feed: Feed, *scores: Scores) -> None:
        """Trace losses and metrics on a batch; raise `ConfigError` for outputs, labels and metrics that do not fit."""

        def everything(state: TrainState, feed: Feed) -> Any:
            outputs = self.outputs(state.optimizer, state.rest, feed)
            for name in self.config.tasks:
                _check_output(name, self.config, outputs)
            total = total_loss(self.config.tasks, outputs, feed.columns)
            return total, [
                (each.update(each.init(), outputs, feed.columns), each.for_host(outputs, feed.columns))
                for each in scores
            ]

        try:
            with problems_of("tasks"):
                _, found = jax.eval_shape(everything, state, feed)
                for each, (_, for_host) in zip(scores, found, strict=True):
                    each.rehearse(for_host)
        except TypeError as error:
            raise ConfigError(str(error).splitlines()[0], at=("tasks",)) from None


def _built(build: Callable[[], nnx.Module]) -> tuple[Functional, Any, Any, bool]:
    """Return a model as functions, its parameters and its rest, which one program makes, unless they are too large.

    Also return whether the model keeps statistics of batches.
    """
    made = []

    def values() -> tuple[Any, Any]:
        model = build()
        apply, params, rest = functional(model)
        made.append((apply, bool(nnx.state(model, nnx.BatchStat))))
        return params, rest

    traced = jax.jit(values).trace()
    refuse_large_layers(traced.out_info)
    params, rest = traced.lower().compile()()
    apply, has_statistics = made[0]
    return apply, params, rest, has_statistics


def _check_output(name: str, config: Config, outputs: Mapping[str, Any]) -> None:
    if name in outputs or "query" in outputs or ("logits" in outputs and len(config.tasks) == 1):
        return
    if "logits" in outputs:
        problem = f"the model has one output, and the config {len(config.tasks)} tasks; keep one, or use mmoe"
        raise ConfigError(problem, at=("tasks",))
    raise ConfigError(f"the model has no such output: {nearest(name, outputs)}", at=("tasks", name))


def refuse_calls(config: Config, embedder: Embedder) -> None:
    """Raise `ConfigError` where ``train.steps_per_call`` cannot be honored: where the host works between steps."""
    if config.train.steps_per_call in (None, 1):
        return
    if config.train.pipeline == "stale" or (config.train.pipeline == "patch" and embedder.shards is not None):
        why = f"cannot be used with train.pipeline: {config.train.pipeline} so far; leave one of them out"
        raise ConfigError(why, at=("train", "steps_per_call"))


def may_pad(config: Config, use: Use, *, has_statistics: bool = False) -> bool:
    """Return whether rows of padding change no result: no example of a batch may depend on another one.

    Where examples are compared (softmax over the batch, sessions, drawn negatives) or normalized together (batch
    normalization in training, variational dropout), and for models and losses of your own that are not known to be
    per example, the short last batch keeps its size and has a program of its own.
    """
    model, data = need(config.model, "model"), need(config.data, "data")
    encoders = [record for records in model.encoders.values() for record in records]
    if not all(part.is_per_example for part in (model.architecture, *encoders)):
        return False
    if use == "predict":
        return True
    losses = [loss for task in config.tasks.values() for loss in task.losses]
    if data.negatives is not None or data.tree is not None or not all(loss.is_per_example for loss in losses):
        return False
    if use == "evaluate":
        return True
    return not (data.drop_remainder or has_statistics or model.variational_dropout is not None)
