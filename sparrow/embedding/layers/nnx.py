"""The Embedder as a Flax NNX layer, and the two calls that train a model with such layers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh

from sparrow.embedding.embedder import Embedder
from sparrow.embedding.guards import untrained
from sparrow.embedding.layers.model_gradients import Gradients, check, sum_calls
from sparrow.embedding.packed_batch import PackedBatch
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.state import EmbeddingState
from sparrow.registry import answering

__all__ = ["Embed", "Gradients", "Optimizer", "value_and_grad"]


def __dir__() -> list[str]:
    return __all__


_ADVICE = (
    "nnx.value_and_grad (or nnx.grad) does not reach the tables of this sp.nnx.Embed. Write "
    "loss, grads = sp.nnx.value_and_grad(loss_fn)(model, ...) in its place, or embed.prepare(batch), with the batch of "
    "every call of the layer, right before it; then optimizer = sp.nnx.Optimizer(model, tx) and "
    "optimizer.update(model, grads). To leave the tables as they are, look up outside of it"
)


class Tables(nnx.Variable[EmbeddingState]):
    """Holds tables, slots and step. Not an ``nnx.Param``: dense optimizers and ``nnx.grad`` pass it by."""


class Anchor(nnx.Param[jax.Array]):
    """One number, zero, that shows a layer that it is differentiated. An ``nnx.Param``: ``nnx.grad`` includes it."""


class Probe(nnx.Param[tuple[dict[str, jax.Array], ...]]):
    """Zeros that are added to the activations of each prepared call: their gradient is that at the activations.

    Empty between steps. An ``nnx.Param``, so that ``nnx.grad`` includes it by default.
    """


class Batches(nnx.Variable[tuple[PackedBatch, ...]]):
    """Holds the batches of the prepared calls, from ``value_and_grad`` to the update."""


@answering
class Embed(nnx.Module):
    """Tables inside an NNX model, which looks them up in its ``__call__`` and trains as any other.

    >>> import sparrow as sp
    >>> table = sp.TableSpec(name="items", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.Adagrad(0.1))
    >>> class Model(nnx.Module):
    ...     def __init__(self, rngs):
    ...         self.embed = sp.nnx.Embed([sp.FeatureSpec(name="item", table_spec=table)], rngs=rngs)
    ...         self.head = nnx.Linear(4, 1, rngs=rngs)
    ...     def __call__(self, batch):
    ...         return self.head(self.embed(batch)["item"])[:, 0]
    >>> def loss_fn(model, batch, labels):
    ...     return optax.sigmoid_binary_cross_entropy(model(batch), labels).mean()
    >>> @functools.partial(nnx.jit, donate_argnums=(0, 1))  # donated: tables are updated in place
    ... def train_step(model, optimizer, batch, labels):
    ...     loss, grads = sp.nnx.value_and_grad(loss_fn)(model, batch, labels)
    ...     optimizer.update(model, grads)
    ...     return loss
    >>> model = Model(nnx.Rngs(0))
    >>> optimizer = sp.nnx.Optimizer(model, optax.adam(1e-3))
    >>> batch = model.embed.pack({"item": [1, 2]})
    >>> losses = [train_step(model, optimizer, batch, jnp.ones(2)) for _ in range(5)]
    >>> bool(losses[-1] < losses[0]), int(model.embed.state.get_value().step)
    (True, 5)
    """

    def __init__(
        self,
        features: Sequence[Any] | Mapping[str, Any] | Embedder,
        *,
        rngs: nnx.Rngs,
        backend: str = "auto",
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] = "data",
        exchange: str = "auto",
    ) -> None:
        """Draw the tables.

        Args:
          features: the features, or a ready Embedder, which has its own backend, mesh, axis and exchange.
          rngs: the tables are drawn from ``rngs.params()``.
          backend: as of the Embedder, and so are ``mesh``, ``axis`` and ``exchange``.
          mesh: the mesh that the tables are split over; None: one device.
          axis: the axis of the mesh, or several.
          exchange: the way in which rows travel between devices.
        """
        if isinstance(features, Embedder):
            options = {"backend": (backend, "auto"), "mesh": (mesh, None), "axis": (axis, "data")}
            options["exchange"] = (exchange, "auto")
            if own := [name for name, (given, default) in options.items() if given != default]:
                raise ValueError(f"{', '.join(own)} belong to the Embedder, which is given ready-made: set them there")
            self.embedder = features
        else:
            self.embedder = Embedder(features, backend, mesh, axis, exchange)
        self.state = Tables(self.embedder.init(rngs.params()))
        self.anchor = Anchor(self.embedder.on_its_devices(jnp.zeros(())))
        self.probe = Probe(())
        self.batches = Batches(())
        self.recording = False

    def pack(self, inputs: Any, **options: Any) -> PackedBatch:
        """Call `Embedder.pack`, on the host."""
        return self.embedder.pack(inputs, **options)

    def __call__(self, batch: PackedBatch) -> Any:
        """Activations by feature, or in the structure of the features."""
        batch = self.embedder.exchange(batch)  # once, for the gradients too
        acts = self.embedder.lookup(self.state.get_value(), batch)
        probe, used = self.probe.get_value(), self.batches.get_value()
        prepared = len(used) < len(probe)
        if prepared or self.recording:
            self.batches.set_value((*used, batch))
        if prepared:
            return _moved(acts, probe[len(used)])
        return acts if self.embedder.frozen else untrained(acts, self.anchor.get_value(), _ADVICE)

    def prepare(self, *batches: PackedBatch) -> None:
        """Take the gradients of the next calls, one per batch. `value_and_grad` calls this by itself.

        Call it inside the training step, right before ``nnx.value_and_grad``. The update ends it.
        """
        if self.batches.get_value():
            raise ValueError(
                "the last gradients of this sp.nnx.Embed were not used, and a sum of two would be lost on its tables: "
                "accumulate with optimizer.gradients(model, grads), which can be added, or drop them with embed.reset()"
            )
        self.probe.set_value(tuple(map(self.embedder.zeros, batches)))

    def reset(self) -> None:
        """Drop prepared calls, and gradients that were taken and not used."""
        self.probe.set_value(())
        self.batches.set_value(())

    def update(self, batch: PackedBatch, act_grads: Any) -> None:
        """One optimizer step of the tables alone, from the gradients of the activations."""
        self.apply(self.embedder.row_grads(batch, act_grads))

    def apply(self, grads: RowGrads) -> None:
        """One optimizer step of the tables alone, from row gradients."""
        self.state.set_value(self.embedder.apply(self.state.get_value(), grads))

    def table(self, name: str) -> jax.Array:
        """Return the logical table."""
        return self.embedder.table(self.state.get_value(), name)

    def set_table(self, name: str, table: Any) -> None:
        """Replace the values of a table, as `Embedder.with_table` does."""
        self.state.set_value(self.embedder.with_table(self.state.get_value(), name, table))


def value_and_grad(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``nnx.value_and_grad``, with the same arguments and results, which takes the gradients of the tables too.

    Trace ``f`` once more, without running it, to find the calls of every `Embed` in its arguments. The result holds,
    besides the gradients of the parameters, those at the activations of each call, for `Optimizer.update`.
    """
    transformed = nnx.value_and_grad(f, **options)

    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        layers = _layers((args, kwargs))
        for name, batches in _calls(f, args, kwargs).items():
            layers[name].prepare(*batches)
        try:
            return transformed(*args, **kwargs)
        finally:
            for layer in layers.values():
                layer.probe.set_value(())

    return wrapper


@answering
class Optimizer(nnx.Optimizer[Any]):
    """``nnx.Optimizer`` for models with `Embed` layers: ``tx`` updates the parameters, each table's rule the table.

    Accumulate micro-batches with `gradients`::

        total = None
        for batch, labels in micro_batches:
            loss, grads = sp.nnx.value_and_grad(loss_fn)(model, batch, labels)
            grads = optimizer.gradients(model, grads)
            total = grads if total is None else total + grads
        optimizer.update(model, total.scale(1 / len(micro_batches)))
    """

    def __init__(
        self,
        model: Any,
        tx: optax.GradientTransformation,
        *,
        wrt: Any = nnx.Param,
        clip_global_norm: float | None = None,
    ) -> None:
        """Prepare the optax state of the parameters.

        Args:
          model: the model whose tables and parameters are trained.
          tx: the optax transformation of the parameters. It must not accumulate by itself, and clips their gradients
            alone where it clips.
          wrt: the filter of the parameters, as in ``nnx.Optimizer``.
          clip_global_norm: limits the norm of the gradients of parameters and rows together; None: no limit.
        """
        if jax.tree.leaves(nnx.state(model, nnx.All(wrt, Tables))):
            raise ValueError(
                "wrt selects the tables, which an optax transformation cannot train: each is trained by the rule in "
                "its TableSpec; give the filter of the other parameters, such as wrt=nnx.Param"
            )
        super().__init__(model, tx, wrt=nnx.All(wrt, nnx.Not(nnx.Any(Anchor, Probe))))
        check(self.opt_state, clip_global_norm)
        self.clip_global_norm = clip_global_norm

    def gradients(self, model: Any, grads: Any) -> Gradients:
        """Return the gradients of one `value_and_grad`: a value to add, scale and measure before one `update`."""
        taken = {_name(path): probe.get_value() for path, probe in _probes(grads)}
        rows, embedders = {}, []
        for name, layer in _layers(model).items():
            batches, act_grads = layer.batches.get_value(), taken.get(name, ())
            if len(batches) != len(act_grads):
                raise ValueError(
                    f"the layer '{name}' was called {len(batches)} times since the last update, but grads hold "
                    f"the gradients of {len(act_grads)} calls: give this model the grads of its last "
                    "sp.nnx.value_and_grad(loss_fn)(model, ...), once"
                )
            if batches:
                rows[name] = sum_calls(layer.embedder, batches, act_grads)
                embedders.append((name, layer.embedder))
            layer.reset()
        return Gradients(nnx.state(grads, self.wrt), rows, tuple(embedders))

    def update(self, model: Any, grads: Any, /, **kwargs: Any) -> optax.Updates:
        """One optimizer step of the model and its tables, from the result of `value_and_grad` or from `Gradients`."""
        total = grads if isinstance(grads, Gradients) else self.gradients(model, grads)
        if self.clip_global_norm is not None:
            total = total.clip(self.clip_global_norm)
        layers = _layers(model)
        for name, rows in total.rows.items():
            layers[name].apply(rows)
        return super().update(model, total.dense, **kwargs)


def _calls(f: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, tuple[PackedBatch, ...]]:
    """Return the batches, as shapes, that ``f`` calls each layer with."""

    def record() -> dict[str, tuple[PackedBatch, ...]]:
        copies = nnx.clone((args, kwargs))
        layers = _layers(copies)
        for layer in layers.values():
            layer.reset()
            layer.recording = True
        f(*copies[0], **copies[1])
        return {name: layer.batches.get_value() for name, layer in layers.items()}

    calls: dict[str, tuple[PackedBatch, ...]] = jax.eval_shape(record)
    return calls


def _layers(root: Any) -> dict[str, Embed]:
    """Every `Embed` inside ``root``, by the name of its path."""
    return {_name(path): functools.reduce(_child, path[:-1], root) for path, _ in _probes(root)}


def _probes(root: Any) -> list[tuple[tuple[Any, ...], Any]]:
    return list(nnx.to_flat_state(nnx.state(root, Probe)))


def _child(node: Any, key: Any) -> Any:
    return getattr(node, key) if isinstance(key, str) and hasattr(node, key) else node[key]


def _name(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path[:-1]))


def _moved(acts: Any, zeros: Any) -> Any:
    shapes, prepared = (jax.tree.map(jnp.shape, tree) for tree in (acts, zeros))
    if shapes != prepared:
        raise ValueError(f"this call was prepared for activations of the shapes {prepared}, but they are {shapes}")
    return jax.tree.map(jnp.add, acts, zeros)
