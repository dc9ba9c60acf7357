"""Models by name: a class is all that a model needs, and its options become the record that config files use."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol, TypeVar

from flax import nnx

from sparrow.models.inputs import Inputs
from sparrow.registry import Registry

M = TypeVar("M", bound=type[nnx.Module])
R = TypeVar("R")

DESCRIPTIONS: Final = {
    "amm_i_weight": "The weight of the loss of the items' augmented vectors.",
    "amm_u_weight": "The weight of the loss of the users' augmented vectors.",
    "arch_with_sparse": "Whether the last layers also read the embeddings themselves.",
    "backbone": "Layers below the cross network.",
    "booster_mlp": "The layers of the large network.",
    "bottom_mlp": "Layers that all tasks share.",
    "channel": "The history and its layers.",
    "channels": "The histories, each with its layers.",
    "cross_num": "The number of cross layers.",
    "deep": "The layers of the deep network.",
    "dense_mlp": "The layers over the plain numbers.",
    "din_towers": "Towers over histories that the candidate attends to.",
    "dropout_ratio": "The share of the units that a training step leaves out.",
    "every_position": "Whether a training step learns from each element of a history, whose target is the next one.",
    "expert_mlp": "The layers of each expert.",
    "extraction_networks": "The levels of experts, from the input up.",
    "feature_based_distillation": "Whether the small network also imitates the hidden layers of the large one.",
    "feature_distillation_function": "How hidden layers are compared.",
    "final": "The layers before the output.",
    "gate_mlp": "The layers of each gate.",
    "history_input": "The group of the history.",
    "hstu": "The layers over the history.",
    "item_augment": "The group of the items' augmented vectors.",
    "item_hidden_dim": "The hidden units of the candidate's own layers.",
    "item_tower": "The layers over the item.",
    "light_mlp": "The layers of the small network.",
    "mask_net": "Mask blocks over the features.",
    "mask_net_module": "The mask blocks.",
    "mlp": "Layers before the tasks.",
    "negatives": 'Where negatives come from: "in_batch" or "sampled".',
    "num_classes": "The number of logits of an example.",
    "num_experts": "The number of experts.",
    "num_heads": "The number of heads.",
    "num_layers": "The number of layers.",
    "output_dim": "The length of the vectors; None leaves the last linear layers out.",
    "postprocessor": "How the state is normalized before the tasks.",
    "share_mlp": "Layers that both networks share.",
    "simi_pow": "The sharpness with which interests are weighed.",
    "similarity": 'How two vectors are compared: "inner_product" or "cosine".',
    "task_towers": "The layers of each task.",
    "towers": "The layers over each group.",
    "user_augment": "The group of the users' augmented vectors.",
    "user_tower": "The layers over the user.",
    "wukong_layers": "The layers of factorization machines.",
}
"""Descriptions of the options that models share; the equations are in the docstrings of the models."""


class Buildable(Protocol):
    """The description of a model: it makes one from inputs."""

    def build(self, inputs: Inputs, *, rngs: nnx.Rngs) -> nnx.Module:
        """Return the model, with fresh parameters."""


@dataclasses.dataclass(frozen=True)
class ModelRecord:
    """The options of a model, without its features. `register_model` makes one subclass per model.

    Attributes:
      model: the class that `build` calls.
      is_per_example: whether the outputs of an example depend on that example alone, batch statistics aside.
    """

    model: ClassVar[type[nnx.Module]]
    is_per_example: ClassVar[bool] = False

    def build(self, inputs: Inputs, *, rngs: nnx.Rngs) -> nnx.Module:
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        model: Callable[..., nnx.Module] = self.model
        return model(inputs, **options, rngs=rngs)

    @property
    def wide_groups(self) -> tuple[str, ...]:
        """The groups whose features want tables of their own, besides those that they have in other groups."""
        return getattr(self.model, "wide_groups", ())

    @property
    def candidate_group(self) -> str | None:
        """The group whose sequences hold an element for each candidate of an example; None: the model has none."""
        return getattr(self.model, "candidate_group", None)


registry: Registry[ModelRecord] = Registry("model", ModelRecord, descriptions=DESCRIPTIONS)


def register_model(name: str, *, is_per_example: bool = False) -> Callable[[M], M]:
    """Class decorator: makes a model known by ``name``, to config files too.

    The class is an ``nnx.Module`` with ``__init__(self, inputs, *, <options>, rngs)``, where ``inputs`` is an `Inputs`,
    and ``__call__(self, acts, numbers)``, which returns a dict of named outputs. The options are what a config file
    may set: numbers, names, lists, or frozen dataclasses such as `MLP`. A class attribute ``wide_groups`` names the
    groups, if any, whose features want tables of their own, as the linear part of `WideAndDeep` does;
    ``candidate_group`` names the group, if any, whose sequences hold several candidates of an example, as that of
    `DlrmHSTU`: labels are then lists.

    ``is_per_example``: whether the outputs of an example depend on that example alone. Then the short last batch of an
    epoch is padded, and needs no program of its own. Statistics of ``nnx.BatchNorm`` need no mention: they are found.

    >>> import jax.numpy as jnp
    >>> from sparrow.models.layers.mlp import MLP
    >>> @register_model("plain")
    ... class Plain(nnx.Module):
    ...     def __init__(self, inputs: Inputs, *, mlp: MLP, scale: float = 1.0, rngs: nnx.Rngs):
    ...         self.group, self.scale = inputs.group("all"), scale
    ...         self.layers = mlp.build(self.group.dim, rngs=rngs)
    ...
    ...     def __call__(self, acts, numbers):
    ...         return {"logits": self.scale * self.layers(self.group.concat(acts, numbers))[:, 0]}
    >>> record = registry.from_dict({"name": "plain", "mlp": {"hidden_units": [8, 1]}, "scale": 2.0})
    >>> record.mlp.hidden_units
    (8, 1)
    >>> model = record.build(Inputs(acts={"item": 4}, groups={"all": ["item"]}), rngs=nnx.Rngs(0))
    >>> model({"item": jnp.ones((3, 4))}, {})["logits"].shape
    (3,)
    """

    def decorate(cls: M) -> M:
        if not (isinstance(cls, type) and issubclass(cls, nnx.Module)):
            raise TypeError(f"model '{name}': {cls!r} must be a class derived from flax.nnx.Module")
        registry.register(name)(record_class(f"model '{name}'", "inputs", cls, ModelRecord, is_per_example))
        return cls

    return decorate


def record_class(what: str, first: str, cls: type[nnx.Module], base: type[R], is_per_example: bool) -> type[R]:
    """Return a frozen dataclass over ``base`` with one field per option of ``cls.__init__``, behind ``first``."""
    expected = f"{what}: {cls.__name__}.__init__ must take (self, {first}, *, <options>, rngs)"
    parameters = dict(inspect.signature(cls.__init__).parameters)
    for required in ("self", first, "rngs"):
        if parameters.pop(required, None) is None:
            raise TypeError(f"{expected}; '{required}' is missing")
    hints = typing.get_type_hints(cls.__init__)
    fields = []
    for option, parameter in parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise TypeError(f"{expected}; '{option}' is not an option by keyword")
        default = dataclasses.field() if parameter.default is parameter.empty else parameter.default
        fields.append((option, hints.get(option, Any), default))
    record = dataclasses.make_dataclass(
        f"{cls.__name__}Record",
        fields,
        bases=(base,),
        frozen=True,
        kw_only=True,
        namespace={"model": cls, "is_per_example": is_per_example},
    )
    record.__module__, record.__doc__ = cls.__module__, f"The options of `{cls.__name__}`."
    return record
