"""The kernels compile for every architecture that is served, without a GPU."""

import itertools

import pytest

from sparrow import rules
from sparrow.kernels.cuda import nvrtc, source, tuning
from sparrow.rules import SHIPPED
from tests.kernels.native.problems import row_step
from tests.kernels.operations import RULES

pytestmark = pytest.mark.skipif(nvrtc.unavailable() is not None, reason="NVRTC is not installed")


def compiled(module, arch, *more):
    image = nvrtc.compile_cubin(module.source, (*nvrtc.options(arch, module.macros), *more))
    assert image[:4] == b"\x7fELF"
    assert all(kernel.encode() in image for kernel in module.kernels)


def update_module(rule, dim, dtype="float32", grads="float32", gains=False, **options):
    step = row_step(rule, dim, dtype, stochastic=dtype != "float32", **options)
    return source.update_module(step, grads, gains, True, False, tuning.for_update(step, grads))


@pytest.mark.parametrize("arch", ["sm_90", *(pytest.param(a, marks=pytest.mark.slow) for a in ("sm_80", "sm_100"))])
def test_every_architecture(arch):
    compiled(source.sort_module(3, tuning.for_sort(1000, 132)), arch)
    compiled(source.lookup_module(128, "bfloat16", "float32", True, tuning.for_lookup(128, "bfloat16", True)), arch)
    compiled(source.lookup_module(6, "float16", "bfloat16", False, tuning.for_lookup(6, "float16", False)), arch)
    compiled(update_module(rules.RowwiseAdagrad(), 128, gains=True), arch)
    compiled(update_module(rules.Adam(), 16, "float16", "bfloat16"), arch)
    compiled(source.pairs_module(1, 27, 128, "bfloat16", tuning.PairsTuning()), arch)
    compiled(source.ids_module(tuning.for_ids(26)), arch)
    compiled(source.swap_module(4, 16, 16, 2, 1, 200), arch)
    compiled(source.swap_module(1, 5, 0, 0, 0, 8), arch)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [rule() for rule in SHIPPED], ids=lambda rule: rule.name)
def test_every_shipped_rule(rule):
    compiled(update_module(rule, 8), "sm_90", "--ptxas-options=-O0")


def test_every_operation():
    for rule in RULES:
        compiled(update_module(rule, 4), "sm_80", "--ptxas-options=-O0")


@pytest.mark.parametrize(("table", "grads"), list(itertools.product(["float32", "bfloat16"], ["bfloat16", "float16"])))
def test_16_bits(table, grads):
    compiled(update_module(rules.SGD(), 24, table, grads), "sm_90")


def test_a_refused_source_names_the_error():
    with pytest.raises(nvrtc.NvrtcError, match="undefined"):
        nvrtc.compile_cubin("int f() { return nothing; }", nvrtc.options("sm_90", []))
