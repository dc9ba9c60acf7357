"""Compiled modules in this process, by key."""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import hashlib
from collections.abc import Sequence

from sparrow.kernels.cuda.machine import Machine
from sparrow.kernels.cuda.source import Module


@functools.lru_cache(maxsize=1024)
def _key(machine: Machine, module: Module) -> int:
    digest = hashlib.sha256("\0".join([machine.identity(module), *module.kernels]).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def load(machine: Machine, modules: Sequence[Module]) -> list[int]:
    """Load ``modules``, compiled in parallel where they are new, and return their keys.

    Never inside XLA's handler, which may run while a CUDA graph is captured: an executable finds its programs loaded,
    and holds them from then on.
    """
    keys = [_key(machine, module) for module in modules]
    new = [(key, m) for key, m in zip(keys, modules, strict=True) if not machine.shim.sparrow_cuda_has(_int64(key))]
    if len(new) > 1:
        with concurrent.futures.ThreadPoolExecutor(len(new)) as pool:
            images = list(pool.map(lambda one: machine.image(one[1]), new))
    else:
        images = [machine.image(module) for _, module in new]
    for (key, module), image in zip(new, images, strict=True):
        names = (ctypes.c_char_p * len(module.kernels))(*(name.encode() for name in module.kernels))
        shared = (ctypes.c_int * len(module.shared))(*module.shared)
        if machine.shim.sparrow_cuda_register(_int64(key), image, names, shared, len(module.kernels)):
            raise RuntimeError(f"backend 'cuda': {machine.shim.sparrow_cuda_error().decode()}")
    return keys


def _int64(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(number)
