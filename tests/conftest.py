"""Shared fixtures."""

import contextlib
import ctypes
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# What one test compiles serves all others, in both workers and in all processes that tests start: reading a program of
# one operation takes a third of compiling it. Set before JAX is imported; the process that starts the workers makes the
# folder and removes it.
CACHE = None
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    CACHE = tempfile.mkdtemp(prefix="sparrow-tests-")
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": CACHE, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

# Most programs here take far longer to compile than to run: they are compiled without optimization, in one part, and by
# the emitters that take half of the time, unless the caller asks for flags of his own. `OPTIMIZED` brings users' flags
# back for one program.
QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
os.environ.setdefault("XLA_FLAGS", QUICK_TO_COMPILE)
OPTIMIZED = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
}
os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")  # GPUs round the factors to 10 bits otherwise
AS_USERS = {**os.environ, "XLA_FLAGS": ""}  # the environment of programs that run as users run them


import jax  # noqa: E402

import sparrow as sp  # noqa: E402
from sparrow.data.computed.custom import FUNCTIONS  # noqa: E402
from sparrow.registry import REGISTRIES  # noqa: E402
from tests import contexts  # noqa: E402

contexts.share()

# A shell's background jobs ignore Ctrl-C, and so would the runs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

MUCH_MEMORY = 2_500_000_000
AVAILABLE = [name for name, state in sp.backends().items() if state == "available"]


class RegistriesAsFound:
    """Forgets the records and functions that a test or a doctest registers: errors list all names that are known."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        held = [FUNCTIONS, *(registry._records for registry in REGISTRIES)]
        before = [set(records) for records in held]
        try:
            return (yield)
        finally:
            for records, known in zip(held, before, strict=True):
                for name in records.keys() - known:
                    if not _is_shipped(records[name]):
                        del records[name]


def _is_shipped(record: Any) -> bool:
    """Return whether a module of Sparrow, which a test may be the first to import, holds it."""
    name = record.__module__
    return name.startswith("sparrow.") and vars(sys.modules[name]).get(record.__name__) is record


def pytest_configure(config: pytest.Config) -> None:
    """Register what also holds for doctests, which no fixture of this file reaches."""
    config.pluginmanager.register(RegistriesAsFound())


def pytest_unconfigure() -> None:
    """Removes what was compiled."""
    if CACHE is not None:
        shutil.rmtree(CACHE, ignore_errors=True)


def pytest_collection_finish() -> None:
    """Look for garbage seldom: tests keep nearly all that they make, or free it without a cycle."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(scope="module", autouse=True)
def _little_memory() -> Iterator[None]:
    """Drops compiled programs between two files once they fill much memory; those that are kept on disk come back."""
    yield
    if _resident_bytes() > MUCH_MEMORY:
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # other C libraries
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.fixture(params=AVAILABLE)
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend that runs on this machine."""
    return request.param


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a new bucket, on a server of S3's protocol on this machine."""
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "kept-to-oneself",
        "AWS_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ |= given
    try:
        from pyarrow import fs

        options = {"endpoint_override": f"{host}:{port}", "scheme": "http", "region": "us-east-1"}
        fs.S3FileSystem(allow_bucket_creation=True, **options).create_dir("sparrow-test")
        yield "s3://sparrow-test"
    finally:
        server.stop()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
