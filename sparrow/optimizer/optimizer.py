"""`Optimizer`: one optimizer step over tables and dense parameters together."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sparrow import fields
from sparrow.dense import squared_norm
from sparrow.embedding import Embedder, EmbeddingState, PackedBatch, RowGrads, clip_factor, in_device_order
from sparrow.optimizer.precision import LossScale, LossScaleState, cast, compute_dtype
from sparrow.registry import answering


class Average(NamedTuple):
    """An exponential moving average of the dense parameters."""

    updates: jax.Array  # shape=(), dtype=int32
    params: Any

    def update(self, params: Any, decay: float) -> Average:
        """``decay * average + (1 - decay) * params``; the first update copies."""
        decays = jnp.where(self.updates == 0, 0.0, decay)
        average = jax.tree.map(
            lambda old, new: (decays * old + (1.0 - decays) * new).astype(new.dtype), self.params, params
        )
        return Average(self.updates + 1, average)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OptimizerState:
    """Everything that a training step changes: one pytree, to donate and to checkpoint.

    Attributes:
      embedding: tables, slots and the optimizer step.
      params: dense parameters, float32.
      dense: the optax state.
      ema: the average of the dense parameters, or None.
      loss_scale: the loss scale, or None.
      skipped: () int32, how many steps were skipped because a gradient was not finite.
    """

    embedding: EmbeddingState
    params: Any
    dense: Any
    ema: Average | None
    loss_scale: LossScaleState | None
    skipped: jax.Array

    @property
    def step(self) -> jax.Array:
        """How many optimizer steps were made; skipped ones do not count."""
        return self.embedding.step


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gradients:
    """The unscaled result of `Optimizer.gradients`; ``dense`` is float32. ``a + b`` accumulates micro-batches."""

    dense: Any
    rows: RowGrads
    loss: jax.Array

    def __add__(self, other: Gradients) -> Gradients:
        if not isinstance(other, Gradients):
            return NotImplemented
        dense = jax.tree.map(jnp.add, self.dense, other.dense)
        return Gradients(dense, self.rows + other.rows, self.loss + other.loss)


class StepInfo(NamedTuple):
    """Facts about a step."""

    loss: jax.Array  # mean over the micro-batches
    applied: jax.Array  # whether the step was made; False: a gradient was not finite
    grad_norm: jax.Array | None  # before clipping, over dense and row gradients; None: not asked for
    aux: Any  # the auxiliary output of loss_fn: one per micro-batch where there are several


@answering
@dataclasses.dataclass(frozen=True)
class Optimizer:
    """One step for tables and dense parameters: accumulation, loss scaling, clipping, EMA, all of them exact.

    >>> import sparrow as sp
    >>> table = sp.TableSpec(name="items", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.Adam(0.01))
    >>> emb = sp.Embedder([sp.FeatureSpec(name="item", table_spec=table)])
    >>> optimizer = Optimizer(emb, optax.adam(0.01), clip_global_norm=1.0, ema=0.999)
    >>> state = optimizer.init(emb.init(jax.random.key(0)), {"w": jnp.ones(4)})
    >>> def loss_fn(params, acts, labels):
    ...     return jnp.mean((acts["item"] @ params["w"] - labels) ** 2)
    >>> @jax.jit
    ... def train_step(state, batch, labels):
    ...     return optimizer.step(state, loss_fn, batch, labels)
    >>> state, info = train_step(state, emb.pack({"item": [1, 2]}), jnp.ones(2))
    >>> int(state.step), bool(info.applied)
    (1, True)

    Attributes:
      embedder: whose tables are trained, each by its own rule.
      tx: the optax transformation of the dense parameters. It must not accumulate by itself: give `step` several
        micro-batches instead, so that tables and dense parameters take the same step. Clipping in it acts on dense
        parameters only.
      clip_global_norm: limits the norm over dense and row gradients together; None: no limit.
      precision: the dtype of the model: "float32", "bfloat16" or "float16". Parameters and tables keep their
        own dtype.
      loss_scale: dynamic loss scaling, for float16; True: `LossScale` with its defaults.
      skip_nonfinite: whether a step with a loss or gradient that is not finite changes nothing at all; None: where a
        loss scale is used.
      ema: the decay of an average of the dense parameters; None: no average.
      params_sharding: how `init` splits dense parameters over the mesh of the tables: a ``jax.sharding.Sharding`` for
        all, or a tree of them, with None for parameters that every device holds; None: every device holds all. Where
        XLA chooses other shardings for a step's results, ``jax.jit``'s ``out_shardings`` keep them.
    """

    embedder: Embedder
    tx: optax.GradientTransformation
    clip_global_norm: fields.Positive | None = None
    precision: str = "float32"
    loss_scale: LossScale | bool | None = None
    skip_nonfinite: bool | None = None
    ema: fields.Share | None = None
    params_sharding: Any = dataclasses.field(default=None, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.embedder, Embedder):
            raise TypeError(f"Optimizer.embedder must be a sparrow.Embedder, got {self.embedder!r}")
        fields.check(self)
        object.__setattr__(self, "precision", compute_dtype(self.precision))
        if isinstance(self.loss_scale, bool):
            object.__setattr__(self, "loss_scale", LossScale() if self.loss_scale else None)
        if self.loss_scale is not None and self.skip_nonfinite is False:
            raise ValueError("Optimizer.skip_nonfinite=False does not go with a loss scale, which works by skipping")
        if self.skip_nonfinite is None:
            object.__setattr__(self, "skip_nonfinite", self.loss_scale is not None)

    def init(self, embedding: EmbeddingState, params: Any) -> OptimizerState:
        """Return the state before the first step.

        Where the tables are on a mesh, everything else is placed there, too: on every device, except parameters that
        are on the mesh already, as the caller has split them, and their optax state.
        """
        place = self.embedder.on_its_devices
        params = place(_split(params, self.params_sharding))
        dense = place(self.tx.init(params))
        if any(map(_accumulates, jax.tree.leaves(dense, is_leaf=_accumulates))):
            raise ValueError(
                "Optimizer.tx accumulates (optax.MultiSteps, or dense.build with accumulate), which would leave the "
                "tables out; give Optimizer.step several micro-batches instead"
            )
        ema = None if self.ema is None else Average(jnp.zeros((), jnp.int32), jax.tree.map(jnp.array, params))
        return OptimizerState(
            embedding=embedding,
            params=params,
            dense=dense,
            ema=place(ema),
            loss_scale=place(self.loss_scale.init()) if isinstance(self.loss_scale, LossScale) else None,
            skipped=place(jnp.zeros((), jnp.int32)),
        )

    def step(
        self,
        state: OptimizerState,
        loss_fn: Callable[..., Any],
        batch: PackedBatch | Sequence[PackedBatch],
        *args: Any,
        has_aux: bool = False,
        grad_norm: bool = False,
    ) -> tuple[OptimizerState, StepInfo]:
        """One optimizer step.

        Args:
          state: donate it, and the tables are updated in place.
          loss_fn: ``loss_fn(params, acts, *args)``, the mean loss of a batch, or ``(loss, aux)`` with ``has_aux``.
          batch: a packed batch, or a sequence of k micro-batches of one size: the step then equals the step on the
            concatenated batch, and each of ``args`` is a sequence of k.
          args: further arguments of ``loss_fn``, such as labels.
          has_aux: whether ``loss_fn`` returns an auxiliary output besides the loss.
          grad_norm: whether to report the gradient norm even where nothing is clipped.
        """
        is_alone = isinstance(batch, PackedBatch)
        given, args = ([batch], tuple([arg] for arg in args)) if isinstance(batch, PackedBatch) else (batch, args)
        state, assigned = self.assign(state, given)
        count = len(given)
        if not count or any(len(arg) != count for arg in args):
            counts = ", ".join(str(len(arg)) for arg in args)
            raise ValueError(f"{count} micro-batches need {count} of every other argument of loss_fn, got {counts}")
        micro = [
            self.gradients(state, loss_fn, *inputs, has_aux=has_aux, weight=1.0 / count)
            for inputs in zip(assigned, *args, strict=True)
        ]
        total = functools.reduce(operator.add, (grads for grads, _ in micro))
        aux = micro[0][1] if is_alone else [aux for _, aux in micro] if has_aux else None
        return self.apply(state, total, aux=aux, grad_norm=grad_norm, batches=assigned)

    def assign(
        self, state: OptimizerState, batches: Sequence[PackedBatch], when: jax.Array | None = None
    ) -> tuple[OptimizerState, list[PackedBatch]]:
        """Give rows to the ids of dynamic tables in the micro-batches of a step, as `Embedder.assign` does.

        `step` does it; a loop that calls `gradients` and `apply` begins with it, and gives `apply` the batches.
        """
        embedding, made = state.embedding, []
        for batch in batches:
            embedding, assigned = self.embedder.assign(embedding, batch, when=when)
            made.append(assigned)
        return (state if embedding is state.embedding else dataclasses.replace(state, embedding=embedding)), made

    def gradients(
        self,
        state: OptimizerState,
        loss_fn: Callable[..., Any],
        batch: PackedBatch,
        *args: Any,
        has_aux: bool = False,
        weight: float | jax.Array = 1.0,
        acts: Any = None,
    ) -> tuple[Gradients, Any]:
        """Return the gradients of one (micro-)batch times ``weight``, without the loss scale; and aux.

        Gradients of parameters are float32; gradients of activations stay in the model's precision unless scaled.
        ``acts``: activations that were found before, by feature name; others are looked up.
        """
        batch = self.embedder.exchange(batch)  # once for both directions
        is_alone = isinstance(weight, int | float) and weight == 1.0
        if is_alone:
            acts, batch = self.embedder.lookup_for_update(state.embedding, batch, self.precision, acts)
        else:  # one of several micro-batches, whose entries are sorted together
            acts = self.embedder.lookup(state.embedding, batch, self.precision, acts)
        scale = jnp.float32(1.0) if state.loss_scale is None else state.loss_scale.scale

        def scaled_loss(params: Any, acts: Any, args: Any) -> tuple[jax.Array, tuple[jax.Array, Any]]:
            result = loss_fn(cast(params, self.precision), acts, *args)
            loss, aux = result if has_aux else (result, None)
            if jnp.shape(loss):
                raise ValueError(f"loss_fn must return one number, got the shape {jnp.shape(loss)}; take its mean")
            loss = loss.astype(jnp.float32)
            return loss * scale, (loss, aux)

        gradient = jax.grad(scaled_loss, argnums=(0, 1), has_aux=True)
        if self.params_sharding is None:
            examples = {act.shape[0] for act in jax.tree.leaves(acts)}
            gradient = in_device_order(self.embedder.shards, gradient, split=(False, True, True), examples=examples)
        (grads, act_grads), (loss, aux) = gradient(state.params, acts, args)
        # Before anything looks at them: max_gradient and norms are of the true gradients.
        grads = cast(grads, "float32")
        if not is_alone or state.loss_scale is not None:
            grads, act_grads = jax.tree.map(lambda g: g.astype(jnp.float32) * (weight / scale), (grads, act_grads))
        return Gradients(grads, self.embedder.row_grads(batch, act_grads), weight * loss), aux

    def all_finite(self, grads: Gradients) -> jax.Array:
        """Whether the loss and every gradient are finite."""
        leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(grads.dense)]
        return jnp.stack([jnp.isfinite(grads.loss), grads.rows.all_finite(), *leaves]).all()

    def apply(
        self,
        state: OptimizerState,
        grads: Gradients,
        *,
        aux: Any = None,
        grad_norm: bool = False,
        when: jax.Array | None = None,
        batches: Sequence[PackedBatch] = (),
    ) -> tuple[OptimizerState, StepInfo]:
        """One update of everything from accumulated gradients, or none of anything where they are not finite.

        ``batches``: all that `assign` gave for this step, so that a skipped step also leaves ids as they were.

        With ``when``, which needs ``skip_nonfinite``, nothing changes either where that is false, and such a step does
        not count as skipped.
        """
        if when is not None and not self.skip_nonfinite:
            raise ValueError("Optimizer.apply takes when= only with skip_nonfinite=True")
        dense, rows = grads.dense, grads.rows
        when = jnp.array(True) if when is None else when
        finite = jnp.array(True)
        if self.skip_nonfinite:
            finite = self.all_finite(grads) & when
        norm = None
        if grad_norm or self.clip_global_norm is not None:
            norm = jnp.sqrt(squared_norm(dense) + jnp.square(rows.global_norm()))
        if norm is not None and self.clip_global_norm is not None:
            factor = clip_factor(norm, self.clip_global_norm)
            dense, rows = jax.tree.map(lambda g: g * factor, dense), rows.scale(factor)

        updates, dense_state = self.tx.update(dense, state.dense, state.params)
        params = optax.apply_updates(state.params, updates)
        # Tables are too large to keep a second one: a skipped step touches no row at all.
        embedding = self.embedder.apply(state.embedding, rows.only_if(finite) if self.skip_nonfinite else rows)
        if self.skip_nonfinite:
            embedding = self.embedder.undo(embedding, batches, ~finite)
        ema = None if self.ema is None or state.ema is None else state.ema.update(params, self.ema)

        new = OptimizerState(embedding, params, dense_state, ema, state.loss_scale, state.skipped)
        if self.skip_nonfinite:
            new = _keep_unless(finite, state, new)
            new = dataclasses.replace(new, skipped=state.skipped + (when & ~finite).astype(jnp.int32))
        if isinstance(self.loss_scale, LossScale) and state.loss_scale is not None:
            scale = self.loss_scale.update(state.loss_scale, finite)
            new = dataclasses.replace(new, loss_scale=_chosen(when, scale, state.loss_scale))
        return new, StepInfo(grads.loss, finite, norm, aux)

    def swap_ema(self, state: OptimizerState) -> OptimizerState:
        """Return the state with dense parameters and their average exchanged: once to evaluate, again to train."""
        if state.ema is None:
            raise ValueError("this Optimizer keeps no average: give it ema=0.999, for example")
        return dataclasses.replace(state, params=state.ema.params, ema=state.ema._replace(params=state.params))


def _split(params: Any, shardings: Any) -> Any:
    def is_leaf(node: Any) -> bool:
        return node is None or isinstance(node, jax.sharding.Sharding)

    def put(sharding: Any, part: Any) -> Any:
        return part if sharding is None else jax.device_put(part, sharding)

    return jax.tree.map(put, shardings, params, is_leaf=is_leaf)


def _accumulates(state: Any) -> bool:
    return isinstance(state, optax.MultiStepsState)


def _keep_unless(finite: jax.Array, old: OptimizerState, new: OptimizerState) -> OptimizerState:
    """Return ``new`` where the step was finite, else ``old``. Tables stay: none of their rows was changed."""
    now, before = ((each.params, each.dense, each.ema, each.embedding.step) for each in (new, old))
    params, dense, ema, step = _chosen(finite, now, before)
    embedding = dataclasses.replace(new.embedding, step=step)
    return dataclasses.replace(new, embedding=embedding, params=params, dense=dense, ema=ema)


def _chosen(condition: jax.Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
