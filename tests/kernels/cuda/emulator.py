"""The CUDA kernels on a CPU: compiled by g++, run by an emulation of blocks and warps, behind the real shim."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator

import jax
import pytest

from sparrow.kernels import cuda
from sparrow.kernels.cuda import machine
from sparrow.kernels.cuda.source import Module
from sparrow.kernels.native.compiler import find_compiler

HERE = pathlib.Path(__file__).parent / "emulation"
FLAGS = ("-std=c++17", "-fPIC", "-shared", "-w", "-fno-strict-aliasing", "-fwrapv")


def unavailable() -> str | None:
    """Why the emulation cannot run here; None: it can."""
    if jax.default_backend() != "cpu":
        return "it runs where there is no GPU"
    return None if find_compiler() else "it needs a C++ compiler"


@dataclasses.dataclass(frozen=True)
class EmulatedGpu:
    """A machine as `sparrow.kernels.cuda.machine` wants one."""

    folder: pathlib.Path
    shim: ctypes.CDLL
    driver: ctypes.CDLL
    cores: int = 2
    arch: str = "emulated"

    def identity(self, module: Module) -> str:
        return "\0".join([*(f"{name}={value}" for name, value in module.macros), module.source])

    def image(self, module: Module) -> bytes:
        """The path of a shared library, where a GPU has machine code."""
        path = self.folder / f"{module.name}-{hashlib.sha256(self.identity(module).encode()).hexdigest()[:24]}.so"
        if not path.exists():
            kernels = "\n".join(f"EMULATED_KERNEL({name})" for name in module.kernels)
            text = path.with_suffix(".cc")
            text.write_text(f"{module.source}\n{kernels}\n")
            macros = [f"-D{name}={value}" for name, value in module.macros]
            compile_cpp([str(text)], path, "-O0", "-DSPARROW_EMULATED", f"-I{HERE}", *macros)
        return str(path).encode() + b"\0"

    @property
    def launches(self) -> int:
        return ctypes.c_int64.in_dll(self.driver, "emulated_launches").value

    @property
    def handles(self) -> int:
        """Streams and events that exist."""
        return ctypes.c_int64.in_dll(self.driver, "emulated_handles").value

    @property
    def libraries(self) -> int:
        return ctypes.c_int64.in_dll(self.driver, "emulated_libraries").value


def compile_cpp(files: list[str], path: pathlib.Path, *flags: str) -> None:
    beside = path.with_suffix(f".{os.getpid()}")
    subprocess.run([str(find_compiler()), *FLAGS, *flags, *files, "-o", str(beside), "-ldl"], check=True)
    beside.replace(path)


@functools.cache
def emulated_gpu() -> EmulatedGpu:
    """Built once per process, its folder removed at the end."""
    holder = tempfile.TemporaryDirectory(prefix="sparrow-emulation-")
    folder = pathlib.Path(holder.name)
    driver, shim = folder / "driver.so", folder / "shim.so"
    compile_cpp([str(HERE / "driver.cc")], driver, "-O1")
    files, includes = machine.shim_files()
    defines = [f'-DSPARROW_CUDA_DRIVER="{driver}"', "-DSPARROW_WITHOUT_STREAM"]
    headers = [f"-I{include}" for include in includes]
    compile_cpp(files, shim, "-O0", "-fvisibility=hidden", *defines, *headers)
    loaded_driver = ctypes.CDLL(str(driver), ctypes.RTLD_GLOBAL)  # the kernels call back into it
    loaded = machine.register(ctypes.CDLL(str(shim)), "cpu")
    assert not loaded.sparrow_cuda_driver(), loaded.sparrow_cuda_error()
    gpu = EmulatedGpu(folder, loaded, loaded_driver)
    _holders.append(holder)
    return gpu


_holders: list[tempfile.TemporaryDirectory[str]] = []


@contextlib.contextmanager
def gpu_or_emulation() -> Iterator[EmulatedGpu | None]:
    """Backend "cuda" runs on a GPU, or on the emulation where there is none; without both, the test is skipped."""
    if cuda.unavailable() is None:
        yield None
        return
    if reason := unavailable():
        pytest.skip(f"no GPU, and no emulation: {reason}")
    with emulation() as machine:
        yield machine


@contextlib.contextmanager
def emulation() -> Iterator[EmulatedGpu]:
    """Let backend 'cuda' run on the emulation."""
    gpu = emulated_gpu()
    machine.use(gpu)
    try:
        yield gpu
    finally:
        machine.use(None)
