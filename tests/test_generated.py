"""A few of the inputs that `benchmarks.generated` feeds: none gives a traceback, some of each family are refused."""

import contextlib
import io

import pytest

from benchmarks.generated import FAMILIES, Generator, hangs_raise

CALLS = 40


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.filterwarnings("ignore")
def test_bad_inputs(family, tmp_path):
    made = Generator(tmp_path, seed=20, only=(family.name,))
    with hangs_raise(), contextlib.redirect_stdout(io.StringIO()):
        for _ in range(CALLS):
            made.one()
    assert not made.failures, made.failures
    assert made.calls[family.name] == CALLS
    assert 0 < made.refused[family.name] <= CALLS
