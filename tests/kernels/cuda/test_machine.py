"""The plumbing: what is loaded when, what is kept, what happens where something is missing."""

import concurrent.futures
import dataclasses
import functools
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from sparrow import rules
from sparrow.kernels import Lookups, cache, choose, cuda, xla
from sparrow.kernels.cuda import machine, nvrtc, source, tuning
from tests.kernels.native.problems import random_grads, random_state, row_step, scalars


@dataclasses.dataclass(frozen=True)
class Scaled(rules.Rule):
    """One of many rules that a user tries, each with code of its own."""

    factor: str = "1"

    def update(self, row, grad, slots, h):
        return row - h.learning_rate * grad * (1.0 + float(self.factor)), slots


def run(rule, dim=4):
    rng = np.random.default_rng(0)
    step = row_step(rule, dim)
    state, grads = random_state(step, 20, rng), random_grads(rng, dim, 20, count=20)
    update = jax.jit(functools.partial(cuda.update, step))
    return update, (*state, grads, scalars(rule))


def test_a_kernel_goes_with_the_last_program_that_uses_it(gpu):
    if gpu is None:
        pytest.skip("counts libraries of the emulation")
    update, arguments = run(Scaled(factor="7"))
    want = np.asarray(update(*arguments)[0])
    held = gpu.libraries
    assert gpu.shim.sparrow_cuda_loaded() == held
    # Newer programs push it out of the shim's list; its executable still holds it.
    registered = [machine.load(gpu, [source.sort_module(1, _sort(i))]) for i in range(3)]
    assert len({key for (key,) in registered}) == 3
    np.testing.assert_array_equal(update(*arguments)[0], want)


def _sort(i):
    return dataclasses.replace(tuning.for_sort(1000, 132), sort_threads=64, sort_bits=6, sort_items=2, lookback=1 + i)


def test_thousands_of_programs_leave_nothing_behind(gpu, monkeypatch):
    """As when a user tries rule after rule: loaded programs stay bounded."""
    if gpu is None:
        pytest.skip("counts libraries of the emulation")
    image = gpu.image(source.sort_module(1, _sort(0)))
    monkeypatch.setattr(type(gpu), "image", lambda self, module: image)
    before = gpu.libraries
    for i in range(10_000):
        module = dataclasses.replace(source.sort_module(1, _sort(0)), macros=(("NUMBER", i),))
        machine.load(gpu, [module])
    gc.collect()
    assert gpu.libraries <= before + 256 + 16
    assert gpu.shim.sparrow_cuda_loaded() == gpu.libraries


def test_threads_at_once():
    update, arguments = run(rules.Adam())
    want = jax.tree.map(np.asarray, update(*arguments))

    def once(i):
        again, _ = run(rules.Adam())
        return jax.tree.map(np.asarray, again(*arguments))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(once, range(4)):
            for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                np.testing.assert_array_equal(g, w)


def test_second_streams_belong_to_their_device_and_their_program(gpu):
    """Threads of several devices run one program at once; its streams go with it."""
    from tests.kernels.native.problems import random_lookups

    if gpu is None:
        pytest.skip("counts streams of the emulation")
    rng = np.random.default_rng(0)
    table, lookups = jnp.asarray(rng.normal(size=(40, 8)), jnp.float32), random_lookups(rng, 40, 30)
    look = jax.jit(lambda table, lookups: cuda.lookup_and_sort(table, lookups)[0])
    want = np.asarray(xla.lookup(table, lookups))
    before = gpu.handles

    def once(look):
        return [np.asarray(look(table, lookups)) for _ in range(5)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for results in pool.map(once, [look] * 8):
            for got in results:
                np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    assert gpu.handles > before
    del look
    jax.clear_caches()
    gc.collect()
    assert gpu.handles <= before


def test_a_plan_that_names_what_is_not_there_is_an_error():
    from sparrow.kernels.cuda.plan import Call, number

    call = Call()
    out = call.output((4,), jnp.uint32)
    call.launch(0, 9, 1, 32, [out, number(1)])
    keys = machine.load(machine.find(), [source.sort_module(1, tuning.for_sort(1000, 132))])
    with pytest.raises(Exception, match="names a kernel that is not there"):
        jax.block_until_ready(call.bind(keys))


def test_a_program_that_is_not_loaded_is_an_error():
    from sparrow.kernels.cuda.plan import Call

    call = Call()
    call.output((4,), jnp.uint32)
    with pytest.raises(Exception, match="not loaded in this process"):
        jax.block_until_ready(call.bind([12345]))


@pytest.fixture
def no_gpu():
    """As without the emulation."""
    given = machine._given
    machine.use(None)
    yield
    machine.use(given)


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is a GPU")
def test_without_a_gpu_the_reason_is_given(no_gpu):
    assert "it runs on NVIDIA GPUs, and JAX uses the CPU here" in sp.backends()["cuda"]
    with pytest.raises(ValueError, match="backend 'cuda' is not available here: it runs on NVIDIA GPUs"):
        choose("cuda", row_step(rules.SGD(), 4))
    with pytest.raises(RuntimeError, match="backend 'cuda' cannot run: it runs on NVIDIA GPUs"):
        cuda.lookup(jnp.ones((3, 4)), Lookups(jnp.zeros(2, jnp.int32), None, None, None, 2))


@dataclasses.dataclass(frozen=True)
class Device:
    device_kind: str = "NVIDIA A100"
    compute_capability: str = "8.0"
    core_count: int = 108


@pytest.mark.parametrize(
    ("devices", "nvrtc_reason", "expected"),
    [
        ([Device("Tesla V100", "7.0")], None, "compute capability 8.0 or newer, and 'Tesla V100' has 7.0"),
        ([Device("AMD Instinct", "gfx90a")], None, "it needs an NVIDIA GPU, and this is 'AMD Instinct'"),
        ([Device(), Device("H100", "9.0")], None, "compute capabilities here are 8.0, 9.0"),
        (
            [Device()],
            "NVRTC, the CUDA compiler library, was not found",
            "NVRTC, the CUDA compiler library, was not found",
        ),
    ],
)
def test_what_is_missing_is_named_and_xla_takes_over(no_gpu, monkeypatch, devices, nvrtc_reason, expected):
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    monkeypatch.setattr(machine, "platform", lambda: "gpu")
    monkeypatch.setattr("sparrow.kernels.backend_choice.preferred", lambda: "cuda")
    monkeypatch.setattr(nvrtc, "unavailable", lambda: nvrtc_reason)
    machine._find.cache_clear()
    try:
        assert expected in sp.backends()["cuda"]
        with pytest.warns(UserWarning, match="tables run on the slower 'xla' backend, because 'cuda' cannot run here"):
            assert choose("auto", row_step(rules.SGD(), 4)) is xla
    finally:
        machine._find.cache_clear()


@pytest.mark.skipif(nvrtc.unavailable() is not None, reason="NVRTC is not installed")
def test_machine_code_is_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    card = machine.Gpu("sm_90", 132, None)
    module = source.lookup_module(8, "float32", "float32", False, tuning.for_lookup(8, "float32", False))
    compilations = []
    compile_cubin = nvrtc.compile_cubin
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda *a: compilations.append(a) or compile_cubin(*a))
    first = card.image(module)
    assert card.image(module) == first
    assert len(compilations) == 1
    assert machine.Gpu("sm_80", 108, None).image(module) != first  # another architecture, another entry
    assert len(list((tmp_path / "cache").glob("cuda-lookup-sm_*.cubin"))) == 2
    (kept,) = (tmp_path / "cache").glob("cuda-lookup-sm_90-*.cubin")
    kept.write_bytes(first[:100])  # cut off: compiled again
    assert card.image(module) == first
    assert len(compilations) == 3
