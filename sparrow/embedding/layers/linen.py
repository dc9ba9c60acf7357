"""The Embedder as a Flax Linen layer, and the train state of a model with such layers."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import Mesh

from sparrow.embedding.embedder import Embedder
from sparrow.embedding.guards import untrained
from sparrow.embedding.layers.model_gradients import Gradients, check, sum_calls
from sparrow.embedding.nested import leaves
from sparrow.embedding.packed_batch import PackedBatch
from sparrow.registry import answering

__all__ = ["Embed", "TrainState"]


def __dir__() -> list[str]:
    return __all__


_EMBEDDERS: dict[Any, Embedder] = {}
"""By features and options: a Linen module is made again at every call."""
COLLECTION = "embeddings"
"""The variable collection that holds tables, slots and step, apart from "params"."""
PROBES = "probes"
"""The collection of zeros that are added to the activations: their gradient is the gradient at the activations."""
LOOKUPS = "lookups"
"""The collection into which the layers of a model write the batches that they were called with."""

_ADVICE = (
    "gradients with respect to the parameters alone do not reach the tables of this sp.linen.Embed. Write "
    "(loss, lookups), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.trainable(batch)) and "
    "state.apply_gradients(grads=grads, lookups=lookups), as sp.linen.TrainState shows. "
    "To leave the tables as they are, look up outside of it"
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LayerCall:
    """One call of a layer."""

    batch: PackedBatch
    embedder: Embedder = dataclasses.field(metadata={"static": True})


class Probe(NamedTuple):
    """The activations of one call, by feature; or zeros that are added to them; or the gradient."""

    activations: Any


@answering
class Embed(nn.Module):
    """Tables inside a Linen model, in the collection ``"embeddings"``. `TrainState` trains such a model.

    >>> import sparrow as sp
    >>> table = sp.TableSpec(name="items", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    >>> embed = Embed((sp.FeatureSpec(name="item", table_spec=table),))
    >>> batch = embed.embedder.pack({"item": [1, 2]})
    >>> variables = embed.init(jax.random.key(0), batch)
    >>> acts = embed.apply(variables, batch)
    >>> _, variables = embed.apply(variables, batch, acts, method="update", mutable=["embeddings"])
    >>> int(variables["embeddings"]["state"].step)
    1

    Attributes:
      features: the features, each with its table, as of the Embedder.
      backend: as of the Embedder, and so are ``mesh``, ``axis`` and ``exchange``.
      mesh: the mesh that the tables are split over; None: one device.
      axis: the axis of the mesh, or several.
      exchange: the way in which rows travel between devices.
    """

    features: Any
    backend: str = "auto"
    mesh: Mesh | None = None
    axis: str | tuple[str, ...] = "data"
    exchange: str = "auto"

    @property
    def embedder(self) -> Embedder:
        """The Embedder behind the layer, to pack batches and view tables."""
        options = self.backend, self.mesh, self.axis, self.exchange
        key = tuple(leaves(self.features)), jax.tree.structure(self.features), options
        if key not in _EMBEDDERS:
            _EMBEDDERS[key] = Embedder(self.features, *options)
        return _EMBEDDERS[key]

    def setup(self) -> None:
        """Create the tables, and a parameter, one number, that shows the layer that it is differentiated."""
        embedder = self.embedder
        self.state = self.variable(COLLECTION, "state", lambda: embedder.init(self.make_rng("params")))
        there = self.is_initializing() or self.has_variable("params", "anchor")
        self.anchor = self.param("anchor", lambda key: jnp.zeros(())) if there else jnp.zeros(())

    def __call__(self, batch: PackedBatch) -> Any:
        """Activations by feature, or in the structure of the features."""
        batch = self.embedder.exchange(batch)  # once, for the gradients too
        acts = self.embedder.lookup(self.state.value, batch)
        if self.is_initializing():
            return acts
        call = 0
        while self.has_variable(LOOKUPS, f"call_{call}"):
            call += 1
        name = f"call_{call}"
        if self.is_mutable_collection(LOOKUPS):
            self.put_variable(LOOKUPS, name, LayerCall(batch, self.embedder))
        elif self.has_variable(PROBES, name):
            raise ValueError("apply a model that is trained with mutable=['lookups'], as sp.linen.TrainState shows")
        if not self.has_variable(PROBES, name) and not self.embedder.frozen:
            acts = untrained(acts, self.anchor, _ADVICE)
        return self.perturb(name, Probe(acts), collection=PROBES).activations

    def update(self, batch: PackedBatch, act_grads: Mapping[str, Any]) -> None:
        """One optimizer step of the tables; apply it with ``method="update", mutable=["embeddings"]``."""
        self.state.value = self.embedder.update(self.state.value, batch, act_grads)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Flax's ``TrainState`` for models with `Embed` layers: ``tx`` updates the parameters, each table's rule the table.

    >>> import sparrow as sp
    >>> table = sp.TableSpec(name="items", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.Adagrad(0.1))
    >>> features = (sp.FeatureSpec(name="item", table_spec=table),)
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, batch):
    ...         return nn.Dense(1)(sp.linen.Embed(features, name="embed")(batch)["item"])[:, 0]
    >>> model = Model()
    >>> @functools.partial(jax.jit, donate_argnums=0)  # donated: tables are updated in place
    ... def train_step(state, batch, labels):
    ...     def loss_fn(trainable):
    ...         variables = {**state.variables, **trainable}
    ...         logits, seen = model.apply(variables, batch, mutable=["lookups"])
    ...         return optax.sigmoid_binary_cross_entropy(logits, labels).mean(), seen["lookups"]
    ...     (loss, lookups), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.trainable(batch))
    ...     return state.apply_gradients(grads=grads, lookups=lookups), loss
    >>> batch = sp.Embedder(features).pack({"item": [1, 2]})
    >>> variables = model.init(jax.random.key(0), batch)
    >>> state = sp.linen.TrainState.create(model=model, variables=variables, tx=optax.adam(1e-3))
    >>> for _ in range(5):
    ...     state, loss = train_step(state, batch, jnp.ones(2))
    >>> int(state.step), int(state.variables["embeddings"]["embed"]["state"].step)
    (5, 5)

    Accumulate micro-batches with `gradients`, which can be added and scaled, and give ``apply_gradients`` the sum.

    Attributes:
      step: () int32, the number of updates.
      variables: all collections of the model: "params", "embeddings" and its own.
      opt_state: the optax state.
      model: the model.
      tx: the optax transformation of the parameters. It must not accumulate by itself.
      clip_global_norm: limits the norm over parameters and rows together; None: no limit.
    """

    step: jax.Array
    variables: dict[str, Any]
    opt_state: Any
    model: nn.Module = dataclasses.field(metadata={"static": True})
    tx: optax.GradientTransformation = dataclasses.field(metadata={"static": True})
    clip_global_norm: float | None = dataclasses.field(metadata={"static": True}, default=None)

    @classmethod
    def create(
        cls,
        *,
        model: nn.Module,
        variables: Mapping[str, Any],
        tx: optax.GradientTransformation,
        clip_global_norm: float | None = None,
    ) -> TrainState:
        """Return the state before the first step; ``variables`` as ``model.init`` returns them."""
        opt_state = tx.init(variables["params"])
        check(opt_state, clip_global_norm)
        return cls(jnp.zeros((), jnp.int32), dict(variables), opt_state, model, tx, clip_global_norm)

    def trainable(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the collections to differentiate by: "params", and "probes" for the calls that the model makes.

        Trace the model once, without running it, with the arguments of ``model.apply`` after the variables.
        """
        _, made = jax.eval_shape(lambda: self.model.apply(self.variables, *args, **kwargs, mutable=True))
        probes = jax.tree.map(lambda probe: jnp.zeros(probe.shape, probe.dtype), made.get(PROBES, {}))
        return {"params": self.variables["params"], PROBES: probes}

    def gradients(self, grads: Mapping[str, Any], lookups: Mapping[str, Any]) -> Gradients:
        """Return the gradients of a (micro-)batch: a value to be added, scaled and measured before one update."""
        layers, act_grads = _by_layer(lookups), _by_layer(grads.get(PROBES, {}))
        made, taken = ({layer: sorted(calls) for layer, calls in of.items()} for of in (layers, act_grads))
        if made != taken:
            raise ValueError(
                f"lookups hold the calls {made}, but grads the calls {taken}: give both as they come from one "
                "jax.value_and_grad with respect to state.trainable(...)"
            )
        rows, embedders = {}, []
        for name, calls in layers.items():
            embedder = next(iter(calls.values())).embedder
            batches = [call.batch for call in calls.values()]
            rows[name] = sum_calls(embedder, batches, [act_grads[name][call].activations for call in calls])
            embedders.append((name, embedder))
        return Gradients(grads["params"], rows, tuple(embedders))

    def apply_gradients(
        self, *, grads: Gradients | Mapping[str, Any], lookups: Mapping[str, Any] | None = None
    ) -> TrainState:
        """Return the state after one optimizer step of the model and its tables.

        Args:
          grads: the gradients with respect to `trainable`; or `Gradients`, which need no ``lookups``.
          lookups: the collection "lookups" that the model wrote while it was differentiated.
        """
        total = grads if isinstance(grads, Gradients) else self.gradients(grads, lookups or {})
        if self.clip_global_norm is not None:
            total = total.clip(self.clip_global_norm)
        params = self.variables["params"]
        updates, opt_state = self.tx.update(total.dense, self.opt_state, params)
        tables = self.variables[COLLECTION]
        for name, embedder in total.embedders:
            path = [*name.split("/"), "state"] if name else ["state"]
            state = functools.reduce(operator.getitem, path, tables)
            tables = _replaced(tables, path, embedder.apply(state, total.rows[name]))
        changed = {"params": optax.apply_updates(params, updates), COLLECTION: tables}
        return dataclasses.replace(
            self, step=self.step + 1, variables={**self.variables, **changed}, opt_state=opt_state
        )


def _by_layer(tree: Mapping[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """Return the calls of each layer, from a collection: everything in it that is not a mapping of names."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found |= _by_layer(value, f"{path}/{name}" if path else name)
        else:
            found.setdefault(path, {})[name] = value
    return found


def _replaced(tree: Any, path: Sequence[str], value: Any) -> Any:
    return {**tree, path[0]: _replaced(tree[path[0]], path[1:], value)} if path else value
