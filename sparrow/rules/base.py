"""`Rule` and `Slot`: how an optimizer for table rows is written. The equation stands here once, for every backend."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable, Hashable, Mapping
from types import SimpleNamespace
from typing import Annotated, Any, Final, Literal, TypeAlias

import jax
import jax.numpy as jnp

from sparrow import fields

Scalar: TypeAlias = float | jax.Array
ScalarOrSchedule: TypeAlias = float | Callable[[Any], Any]
NotNegative = Annotated[ScalarOrSchedule, fields.Bounds(at_least=0)]
Share = Annotated[ScalarOrSchedule, fields.Bounds(at_least=0, below=1)]
Slots: TypeAlias = dict[str, jax.Array]
Hyper: TypeAlias = SimpleNamespace
"""Hyper-parameters that `Rule.update` reads: one float32 scalar per name, already evaluated at this step."""

Layout: TypeAlias = Literal["per_element", "per_row"]
PER_ELEMENT: Final = "per_element"
PER_ROW: Final = "per_row"


@dataclasses.dataclass(frozen=True)
class Slot:
    """One piece of optimizer state.

    Attributes:
      layout: ``PER_ELEMENT``, one vector per row, or ``PER_ROW``, one number per row.
      init: the value it starts from: a number, or the name of the rule's field that holds the number.
    """

    layout: Layout
    init: float | str = 0.0

    def __post_init__(self) -> None:
        if self.layout not in (PER_ELEMENT, PER_ROW):
            raise ValueError(f"Slot.layout must be PER_ELEMENT or PER_ROW, got {self.layout!r}")


@dataclasses.dataclass(frozen=True)
class Rule:
    """The optimizer of a table: one equation for one row, applied once per touched row and step.

    A rule is a frozen dataclass. Its numeric fields are hyper-parameters, each a number or a schedule
    ``step -> value`` (step 0 is the first update); they reach `update` through ``h``, so that a changing learning
    rate never recompiles and tables with different numbers can share one kernel. Its other fields (bool, str,
    None) are read from ``self`` and choose the code.

    To write your own, subclass, name the slots, write the equation:

    >>> @dataclasses.dataclass(frozen=True)
    ... class SignSGD(Rule):
    ...     learning_rate: ScalarOrSchedule = 0.1
    ...     def update(self, row, grad, slots, h):
    ...         return row - h.learning_rate * jnp.sign(grad), slots
    >>> SignSGD(learning_rate=lambda step: 0.1 / (step + 1)).hyper(1)
    {'learning_rate': 0.05}

    Operations that run in the compiled kernels of every backend, by the names of JAX's primitives. An equation may use
    them on numbers and on rows, with any of JAX's functions that are made of them (`jnp.mean`, `jnp.clip`,
    `jax.nn.softplus`, ...). With another one the rule works too, on the slower `xla` backend, and a warning names
    the operation.

    * arithmetic: ``add`` ``sub`` ``mul`` ``div`` ``rem`` ``neg`` ``abs`` ``sign`` ``square`` ``integer_pow`` ``pow``
      ``sqrt`` ``rsqrt`` ``cbrt`` ``max`` ``min`` ``clamp`` ``floor`` ``ceil`` ``round`` ``nextafter``
    * functions: ``exp`` ``exp2`` ``expm1`` ``log`` ``log1p`` ``logistic`` ``sin`` ``cos`` ``tan`` ``asin`` ``acos``
      ``atan`` ``atan2`` ``sinh`` ``cosh`` ``tanh`` ``asinh`` ``acosh`` ``atanh`` ``erf`` ``erfc`` ``lgamma``
    * choices: ``eq`` ``ne`` ``lt`` ``le`` ``gt`` ``ge`` ``and`` ``or`` ``xor`` ``not`` ``select_n`` ``is_finite``
    * bits and types: ``shift_left`` ``shift_right_logical`` ``shift_right_arithmetic`` ``bitcast_convert_type``
      ``convert_element_type`` ``copy`` ``stop_gradient``
    * over the row: ``reduce_sum`` ``reduce_prod`` ``reduce_max`` ``reduce_min`` ``dot_general``, of two rows
    * shapes: ``broadcast_in_dim`` ``reshape`` ``squeeze`` ``iota``

    Attributes:
      learning_rate: a number, a schedule, or a function without arguments, whose number a compiled step keeps.
      max_gradient: if given, activation gradients are clamped to ``[-max_gradient, max_gradient]``
        element-wise before they are summed into row gradients.
    """

    learning_rate: ScalarOrSchedule = 0.01
    max_gradient: fields.Positive | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        own = vars(type(self))
        if own.get("__annotations__") and "__dataclass_params__" not in own:
            raise TypeError(f"{self.name} has fields of its own: decorate it with @dataclasses.dataclass(frozen=True)")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isfinite(value):
                raise ValueError(f"{self.name}.{field.name} must be finite, got {value}")
        if not callable(rate := self.learning_rate):
            if not _is_number(rate):
                raise TypeError(
                    f"{self.name}.learning_rate must be a number or a schedule (step -> value), got {rate!r}"
                )
            fields.number(f"{self.name}.learning_rate", rate, at_least=0)
        fields.check(self)

    @property
    def name(self) -> str:
        """The name of the rule's class, for error messages."""
        return type(self).__name__

    @property
    def frozen(self) -> bool:
        """Whether the learning rate is the number 0: such a table is looked up, never updated, and has no slots."""
        return not callable(self.learning_rate) and self.learning_rate == 0

    @property
    def slots(self) -> Mapping[str, Slot]:
        """The optimizer state by name. A subclass may give a plain class attribute instead: ``slots = {...}``."""
        return {}

    def update(self, row: jax.Array, grad: jax.Array, slots: Slots, h: Hyper) -> tuple[jax.Array, Slots]:
        """Return the equation, for one ``row (D,)``, its summed gradient ``grad (D,)`` and its slots, all float32."""
        raise NotImplementedError(f"{self.name} must define update(self, row, grad, slots, h)")

    def hyper(self, step: Any) -> dict[str, Scalar]:
        """Return the fields of ``h`` at ``step``: every numeric field. Override to add scalars of a step."""
        return {name: fields.at_step(value, step) for name, value in self._numeric_fields().items()}

    def _numeric_fields(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            name: value
            for name, value in values.items()
            if name != "max_gradient" and (callable(value) or _is_number(value))
        }

    def slot_init(self, slot: str) -> float:
        """Return the number that ``slot`` starts from."""
        init = self.slots[slot].init
        value = getattr(self, init) if isinstance(init, str) else init
        if not _is_number(value):
            raise TypeError(f"{self.name}: slot '{slot}' starts from {init!r}, which must be a number, got {value!r}")
        return float(value)

    def kind(self) -> Hashable:
        """Rules of one kind run the same code and differ only in numbers: their tables can be stacked."""
        choices = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in self._numeric_fields() and field.name != "max_gradient"
        }
        slots = tuple((name, slot.layout) for name, slot in self.slots.items())
        return type(self), tuple(choices.items()), slots, self.hyper_names()

    def hyper_names(self) -> tuple[str, ...]:
        """Return the names of `hyper`, in its order."""
        try:
            return _hyper_names(self)
        except TypeError:  # a rule with a field that cannot be hashed
            return _hyper_names.__wrapped__(self)

    def without_numbers(self) -> Rule:
        """Return this rule for tracing: reading a hyper-parameter from ``self`` instead of ``h`` is an error."""
        view = object.__new__(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in self._numeric_fields():
                value = _ReadFromHyper(f"{self.name}.update must read h.{field.name}, not self.{field.name}")
            object.__setattr__(view, field.name, value)
        return view


@functools.lru_cache(maxsize=256)  # most tables have the rule of another
def _hyper_names(rule: Rule) -> tuple[str, ...]:
    """Trace schedules: computing them would compile them."""
    names: list[str] = []

    def trace(step: jax.Array) -> tuple[()]:
        names.extend(rule.hyper(step))
        return ()

    jax.eval_shape(trace, jax.ShapeDtypeStruct((), jnp.int32))  # type: ignore[no-untyped-call]
    return tuple(names)


class _ReadFromHyper:
    """Stands in for a number inside `Rule.update`; any use of it explains the mistake."""

    def __init__(self, message: str) -> None:
        self._message = message

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(self._message)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __pow__ = __rpow__ = __neg__ = __bool__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __call__ = __jax_array__ = _refuse

    def __eq__(self, other: object) -> bool:
        return self._message == other._message if isinstance(other, _ReadFromHyper) else bool(self._refuse())

    def __hash__(self) -> int:
        return hash(self._message)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def bias_correction(decay: Scalar, count: jax.Array) -> jax.Array:
    """``1 - decay**count``, without the cancellation that ``1 - x`` suffers in float32 when ``decay`` is near 1."""
    return -jnp.expm1(count * log(decay))


def log(x: Scalar) -> Scalar:
    """Return the logarithm; of a plain number in double precision, because ``log(0.999)`` needs the digits."""
    return math.log(x) if _is_number(x) and x > 0 else jnp.log(x)


def step_count(step: Any) -> jax.Array:
    """Return the optimizer step counted from 1, as bias correction wants it, in float32."""
    return jnp.asarray(step, jnp.float32) + 1.0


def trust_ratio(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    """``numerator / denominator`` of two norms; 1 where either is zero, so that LAMB and LARS never give NaN."""
    both = (numerator > 0) & (denominator > 0)
    return jnp.where(both, numerator / jnp.where(both, denominator, 1.0), 1.0)


def mean(x: jax.Array) -> jax.Array:
    """Return the mean over a row, as a product, which later operations wait for less long than for a quotient."""
    return jnp.sum(x) * (1.0 / jnp.asarray(x.shape[0], x.dtype))


def norm(x: jax.Array) -> jax.Array:
    """Return the Euclidean norm of a row."""
    return jnp.sqrt(jnp.sum(x * x))


def divide_or_zero(numerator: jax.Array | Scalar, denominator: jax.Array) -> jax.Array:
    """``numerator / denominator``, and 0 where the denominator is 0: a row without history and gradient stays."""
    nonzero = denominator != 0
    return jnp.where(nonzero, numerator / jnp.where(nonzero, denominator, 1.0), 0.0)
