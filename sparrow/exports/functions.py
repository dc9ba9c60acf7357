"""From a model's function to StableHLO that takes any number of rows and runs on any device."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from sparrow.config import ConfigError, Problem
from sparrow.kernels import portable_attention
from sparrow.serving import CUSTOM_CALLS, called

Arrays = dict[str, jax.Array]
Shapes = Mapping[str, jax.ShapeDtypeStruct]
Function = Callable[[Arrays, Arrays, Arrays], Arrays]
"""``function(parameters, activations, numbers)`` returns outputs, all of them arrays by name."""

PLATFORMS: Final = ("cpu", "cuda", "rocm", "tpu")
BATCH: Final = "batch"
LOCATIONS: Final = "jax_traceback_in_locations_limit"


_shape: Callable[..., jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Arguments of a function: the shapes of the parameters, and the widths of activations and numbers."""

    parameters: Shapes
    acts: Mapping[str, int]
    numbers: Mapping[str, int]

    def shapes(self, batch: Any) -> tuple[dict[str, jax.ShapeDtypeStruct], ...]:
        """Return the three arguments, for ``batch`` rows."""
        rows = [
            {name: _shape((batch, dim), jnp.float32) for name, dim in dims.items()}
            for dims in (self.acts, self.numbers)
        ]
        return dict(self.parameters), *rows

    def only(self, kept: Sequence[Sequence[str]]) -> Arguments:
        parameters, acts, numbers = (
            {name: part[name] for name in names}
            for part, names in zip((self.parameters, self.acts, self.numbers), kept, strict=True)
        )
        return Arguments(parameters, acts, numbers)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Exported:
    """A function as bytes, the arguments that it really uses, and the shapes of its outputs ("batch": of rows)."""

    artifact: bytes
    platforms: tuple[str, ...]
    arguments: Arguments
    outputs: Mapping[str, tuple[list[str | int], str]]


def exported(function: Function, arguments: Arguments) -> Exported:
    """Export a function. Arguments that it does not use are left out."""
    (batch,) = export.symbolic_shape(BATCH)
    everything = arguments.shapes(batch)
    arguments = arguments.only(used(function, arguments))

    def reduced(*given: Arrays) -> Arrays:
        # A model reads all of its features; XLA removes the ones that no output depends on.
        return function(*(_completed(part, shapes) for part, shapes in zip(given, everything, strict=True)))

    # GPUs and TPUs would round float32 to fewer bits before they multiply: an export predicts the same everywhere.
    with jax.default_matmul_precision("highest"), _without_source_lines(), portable_attention():
        made = _for_platforms(reduced, arguments.shapes(batch))
    outputs = {
        name: ([BATCH if size == batch else int(size) for size in aval.shape], str(aval.dtype))
        for name, aval in jax.tree.unflatten(made.out_tree, made.out_avals).items()
    }
    for name, (shape, _) in outputs.items():
        if shape[:1] != [BATCH]:
            problem = f"the output '{name}' has the shape {tuple(shape)}: its first axis is not the rows"
            raise ConfigError([Problem(("model",), problem)])
    if foreign := sorted(called(made.mlir_module()) - CUSTOM_CALLS):
        warnings.warn(
            f"the model calls code outside of its program, which an export is loaded with only on request: "
            f"sparrow.serving.load(folder, custom_calls={foreign})",
            stacklevel=3,
        )
    return Exported(bytes(made.serialize()), made.platforms, arguments, outputs)


@contextlib.contextmanager
def _without_source_lines() -> Iterator[None]:
    """Keep paths of this machine's source files out of programs, which are given to others."""
    before = getattr(jax.config, LOCATIONS)
    jax.config.update(LOCATIONS, 0)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        jax.config.update(LOCATIONS, before)  # type: ignore[no-untyped-call]


def used(function: Function, arguments: Arguments) -> tuple[list[str], ...]:
    """Return the names of the parameters, activations and numbers that the outputs depend on."""
    shapes = arguments.shapes(2)
    with portable_attention():
        kept = set(export.export(jax.jit(function))(*shapes).module_kept_var_idx)
    names: tuple[list[str], ...] = ([], [], [])
    for index, (path, _) in enumerate(jax.tree_util.tree_leaves_with_path(shapes)):
        if index in kept:
            names[path[0].idx].append(path[1].key)
    return names


def _completed(given: Arrays, shapes: Shapes) -> Arrays:
    zeros = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items() if name not in given}
    return {**given, **zeros}


def rows_are_independent(function: Function, arguments: Arguments, parameters: Arrays) -> bool:
    """Return whether each row's outputs depend on that row alone, to the last bit."""
    rows, fixed = 8, 4
    compiled, rng = jax.jit(function), np.random.default_rng(0)

    def some(dims: Mapping[str, int], count: int) -> dict[str, np.ndarray[Any, Any]]:
        return {name: rng.normal(size=(count, dim)).astype(np.float32) for name, dim in dims.items()}

    first = some(arguments.acts, fixed), some(arguments.numbers, fixed)
    outputs = []
    for _ in range(2):
        others = some(arguments.acts, rows - fixed), some(arguments.numbers, rows - fixed)
        acts, numbers = (
            {name: jnp.concatenate([array, beside[name]]) for name, array in part.items()}
            for part, beside in zip(first, others, strict=True)
        )
        outputs.append(jax.device_get(compiled(parameters, acts, numbers)))
    a, b = outputs
    return all(np.array_equal(a[name][:fixed], b[name][:fixed], equal_nan=True) for name in a)


def _for_platforms(function: Callable[..., Arrays], shapes: Any) -> export.Exported:
    """Return one artifact for all platforms, or for the platforms that have all of the model's operations."""
    try:
        return export.export(jax.jit(function), platforms=PLATFORMS)(*shapes)
    except Exception as error:  # a model with a fixed number of rows, or without code for some platform
        first = error
    for platforms in (("cpu", "cuda"), (export.default_export_platform(),)):
        try:
            return export.export(jax.jit(function), platforms=platforms)(*shapes)
        except Exception:
            continue
    problem = (
        "cannot be exported for any number of rows: "
        f"{str(first).splitlines()[0]} (in a model of your own, write x.shape[0] or -1 instead of len(x))"
    )
    raise ConfigError([Problem(("model",), problem)]) from None
