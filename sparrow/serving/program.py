"""Programs of StableHLO, checked before they run: they call nothing outside of the compiler, and fit their export."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import jax

from sparrow.data import DataError

CUSTOM_CALLS: Final = frozenset(
    {
        "shape_assertion",  # the number of rows is at least 1
        "stablehlo.dynamic_approx_top_k",
        "stablehlo.dynamic_reduce_window",
        "stablehlo.dynamic_rng_bit_generator",
        "stablehlo.dynamic_top_k",
    }
)
"""The custom calls that programs may hold. XLA replaces each of them by operations of its own: no other code runs."""

_STRING: Final = re.compile(r'@?"(?:[^"\\]|\\.)*"')
_CUSTOM_CALL: Final = re.compile(r'(?<![\w@$.#%!-])(?:\w+\.)?custom_call\b(?:\s*@([\w$.-]+|"(?:[^"\\]|\\.)*"))?')
_GENERIC: Final = re.compile(r'"([\w$]+\.[\w$.]+)"\s*\([%)]')
_OUTSIDE: Final = re.compile(
    r"(?<![\w@$.#%!-])\w+\.((?:infeed|outfeed|send|recv|all_gather|all_reduce|all_to_all|reduce_scatter|"
    r"cross_replica_sum|collective_\w+|partition_id|replica_id))\b"
)

Shape = tuple[tuple[int | None, ...], str]
"""Sizes, None for the number of rows, and the dtype."""
Shapes = Mapping[str, Shape]


def deserialized(
    data: bytes,
    *,
    where: str,
    written_by: str,
    arguments: tuple[Shapes, Shapes, Shapes],
    outputs: Shapes,
    custom_calls: Collection[str] = (),
) -> Any:
    """Return a function of StableHLO, to be called with the arguments; raise `DataError` if it cannot or must not run.

    Args:
      data: the bytes that `jax.export` wrote.
      where: its file, for errors.
      written_by: the version of JAX that wrote it.
      arguments: the arrays that it will be given: parameters, activations, numbers.
      outputs: the arrays that it must return.
      custom_calls: targets of custom calls that it may hold besides `CUSTOM_CALLS`.
    """
    from jax import export

    try:
        exported = export.deserialize(bytearray(data))
        text = exported.mlir_module()
        arrays, out = _shapes(exported)
        single = exported.nr_devices == 1 and not (exported.ordered_effects or exported.unordered_effects)
        version = exported.calling_convention_version
        readable = (
            export.minimum_supported_calling_convention_version
            <= version
            <= export.maximum_supported_calling_convention_version
        )
    except Exception as error:  # a reader of flatbuffers may raise anything for the bytes of another version
        why = f"{type(error).__name__}: {error}"
        raise DataError(
            f"jax {jax.__version__} cannot read a program of jax {written_by} ({why}); export again", where
        ) from None
    if not readable:
        raise DataError(f"has the calling convention {version}, which jax {jax.__version__} does not read", where)
    if export.default_export_platform() not in exported.platforms:
        allowed = ", ".join(exported.platforms)
        raise DataError(f"runs on {allowed}, not on {export.default_export_platform()}", where)
    if foreign := sorted(called(text) - CUSTOM_CALLS - set(custom_calls)):
        remedy = "load an export that you made yourself with custom_calls=(...)"
        raise DataError(f"calls code outside of the program: {', '.join(foreign)}; {remedy}", where)
    if not single or _OUTSIDE.search(_without_strings(text)):
        raise DataError("is a program for several devices, or one that waits for other programs", where)
    if (arrays, out) != (arguments, outputs):
        raise DataError("does not fit the parameters and tables of its export; export again", where)
    return jax.jit(exported.call)


def called(text: str) -> set[str]:
    """Return the targets of all custom calls in a module of StableHLO.

    >>> sorted(called('stablehlo.custom_call @lapack_spotrf_ffi(%0) : () -> () loc("custom_call @no")'))
    ['lapack_spotrf_ffi']
    >>> sorted(called('%1 = "stablehlo.custom_call"(%0) <{call_target_name = "x"}>'))
    ['"stablehlo.custom_call"']
    """
    found = {f'"{name}"' for name in _GENERIC.findall(text) if name.endswith("custom_call")}
    return found | {target or "custom_call" for target in _CUSTOM_CALL.findall(_without_strings(text))}


def _without_strings(text: str) -> str:
    """Return the module's code without quoted strings, except names (@"...")."""
    return _STRING.sub(lambda found: found[0] if found[0].startswith("@") else '""', text)


def _shapes(exported: Any) -> tuple[tuple[Shapes, ...], Shapes]:
    """Return the arguments and outputs of a function by name."""
    arguments, keywords = jax.tree.unflatten(exported.in_tree, exported.in_avals)
    if keywords or len(arguments) != 3:
        raise ValueError(f"the program takes {len(arguments)} arguments")
    return tuple(map(_by_name, arguments)), _by_name(jax.tree.unflatten(exported.out_tree, exported.out_avals))


def _by_name(part: Any) -> Shapes:
    return {
        name: (tuple(size if isinstance(size, int) else None for size in aval.shape), str(aval.dtype))
        for name, aval in part.items()
    }
