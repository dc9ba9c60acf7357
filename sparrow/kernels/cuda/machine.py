"""The GPU that kernels run on: its architecture, the compiler for it, the shim that launches them, what is loaded."""

from __future__ import annotations

import concurrent.futures
import ctypes
import dataclasses
import functools
import hashlib
import threading
from collections.abc import Sequence

import jax

from sparrow.kernels import cache
from sparrow.kernels.cuda import nvrtc, source
from sparrow.kernels.cuda.plan import TARGET
from sparrow.kernels.cuda.source import Module
from sparrow.kernels.device_kind import platform
from sparrow.kernels.native import compiler
from sparrow.kernels.native.library import ffi_headers, open_library
from sparrow.kernels.warning import warn_once

OLDEST = 8.0  # compute capability of Ampere
SYMBOLS = (
    TARGET,
    "sparrow_cuda_instantiate",
    "sparrow_cuda_register",
    "sparrow_cuda_type_id",
    "sparrow_cuda_driver",
    "sparrow_cuda_pin",
)
_lock = threading.RLock()


@dataclasses.dataclass(frozen=True)
class Gpu:
    """An NVIDIA GPU.

    Attributes:
      arch: such as "sm_90".
      cores: the number of its multiprocessors.
      shim: the loaded shim.
    """

    arch: str
    cores: int
    shim: ctypes.CDLL

    def identity(self, module: Module) -> str:
        """Source, options and the compiler's version."""
        return "\0".join([nvrtc.version(), *self._options(module), module.source])

    def _options(self, module: Module) -> tuple[str, ...]:
        return nvrtc.options(self.arch + "a" if module.only_here else self.arch, module.macros)

    def image(self, module: Module) -> bytes:
        """Return the machine code from the cache on disk, or compiled into it now."""
        digest = hashlib.sha256(self.identity(module).encode()).hexdigest()
        name = f"cuda-{module.name}-{self.arch}-{digest[:24]}.cubin"
        try:
            held = cache.read(name)
        except cache.CacheError:
            held = None  # `keep` below gives the reason
        if held is not None:
            return held
        cubin = nvrtc.compile_cubin(module.source, self._options(module))
        try:
            cache.keep(name, cubin)
        except cache.CacheError as error:
            warn_once(f"compiled kernels are not kept, so that every process compiles them again: {error}")
        return cubin


@functools.cache
def _find() -> Gpu | str:
    devices = jax.local_devices()
    kind = devices[0].device_kind
    capabilities = {str(getattr(device, "compute_capability", "")) for device in devices}
    try:
        oldest = min(map(float, capabilities))
    except ValueError:
        return f"it needs an NVIDIA GPU, and this is '{kind}'"
    if oldest < OLDEST:
        return f"it needs an NVIDIA GPU of compute capability {OLDEST} or newer, and '{kind}' has {oldest}"
    if len(capabilities) > 1:
        return (
            f"it needs GPUs of one kind in a process; compute capabilities here are {', '.join(sorted(capabilities))}"
        )
    if reason := nvrtc.unavailable():
        return reason
    try:
        files, includes = shim_files()
        shim = register(open_library(shim_name(), compiler.levels()[0], files, includes, SYMBOLS), "CUDA")
    except (compiler.CompileError, OSError, RuntimeError, AttributeError) as error:
        return f"its launcher could not be loaded: {error}"
    if shim.sparrow_cuda_driver():
        return str(shim.sparrow_cuda_error().decode())
    return Gpu("sm_" + capabilities.pop().replace(".", ""), int(getattr(devices[0], "core_count", 128)), shim)


_given: Gpu | None = None


def use(machine: Gpu | None) -> None:
    """Run on ``machine`` from now on; None: on the GPU. For tests."""
    global _given
    _given = machine


def find() -> Gpu | str:
    """Return the machine that kernels run on, or why there is none."""
    if _given is not None:
        return _given
    if (kind := platform()) != "gpu":
        return f"it runs on NVIDIA GPUs, and JAX uses the {kind.upper()} here"
    with _lock:
        return _find()


def if_any() -> Gpu | None:
    """Return the machine that kernels run on; None: there is none."""
    found = find()
    return None if isinstance(found, str) else found


def here() -> Gpu:
    """Return the machine that kernels run on; raise RuntimeError where there is none."""
    found = find()
    if isinstance(found, str):
        raise RuntimeError(f"backend 'cuda' cannot run: {found}")
    return found


@functools.lru_cache(maxsize=1024)
def _key(machine: Gpu, module: Module) -> int:
    digest = hashlib.sha256("\0".join([machine.identity(module), *module.kernels]).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def load(machine: Gpu, modules: Sequence[Module]) -> list[int]:
    """Load ``modules``, compiled in parallel where they are new, and return their keys.

    Never inside XLA's handler, which may run while a CUDA graph is captured: an executable finds its programs loaded,
    and holds them from then on.
    """
    keys = [_key(machine, module) for module in modules]
    new = [(ctypes.c_int64(key), module) for key, module in zip(keys, modules, strict=True)]
    new = [(key, module) for key, module in new if not machine.shim.sparrow_cuda_has(key)]
    if len(new) > 1:
        with concurrent.futures.ThreadPoolExecutor(len(new)) as pool:
            images = list(pool.map(lambda one: machine.image(one[1]), new))
    else:
        images = [machine.image(module) for _, module in new]
    for (key, module), image in zip(new, images, strict=True):
        names = (ctypes.c_char_p * len(module.kernels))(*(name.encode() for name in module.kernels))
        shared = (ctypes.c_int * len(module.shared))(*module.shared)
        if machine.shim.sparrow_cuda_register(key, image, names, shared, len(module.kernels)):
            raise RuntimeError(f"backend 'cuda': {machine.shim.sparrow_cuda_error().decode()}")
    return keys


def shim_name() -> str:
    """Return the shim's file name, with the hash of its code and of XLA's headers."""
    content = source.text("driver.h", "programs.h", "sides.h", *source.SHIM) + ffi_headers()
    return compiler.library_name("cuda-shim", compiler.levels()[0], content)


def shim_files() -> tuple[list[str], list[str]]:
    """Return the shim's files, and the folders of its headers: XLA's FFI and nothing of CUDA."""
    return [str(source.FOLDER / name) for name in source.SHIM], [str(source.FOLDER), jax.ffi.include_dir()]


def register(shim: ctypes.CDLL, platform: str) -> ctypes.CDLL:
    """Make the handler of ``shim`` known to XLA on ``platform``."""
    jax.local_devices()  # XLA takes types and handlers in their order only once it has started
    shim.sparrow_cuda_error.restype = ctypes.c_char_p
    shim.sparrow_cuda_loaded.restype = ctypes.c_int64
    shim.sparrow_cuda_type_id.restype = shim.sparrow_cuda_type_info.restype = ctypes.c_void_p
    types = {
        "type_id": _capsule(ctypes.c_void_p(shim.sparrow_cuda_type_id())),
        "type_info": _capsule(ctypes.c_void_p(shim.sparrow_cuda_type_info())),
    }
    jax.ffi.register_ffi_type("sparrow_cuda_programs", types, platform=platform)  # type: ignore[arg-type]
    instantiate = _capsule(shim.sparrow_cuda_instantiate)
    handlers = {"instantiate": instantiate, "execute": _capsule(getattr(shim, TARGET))}
    jax.ffi.register_ffi_target(TARGET, handlers, platform=platform)
    return shim


def _capsule(pointer: object) -> object:
    return jax.ffi.pycapsule(pointer)  # type: ignore[no-untyped-call]
