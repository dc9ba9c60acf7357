"""The contract suite with backend 'cuda' on the emulation. On a GPU, `tests/test_contract.py` itself runs it."""

import pytest

from sparrow.kernels import cuda
from tests import test_contract as contract
from tests.rule_cases import CASES

NAMES = [case.name for case in CASES]
CHECKS = [
    contract.test_same_bits_twice,
    contract.test_untouched_rows_keep_their_bits,
    contract.test_zero_gradient_touches_the_row,
    contract.test_no_nan_from_zeros,
]


@pytest.fixture(scope="module", autouse=True)
def emulated(gpu):
    if gpu is None:
        pytest.skip("tests/test_contract.py runs on the GPU")
    assert cuda.unavailable() is None


@pytest.mark.parametrize("case", NAMES)
def test_every_rule(case):
    contract.test_equals_float64_over_20_steps(case, "cuda")
    contract.test_untouched_rows_keep_their_bits(case, "cuda")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", contract.SOME)
def test_some_rules(case, check):
    check(case, "cuda")


def test_batches():
    contract.test_sum_of_row_grads_equals_the_concatenated_batch("user_rule", "cuda")
    contract.test_empty_batch_changes_nothing_but_the_step("adam_by_row", "cuda")
    contract.test_lookup_pools_with_gains("cuda")
    contract.test_schedule_does_not_recompile("cuda")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_tables(dtype):
    contract.test_16_bit_tables_round_to_a_neighbor("rowwise_adagrad", dtype, "cuda")
