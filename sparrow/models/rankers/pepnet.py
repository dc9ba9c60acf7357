"""PEPNet: gates made of the domain and of the user scale the features and the layers of each task."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP, Layers
from sparrow.models.layers.towers import TaskLogits, TaskTower, task_names
from sparrow.models.records import register_model


class Gate(nnx.Module):
    """A gate around 1: ``gamma * sigmoid(W_2 relu(W_1 [prior, stop_gradient(x)] + c_1) + c_2)``.

    >>> Gate(2, 3, 4, 5, 2.0, rngs=nnx.Rngs(0))(jnp.ones((1, 2)), jnp.ones((1, 3))).shape
    (1, 5)
    """

    def __init__(self, prior: int, dim: int, hidden: int, units: int, gamma: float, *, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(prior + dim, hidden, rngs=rngs)
        self.second = nnx.Linear(hidden, units, rngs=rngs)
        self.gamma = gamma

    def __call__(self, prior: jax.Array, x: jax.Array) -> jax.Array:
        """Map ``(batch, prior)`` and ``(batch, dim)`` to ``(batch, units)``."""
        both = jnp.concatenate([prior, jax.lax.stop_gradient(x)], axis=1)
        return self.gamma * jax.nn.sigmoid(self.second(jax.nn.relu(self.first(both))))


@register_model("pepnet", is_per_example=True)
class PEPNet(nnx.Module):
    """Parameter and embedding personalized network: many domains and many tasks in one model.

    ::

        x         = features of the group "all", side by side
        e         = gate([domain, x]) * x                           with the group "domain"; else x
        h[t]      = e; then for each layer of ppnet
        h[t]      = gate_l([uia, e]) * layer_l(h[t])                with the group "uia" (user, item, author)
        output[t] = linear(MLP of task t(h[t]))

    Gates are around 1 (see `Gate`), and no gradient passes through them into x. With the group "domain_index", which
    holds one number, the index of the example's domain, each task has ``task_domain_num`` towers, one per domain.

    >>> inputs = Inputs(acts={"item": 8, "page": 4, "user": 4},
    ...                 groups={"all": ["item"], "domain": ["page"], "uia": ["user"]})
    >>> model = PEPNet(inputs, ppnet=MLP((8, 4)), task_towers=(TaskTower("click"),), rngs=nnx.Rngs(0))
    >>> model({"item": jnp.ones((3, 8)), "page": jnp.ones((3, 4)), "user": jnp.ones((3, 4))}, {})["click"].shape
    (3,)

    Reference: Chang et al., PEPNet, KDD 2023, arXiv 2302.01115.

    Attributes:
      ppnet: the layers of each task that the group "uia" scales; needed with that group.
      epnet_hidden_unit: the hidden width of the gate of the features; None: the width of x.
      epnet_gamma: the largest value of that gate.
      ppnet_gamma: the largest value of the gates of the layers.
      task_domain_num: the number of domains, with the group "domain_index".
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        task_towers: tuple[TaskTower, ...],
        ppnet: MLP | None = None,
        epnet_hidden_unit: int | None = None,
        epnet_gamma: float = 2.0,
        ppnet_gamma: float = 2.0,
        task_domain_num: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        inputs.check("PEPNet", required=("all",), optional=("domain", "uia", "domain_index"))
        self.tasks = task_names("PEPNet", task_towers)
        fields.number("PEPNet.epnet_gamma", epnet_gamma, above=0)
        fields.number("PEPNet.ppnet_gamma", ppnet_gamma, above=0)
        fields.integer("PEPNet.task_domain_num", task_domain_num)
        self.group: Group = inputs.group("all")
        self.domain, self.uia, self.index = (
            inputs.group(name) if name in inputs.groups else None for name in ("domain", "uia", "domain_index")
        )
        if self.index is not None and (self.index.dim != 1 or self.index.names[0] not in inputs.numbers):
            raise ValueError("PEPNet: the group 'domain_index' must hold one number, the index of the example's domain")
        if (self.index is None) != (task_domain_num == 1):
            raise ValueError(
                f"PEPNet with task_domain_num={task_domain_num} must have "
                f"{'no' if task_domain_num == 1 else 'a'} group 'domain_index', the number of the example's domain"
            )
        if (self.uia is None) != (ppnet is None):
            given, missing = ("ppnet", "the group 'uia'") if ppnet else ("the group 'uia'", "ppnet")
            raise ValueError(f"PEPNet was given {given} without {missing}; give both or neither")
        dim = self.group.dim
        self.epnet = nnx.data(None)
        if self.domain is not None:
            self.epnet = Gate(self.domain.dim, dim, epnet_hidden_unit or dim, dim, epnet_gamma, rngs=rngs)
        self.layers: nnx.Dict[Layers] = nnx.Dict({})
        self.gates: nnx.Dict[nnx.List[Gate]] = nnx.Dict({})
        if self.uia is not None and ppnet is not None:
            prior = self.uia.dim
            for task in self.tasks:
                self.layers[task] = ppnet.build(dim, rngs=rngs)
                self.gates[task] = nnx.List(
                    [Gate(prior, dim, units, units, ppnet_gamma, rngs=rngs) for units in ppnet.hidden_units]
                )
        dims = dict.fromkeys(self.tasks, dim if ppnet is None else ppnet.dim)
        self.towers = nnx.List([TaskLogits(task_towers, dims, rngs=rngs) for _ in range(task_domain_num)])

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        x = self.group.concat(acts, numbers)
        if self.domain is not None and self.epnet is not None:
            x = self.epnet(self.domain.concat(acts, numbers), x) * x
        hidden = dict.fromkeys(self.tasks, x)
        if self.uia is not None:
            prior = self.uia.concat(acts, numbers)
            for task in self.tasks:
                for layer, gate in zip(self.layers[task].layers, self.gates[task], strict=True):
                    hidden[task] = layer(hidden[task]) * gate(prior, x)
        outputs = [tower(hidden) for tower in self.towers]
        if self.index is None:
            return outputs[0]
        domain = jnp.asarray(numbers[self.index.names[0]])[:, 0].astype(jnp.int32)
        return {task: _chosen([output[task] for output in outputs], domain) for task in self.tasks}


def _chosen(outputs: list[jax.Array], domain: jax.Array) -> jax.Array:
    """Return the output of each example's own domain; NaN for an index out of range, which training refuses."""
    stacked = jnp.stack(outputs)  # (domains, batch, ...)
    chosen = stacked[jnp.clip(domain, 0, len(outputs) - 1), jnp.arange(domain.shape[0])]
    known = ((domain >= 0) & (domain < len(outputs))).reshape(-1, *[1] * (chosen.ndim - 1))
    return jnp.where(known, chosen, jnp.nan)
