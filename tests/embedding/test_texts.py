"""Strings as ids, in every form that they come in."""

import numpy as np
import pyarrow as pa
import pytest

from sparrow.embedding import Ragged, hash_strings, hash_texts
from sparrow.embedding.batches.inputs import read_input

TEXTS = ["Ada", "", "a longer name"]
BAGS = [["Ada"], None, [], ["", "a longer name"]]
HASHES = hash_texts(pa.array(TEXTS))


def read(given):
    values, offsets, _, missing, _ = read_input("f", hash_strings(given))
    return values.tolist(), None if offsets is None else offsets.tolist(), None if missing is None else missing.tolist()


@pytest.mark.parametrize(
    "given",
    [
        TEXTS,
        tuple(TEXTS),
        [text.encode() for text in TEXTS],
        np.array(TEXTS),
        np.array(TEXTS, object),
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.binary()),
        pa.array(TEXTS).dictionary_encode(),
        pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
        pa.array(["before", *TEXTS]).slice(1),
    ],
    ids=lambda given: str(getattr(given, "type", type(given).__name__)),
)
def test_an_id_for_each_example(given):
    assert read(given) == (HASHES.tolist(), None, None)


@pytest.mark.parametrize(
    "given",
    [
        BAGS,
        pa.array(BAGS),
        pa.array(BAGS, pa.large_list(pa.large_string())),
        pa.array([["before"], *BAGS]).slice(1),
        Ragged(np.array(TEXTS), np.array([0, 1, 1, 1, 3])),
        Ragged(TEXTS, np.array([0, 1, 1, 1, 3])),
    ],
    ids=["lists", "arrow", "large", "slice", "ragged", "ragged list"],
)
def test_bags(given):
    assert read(given) == (HASHES.tolist(), [0, 1, 1, 1, 3], None)


def test_rows_of_an_array_have_one_length():
    texts = np.array([["Ada", ""], ["", "Ada"]])
    for given in (texts, texts.astype(object)):
        values, offsets, _, _, is_steady = read_input("f", hash_strings(given))
        assert values.tolist() == HASHES[[0, 1, 1, 0]].tolist()
        assert offsets.tolist() == [0, 2, 4]
        assert is_steady


@pytest.mark.parametrize("given", [["Ada", None], pa.array(["Ada", None])], ids=["list", "arrow"])
def test_a_missing_string_is_a_missing_id(given):
    assert read(given) == ([HASHES[0], 0], None, [False, True])


@pytest.mark.parametrize("given", [["Ada", 5], [["Ada"], [5]]], ids=str)
def test_strings_and_others_together_are_refused(given):
    with pytest.raises(TypeError, match="feature 'f': ids must be integers"):
        read(given)


def test_numbers_stay():
    for given in ([1, 2], [[1], [2, 3]], np.array([1, 2]), pa.array([1, None])):
        assert hash_strings(given) is given
