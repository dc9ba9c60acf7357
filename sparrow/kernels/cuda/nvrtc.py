"""CUDA C++ to machine code at run time, by NVRTC: a library that comes with ``jax[cuda12]`` and ``jax[cuda13]``."""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os
import threading
from collections.abc import Sequence

from sparrow.kernels.native.compiler import first_error

_lock = threading.Lock()


class NvrtcError(RuntimeError):
    """NVRTC is missing or refused a source; the message has its reason."""


def _candidates() -> list[str]:
    """Where pip puts NVRTC (nvidia-cuda-nvrtc, nvidia-cuda-nvrtc-cu12), then where the system's loader finds it."""
    found: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for pattern in ("cu13/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*"):
            found += sorted(path for path in glob.glob(os.path.join(folder, pattern)) if ".alt." not in path)
    return [*found, "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"]


@functools.cache
def _open() -> ctypes.CDLL | str:
    reasons = []
    for path in _candidates():
        try:
            # The second library of some builds is found only if it is loaded already.
            for builtins in sorted(glob.glob(os.path.join(os.path.dirname(path) or ".", "libnvrtc-builtins.so.*"))):
                if ".alt." not in builtins:
                    ctypes.CDLL(builtins, ctypes.RTLD_GLOBAL)
            library = ctypes.CDLL(path)
            library.nvrtcGetErrorString.restype = ctypes.c_char_p
        except OSError as error:
            reasons.append(str(error))
        else:
            return library
    return f"NVRTC, the CUDA compiler library, was not found; install jax[cuda13] or jax[cuda12] ({reasons[0]})"


def unavailable() -> str | None:
    """Return the reason why there is no NVRTC; None: there is."""
    with _lock:
        found = _open()
    return found if isinstance(found, str) else None


def _library() -> ctypes.CDLL:
    with _lock:
        found = _open()
    if isinstance(found, str):
        raise NvrtcError(found)
    return found


def version() -> str:
    """Return the version of NVRTC, such as "13.0"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def options(arch: str, macros: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Return the options of every compilation; ``arch`` such as "sm_90"."""
    fixed = (f"--gpu-architecture={arch}", "-std=c++17", "-default-device")
    return (*fixed, *(f"-D{name}={value}" for name, value in sorted(macros)))


def compile_cubin(source: str, arguments: Sequence[str]) -> bytes:
    """Return the machine code of ``source``."""
    library, program = _library(), ctypes.c_void_p()

    def check(code: int) -> None:
        if code:
            raise NvrtcError(f"NVRTC: {library.nvrtcGetErrorString(code).decode()}: {first_error(log())}")

    def log() -> str:
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, text)
        return text.value.decode(errors="replace")

    check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"sparrow.cu", 0, None, None))
    try:
        given = (ctypes.c_char_p * len(arguments))(*(one.encode() for one in arguments))
        check(library.nvrtcCompileProgram(program, len(arguments), given))
        size = ctypes.c_size_t()
        check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        cubin = ctypes.create_string_buffer(size.value)
        check(library.nvrtcGetCUBIN(program, cubin))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw
