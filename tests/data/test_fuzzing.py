"""Mutated files, by numbers of their own: `tests.data.fuzzing` tries as many as it is asked to."""

import re
import subprocess
import sys

import pytest

from sparrow.kernels import feed
from tests.data import fuzzing

FOUND = {
    "a level above the highest": (10000992, 10018268),
    "the head of a run in more than 32 bits": (12032381, 10203609),
    "places without a dictionary, all of them missing": (12012180,),
    "a buffer that ends with half a number": (10213822,),
}
COUNT = 600 if fuzzing.IS_SANITIZED else 3000
# A run under sanitizers must not pass because the library could not be compiled.
needs_library = pytest.mark.skipif(
    feed.unavailable() is not None and not fuzzing.IS_SANITIZED, reason="compares compiled code with Arrow"
)


@needs_library
@pytest.mark.slow
def test_mutated_files_give_the_rows_of_arrow_or_one_refusal():
    """In a process of its own: it may end, hang, or take memory, and all of that is a failure."""
    assert feed.unavailable() is None
    command = [sys.executable, "-m", "tests.data.fuzzing", "0", str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    refused, read = (int(word.replace(",", "")) for word in re.findall(r"([\d,]+) (?:refused|read)", done.stdout))
    assert refused + read == COUNT
    assert min(refused, read) > COUNT // 5


@needs_library
def test_some_mutated_files(tmp_path):
    found = {fuzzing.attempt(number, tmp_path) for number in range(10_000_000, 10_000_040)}
    assert found == {"refused", "read"}


@needs_library
@pytest.mark.parametrize("problem", FOUND)
def test_files_that_were_read_otherwise_once(tmp_path, problem):
    for number in FOUND[problem]:
        fuzzing.attempt(number, tmp_path)


def test_good_files_of_the_corpus_are_read(tmp_path):
    for number in range(20):
        data, made = fuzzing.parquet(number)
        path = tmp_path / "good.parquet"
        path.write_bytes(data)
        ours, theirs = fuzzing.blocks_of(fuzzing.Parquet(str(path)), made), fuzzing.by_arrow(path, made)
        for mine, their in zip(ours, theirs, strict=True):
            fuzzing.assert_same(mine[0], their[0])
