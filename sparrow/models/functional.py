"""An NNX model as pure functions, as `sparrow.Optimizer` and plain JAX want it, and the losses among its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jax
from flax import nnx

from sparrow.models.inputs import Arrays

PREFIX: Final = "loss/"


def extra_loss(name: str) -> str:
    """Return the name of the output that holds the loss ``name``, which a model computes besides those of the tasks.

    The output is one value per example, or one number. In training its mean is added to the total loss; outputs of
    that name are left out of evaluation.

    >>> extra_loss("hint")
    'loss/hint'
    """
    return PREFIX + name


def extra_losses(outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Return the losses among the outputs of a model, by their names.

    >>> import jax.numpy as jnp
    >>> list(extra_losses({"logits": jnp.zeros(2), "loss/hint": jnp.zeros(2)}))
    ['hint']
    """
    return {name.removeprefix(PREFIX): values for name, values in outputs.items() if name.startswith(PREFIX)}


Outputs = dict[str, jax.Array]


class Functional(NamedTuple):
    """The two ways to call a model. Both are pure, and run under ``jax.jit`` and ``jax.grad``.

    Attributes:
      training: the model's structure with dropout and batch statistics at work.
      evaluating: the same, with neither.
    """

    training: Any
    evaluating: Any

    def train(self, params: Any, rest: Any, acts: Arrays, numbers: Arrays) -> tuple[Outputs, Any]:
        """Return the outputs, and ``rest`` as it is after this call."""
        model = nnx.merge(self.training, params, rest)
        outputs = model(acts, numbers)
        return outputs, nnx.to_pure_dict(nnx.state(model, nnx.Not(nnx.Param)))

    def predict(self, params: Any, rest: Any, acts: Arrays, numbers: Arrays) -> Outputs:
        outputs: Outputs = nnx.merge(self.evaluating, params, rest)(acts, numbers)
        return outputs


def functional(model: nnx.Module) -> tuple[Functional, dict[str, Any], dict[str, Any]]:
    """Split a model into pure functions, its parameters, and the rest of what it holds.

    ``params`` (every ``nnx.Param``) is what an optimizer trains. ``rest`` is what changes without a gradient: the
    keys of dropout and the running statistics of batch normalization; it is empty for a model that has neither.
    A training step takes ``rest`` as an argument and hands it on as aux, so that it is never averaged, clipped or
    cast. Where a step was skipped (``info.applied`` is False), keep the old one. With micro-batches, call
    `Optimizer.gradients` for each, hand ``rest`` from one to the next, and `Optimizer.apply` the sum: else they would
    all drop the same units.

    >>> import jax.numpy as jnp, optax
    >>> import sparrow as sp
    >>> from sparrow import models
    >>> table = sp.TableSpec(name="items", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.Adagrad(0.1))
    >>> emb = sp.Embedder([sp.FeatureSpec(name="item", table_spec=table)])
    >>> inputs = models.Inputs(acts={"item": 4}, groups={"all": ["item"]})
    >>> tower = models.Tower("all", models.MLP((8,), dropout_ratio=0.5, use_bn=True))
    >>> apply, params, rest = functional(models.MultiTower(inputs, towers=(tower,), rngs=nnx.Rngs(0)))

    >>> def loss_fn(params, acts, rest, labels):
    ...     outputs, rest = apply.train(params, rest, acts, {})
    ...     return sp.losses.reduce(sp.losses.binary_cross_entropy(outputs["logits"], labels)), rest
    >>> optimizer = sp.Optimizer(emb, optax.adam(0.01), precision="bfloat16")
    >>> @jax.jit
    ... def train_step(state, rest, batch, labels):
    ...     state, info = optimizer.step(state, loss_fn, batch, rest, labels, has_aux=True)
    ...     return state, info.aux, info.loss

    >>> state = optimizer.init(emb.init(jax.random.key(0)), params)
    >>> batch = emb.pack({"item": [1, 2]})
    >>> state, rest, loss = train_step(state, rest, batch, jnp.array([0.0, 1.0]))
    >>> apply.predict(state.params, rest, emb.lookup(state.embedding, batch), {})["logits"].shape
    (2,)
    """
    params, rest = nnx.state(model, nnx.Param), nnx.state(model, nnx.Not(nnx.Param))
    copy: Any = nnx.clone(model)
    copy.train()
    training = nnx.graphdef(copy)
    copy.eval()
    return Functional(training, nnx.graphdef(copy)), nnx.to_pure_dict(params), nnx.to_pure_dict(rest)
