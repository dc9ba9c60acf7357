"""The row steps that are compiled when the package is built. Any other is compiled on first use."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sparrow.files import replace_file
from sparrow.kernels.cuda import machine
from sparrow.kernels.native import compiler, host
from sparrow.kernels.native.compiler import compile_library, levels, library_name
from sparrow.kernels.native.library import ffi_content, shipped_name
from sparrow.kernels.native.translate import translate
from sparrow.kernels.types import LIMITS, RowStep
from sparrow.rules import SGD, SHIPPED, Rule

CHOICES: dict[str, tuple[Any, ...]] = {
    "momentum": (0.0, 0.9),
    "nesterov": (False, True),
    "weight_decay_mode": ("none", "l2", "decouple"),
    "max_norm": (None, 1.0),
    "bias_correction": ("step", "row"),
    "multiply_linear_by_learning_rate": (False, True),
}
"""The fields that change a rule's code, with a value for each code that they choose."""

PRECISIONS: tuple[dict[str, Any], ...] = (
    {"dtype": "float32"},
    {"dtype": "float32", "limits": True},
    {"dtype": "bfloat16", "stochastic": True},
    {"dtype": "float16", "stochastic": True},
)


def rules() -> Iterator[Rule]:
    """Every shipped rule in every form that its options give it.

    >>> sum(isinstance(rule, SGD) for rule in rules())    # plain, momentum, Nesterov
    3
    """
    for rule in SHIPPED:
        fields = [field.name for field in dataclasses.fields(rule) if field.name in CHOICES]
        if rule is not SGD and "momentum" in fields:
            fields.remove("momentum")  # a number like any other; only in SGD does 0 remove the slot
        for values in itertools.product(*(CHOICES[name] for name in fields)):
            given = dict(zip(fields, values, strict=True))
            if given.get("nesterov") and given.get("momentum") == 0.0:
                continue
            yield rule(**given)


def row_steps() -> Iterator[RowStep]:
    """Return the row steps of all of `rules`, in all of `PRECISIONS`. The dim does not matter: the code serves any."""
    for rule, precision in itertools.product(rules(), PRECISIONS):
        yield RowStep(
            rule=rule.without_numbers(),
            slots=tuple((name, slot.layout) for name, slot in rule.slots.items()),
            scalars=(*rule.hyper(jnp.zeros((), jnp.int32)), *(LIMITS if precision.get("limits") else ())),
            dim=8,
            **precision,
        )


def build(folder: pathlib.Path) -> list[pathlib.Path]:
    """Compile all libraries into ``folder``, with their checksums, as many at a time as there are cores.

    Raise `CompileError` where one cannot be compiled.
    """
    functions = {function.symbol: function.source for function in map(translate, row_steps())}
    generated = "\n".join(['#include "row_step.h"', *functions.values()])
    baseline = levels()[0]
    jobs: list[tuple[pathlib.Path, str, Sequence[str] | str, Sequence[str]]] = []
    for level in levels():
        jobs.append((folder / shipped_name(level), level, generated, ()))
        jobs.append((folder / library_name("kernels", level, compiler.all_code()), level, compiler.KERNELS, ()))
    include = jax.ffi.include_dir()
    jobs.append((folder / library_name("ffi", baseline, ffi_content()), baseline, compiler.FFI, (include,)))
    jobs += [(folder / name, level, files, ()) for kind in host.SIGNATURES for name, level, files in host.jobs(kind)]
    jobs.append((folder / machine.shim_name(), baseline, *machine.shim_files()))
    wanted = {path for path, *_ in jobs}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = [pool.submit(compile_library, *job) for job in jobs]
        paths = [future.result() for future in made]
    for path in folder.glob("*.so"):
        if path not in wanted:
            path.unlink()  # of an earlier build
    sums = folder / compiler.CHECKSUMS
    held = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    replace_file(sums, json.dumps(held, indent=1, sort_keys=True).encode())
    return [*paths, sums]
