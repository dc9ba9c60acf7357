"""Rules and specs in the forms that jax-tpu-embedding takes, for the SparseCores of TPUs. Experimental.

Sparrow does not drive a TPU: `lower` gives a rule's row program as StableHLO, `to_specs` the specs of features, whose
tables carry that program as their optimizer, and `from_specs` reads such specs back, and specs with SparseCore's own
optimizers. Training then goes through jax-tpu-embedding's functions. No figure or bit is claimed for a TPU.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp

from sparrow import rules
from sparrow.embedding.batches.sizes import Sizes
from sparrow.embedding.nested import Structure
from sparrow.embedding.specs import FeatureSpec, TableSpec
from sparrow.embedding.stacking import Stack, row_step, stack_tables
from sparrow.kernels import LIMITS, RowStep, stand_in
from sparrow.rules import PER_ROW, Rule

LANES: Final = 8
"""Rows of a SparseCore table are padded to a multiple of this."""

DEFAULT_LIMIT: Final = 256
"""The ids per partition that SparseCore's own specs start from, where no sizes are known."""

_PENALTIES: Final = "l1_regularization_strength l2_regularization_strength"
OWN: Final[Mapping[str, tuple[type[Rule], str]]] = {
    "SGDOptimizerSpec": (rules.SGD, ""),
    "AdagradOptimizerSpec": (rules.Adagrad, "initial_accumulator_value"),
    "AdamOptimizerSpec": (rules.Adam, "beta_1 beta_2 epsilon"),
    "AdagradMomentumOptimizerSpec": (
        rules.AdagradMomentum,
        "momentum beta2 exponent epsilon use_nesterov initial_accumulator_value initial_momentum_value",
    ),
    "FTRLOptimizerSpec": (
        rules.FTRL,
        "learning_rate_power beta multiply_linear_by_learning_rate initial_accumulator_value initial_linear_value "
        + _PENALTIES,
    ),
    "LaPropOptimizerSpec": (rules.LaProp, "b1 b2 eps initial_slot_value"),
    "F2AOptimizerSpec": (rules.F2A, "rho max_lr_multiplier initial_accumulator_value " + _PENALTIES),
}
"""SparseCore's optimizers: the rule, and its fields by their names there, besides the learning rate."""

OURS: Final = {
    **{"beta_1": "beta1", "beta_2": "beta2", "b1": "beta1", "b2": "beta2", "epsilon": "eps"},
    **{"use_nesterov": "nesterov", "max_lr_multiplier": "max_multiplier"},
    **{f"l{n}_regularization_strength": f"l{n}" for n in (1, 2)},
}
"""Fields that have another name here. Those of the first slots lack ``_value``."""


def lower(table: TableSpec) -> str:
    """Return the StableHLO text of the table's rule: gradient, row, slots, scalars in, row and slots out.

    Every array is float32 of shape (1, width), the width being the dim rounded up to a multiple of 8. The scalars are
    those of `scalars`, each in every place.

    >>> table = TableSpec(name="t", vocabulary_size=9, embedding_dim=8, optimizer=rules.SGD(0.1))
    >>> "stablehlo.subtract" in lower(table)
    True
    """
    program = row_program(table)
    row = stand_in((1, width(table)))
    return jax.jit(program).lower(*[row] * (2 + len(program.step.slots) + len(program.scalars))).as_text()


def width(table: TableSpec) -> int:
    """Return the dim of the table on a SparseCore."""
    return _rounded(table.embedding_dim)


@dataclasses.dataclass(frozen=True)
class RowProgram:
    """The step of one row as a function of arrays of shape (1, width); two of one rule and dim are equal.

    Attributes:
      step: the step of a row.
      scalars: the names of the scalars that the equation reads, in the order of the arguments. The others are no
        arguments: lowering drops arguments without a use, and the order of those behind them would be lost.
    """

    step: RowStep
    scalars: tuple[str, ...]

    def __call__(self, grad: jax.Array, row: jax.Array, *rest: jax.Array) -> tuple[jax.Array, ...]:
        """Return the new row and the new slots; places beyond the dim keep their values."""
        dim, shape = self.step.dim, row.shape
        given, scalars = rest[: len(self.step.slots)], rest[len(self.step.slots) :]
        slots = [
            slot[0, 0] if layout == PER_ROW else slot[0, :dim]
            for slot, (_, layout) in zip(given, self.step.slots, strict=True)
        ]
        named = {name: scalar[0, 0] for name, scalar in zip(self.scalars, scalars, strict=True)}
        every = [named.get(name, jnp.zeros(())) for name in self.step.scalars]
        new, new_slots = self.step(row[0, :dim], grad[0, :dim], slots, every)

        def whole(value: jax.Array, old: jax.Array) -> jax.Array:
            if value.ndim == 0:
                return jnp.broadcast_to(value, shape)
            return jnp.concatenate([value[None], old[:, dim:]], axis=1) if dim < shape[1] else value[None]

        return whole(new, row), *(whole(value, old) for value, old in zip(new_slots, given, strict=True))


def row_program(table: TableSpec) -> RowProgram:
    """Return the function that `lower` lowers, after checking that a SparseCore can hold the table."""
    for refused, why in (
        (table.dtype != "float32", f"its dtype is {table.dtype}, and tables of SparseCores are float32"),
        (table.optimizer.max_gradient is not None, "its rule has max_gradient, which SparseCores do not have"),
        (table.dynamic is not None, "it is dynamic, and SparseCores take row numbers"),
        (table.memory is not None, "it is in host memory"),
        (table.optimizer.frozen, "its learning rate is 0: SparseCores have no tables without an optimizer"),
    ):
        if refused:
            raise ValueError(f"table '{table.name}' cannot go to a SparseCore: {why}")
    return _program(row_step(table))


@functools.lru_cache(maxsize=256)
def _program(step: RowStep) -> RowProgram:
    row, number = stand_in((step.dim,)), stand_in(())
    slots = [number if layout == PER_ROW else row for _, layout in step.slots]
    jaxpr = jax.make_jaxpr(step)(row, row, slots, [number] * len(step.scalars)).jaxpr
    read = {id(var) for eqn in jaxpr.eqns for var in eqn.invars} | {id(var) for var in jaxpr.outvars}
    arguments = jaxpr.invars[len(jaxpr.invars) - len(step.scalars) :]
    return RowProgram(step, tuple(name for name, var in zip(step.scalars, arguments, strict=True) if id(var) in read))


def scalars(table: TableSpec, step: Any) -> tuple[jax.Array, ...]:
    """Return the numbers that the program reads at an optimizer step, in its order."""
    values = table.optimizer.hyper(step) | table.limits
    return tuple(jnp.asarray(values[name], jnp.float32) for name in row_program(table).scalars)


def to_specs(features: Any, batch_size: int, *, sizes: Sizes | None = None, cores: int = 1, ids: int = 1) -> Any:
    """Return the feature specs of jax-tpu-embedding for a tree of `FeatureSpec`, in its structure.

    Args:
      features: as `Embedder` takes them.
      batch_size: the examples of the complete batch, which SparseCore's shapes hold.
      sizes: sizes learned by packing batches of these features: the limits of ids per partition come from them. A
        partition then has space for all ids of one core's share of the batch. None: SparseCore's default of 256.
        Tables that SparseCore stacks lose their limits: give it the limits of the stack after stacking.
      cores: the SparseCores of all devices together, over which batch and tables are split.
      ids: the most ids per example, for SparseCore's input shapes.
    """
    library = _library()
    structure = Structure(features)
    tables = {feature.table_spec.name: feature.table_spec for feature in structure.features}
    held = {} if sizes is None else sizes.learned.held
    limits = {
        table.name: _limits(stack, table, held, cores)
        for stack in stack_tables([*tables.values()])
        for table in stack.tables
    }
    made = {name: _table(library, table, *limits[name]) for name, table in tables.items()}
    return structure.build(
        {feature.name: _feature(library, feature, made, batch_size, ids) for feature in structure.features}
    )


def _limits(stack: Stack, table: TableSpec, held: Mapping[str, int], cores: int) -> tuple[int, int]:
    """Return the limits of ids and of distinct ids that one core's share of a batch has for one core's rows."""
    if stack.name not in held:
        return DEFAULT_LIMIT, DEFAULT_LIMIT
    share = -(-held[stack.name] // cores)
    rows = -(-table.vocabulary_size // cores)
    return _rounded(share), _rounded(min(share, rows))


def _rounded(count: int) -> int:
    return -(-count // LANES) * LANES


def _table(library: Any, table: TableSpec, ids: int, distinct: int) -> Any:
    return library.TableSpec(
        name=table.name,
        vocabulary_size=table.vocabulary_size,
        embedding_dim=table.embedding_dim,
        initializer=table.values,
        optimizer=_optimizer_class()(table),
        combiner=table.combiner,
        max_ids_per_partition=ids,
        max_unique_ids_per_partition=distinct,
    )


def _feature(library: Any, feature: FeatureSpec, made: Mapping[str, Any], batch_size: int, ids: int) -> Any:
    table = feature.table_spec
    if feature.combiner is None:
        raise ValueError(
            f"feature '{feature.name}' is ordered, which SparseCores do not have: look ids of shape "
            "(batch × length, 1) up with a combiner, and reshape the activations"
        )
    if feature.combiner not in ("table", table.combiner):
        raise ValueError(
            f"feature '{feature.name}' combines by '{feature.combiner}', but on SparseCores the combiner is the "
            f"table's ('{table.combiner}'): give the feature a table of its own"
        )
    if feature.invalid_ids != "error":
        raise ValueError(
            f"feature '{feature.name}' has invalid_ids '{feature.invalid_ids}', which SparseCores do not have: "
            "clean the ids"
        )
    return library.FeatureSpec(
        name=feature.name,
        table_spec=made[table.name],
        input_shape=(batch_size, ids),
        output_shape=(batch_size, table.embedding_dim),
    )


def from_specs(specs: Any) -> Any:
    """Return the tree of `FeatureSpec` for a tree of SparseCore's feature specs, with Sparrow's rules."""
    library = _library()
    tables: dict[str, TableSpec] = {}

    def back(spec: Any) -> FeatureSpec:
        given = spec.table_spec
        if given.name not in tables:
            if getattr(given, "quantization_config", None) is not None:
                raise ValueError(f"table '{given.name}' has a quantization_config, which Sparrow does not have")
            limits = getattr(given.optimizer, "limits", {})
            plain = TableSpec(
                name=given.name,
                vocabulary_size=given.vocabulary_size,
                embedding_dim=given.embedding_dim,
                optimizer=_rule(given.optimizer),
                combiner=given.combiner,
                **limits,
            )
            own = plain.values != given.initializer
            tables[given.name] = dataclasses.replace(plain, initializer=given.initializer) if own else plain
        return FeatureSpec(name=spec.name, table_spec=tables[given.name])

    return jax.tree.map(back, specs, is_leaf=lambda leaf: isinstance(leaf, library.FeatureSpec))


def _fields(names: str) -> dict[str, str]:
    return {theirs: OURS.get(theirs, theirs.removesuffix("_value")) for theirs in names.split()}


def _rule(optimizer: Any) -> Rule:
    """Return the rule of one of SparseCore's optimizers, or the one that `to_specs` put there."""
    if isinstance(rule := getattr(optimizer, "rule", None), Rule):
        return rule
    name = type(optimizer).__name__
    if name not in OWN:
        raise ValueError(f"{name} has no rule here: write its equation as a sparrow.Rule")
    kind, names = OWN[name]
    given = {ours: getattr(optimizer, theirs) for theirs, ours in _fields(names).items()}
    fixed = {"eps": 0.0} if kind is rules.Adagrad else {}
    return kind(learning_rate=optimizer.learning_rate, **given, **fixed)


def _library() -> Any:
    try:
        return importlib.import_module("jax_tpu_embedding.sparsecore.lib.nn.embedding_spec")
    except ImportError as error:
        raise ImportError("SparseCore's specs need its library: pip install jax-tpu-embedding") from error


@functools.cache
def _optimizer_class() -> type[Any]:
    """Return the optimizer spec that carries a rule; a class of the library, which may be absent."""
    base: Any = _library().CustomOptimizerSpec

    class RuleSpec(base):  # type: ignore[misc]
        """A rule of Sparrow as a custom optimizer: its program, its scalars at each step, its slots."""

        def __init__(self, table: TableSpec) -> None:
            program = row_program(table)
            self.rule, self._key = table.optimizer, (table.optimizer, program)
            self.limits = {name: limit for name in LIMITS if (limit := getattr(table, name)) is not None}
            self._scalars = functools.partial(scalars, table)
            starts = (jax.nn.initializers.constant(self.rule.slot_init(name)) for name, _ in program.step.slots)
            super().__init__(
                learning_rate=table.optimizer.learning_rate,
                custom_computation_fn=program,
                slot_variable_initializers_tuple=tuple(starts),
                short_name_str=table.optimizer.name.lower(),
            )

        def get_hyperparameters(self, step: Any = None) -> tuple[jax.Array, ...]:
            return self._scalars(0 if step is None else step)

        def __hash__(self) -> int:
            return hash((*self._key, *self.limits.items()))

    return RuleSpec
