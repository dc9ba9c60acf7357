"""Beam search over codes that exist, against all items scored one by one."""

import numpy as np
import pyarrow as pa
import pytest

from sparrow.retrieval import CodeIndex

SIZES = (4, 3, 5)
RNG = np.random.default_rng(0)
CODES = np.stack([RNG.integers(0, size, 40) for size in SIZES], axis=1)
IDS = pa.array([f"i{number}" for number in range(40)])
QUERIES = RNG.normal(size=(6, 3)).astype(np.float32)
WEIGHTS = [RNG.normal(size=(3 + layer, size)) for layer, size in enumerate(SIZES)]


def decode(queries, known):
    logits = np.concatenate([queries, known], axis=1) @ WEIGHTS[known.shape[1]]
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def states(users):
    return lambda rows, known: decode(users[rows], known)


def all_scores():
    scores = np.zeros((6, 40))
    for item, codes in enumerate(CODES):
        for layer, code in enumerate(codes):
            scores[:, item] += decode(QUERIES, np.tile(codes[:layer], (6, 1)))[:, code]
    return scores


INDEX = CodeIndex(IDS, CODES, attributes=pa.table({"kind": np.arange(40) % 3}), decode=states)


def best(scores, k):
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("options", [{"exact": True}, {}])
def test_finds_the_most_probable_items(options):
    found = INDEX.search(QUERIES, 7, **options)
    scores = all_scores()
    np.testing.assert_array_equal(found.rows, best(scores, 7))  # equal codes: the first item first
    np.testing.assert_allclose(found.scores, np.sort(scores, axis=1)[:, ::-1][:, :7], rtol=1e-5)


def test_a_narrow_beam_follows_the_best_beginnings_alone():
    narrow = CodeIndex(IDS, CODES, decode=states, beam=1).search(QUERIES, 1)
    for query, row in enumerate(narrow.rows[:, 0]):
        left = np.ones(40, bool)
        for layer in range(3):
            chances = decode(QUERIES[query : query + 1], CODES[row : row + 1, :layer])[0]
            there = CODES[left, layer]
            assert CODES[row, layer] == there[np.argmax(chances[there])]  # of the codes that exist after these
            left &= CODES[:, layer] == CODES[row, layer]


def test_excluded_and_filtered_items_are_not_found():
    scores = all_scores()
    first = best(scores, 5)
    exclude = [[IDS[int(row)].as_py() for row in rows] + ["unknown"] for rows in first]
    found = CodeIndex(IDS, CODES, decode=states, beam=8).search(QUERIES, 6, exclude=exclude)
    np.testing.assert_array_equal(found.rows, best(scores, 11)[:, 5:])
    found = INDEX.search(QUERIES, 20, where={"kind": [1]}, exact=True)
    masked = np.where(np.arange(40) % 3 == 1, scores, -np.inf)
    np.testing.assert_array_equal(found.rows[:, :13], best(masked, 13))
    assert (found.rows[:, 13:] == -1).all()


@pytest.mark.parametrize(
    "seen",
    [
        pa.array([["i1"], ["i3", "i5"], None, ["i2"]], pa.large_list(pa.large_string())).slice(1),
        pa.ListArray.from_arrays(
            pa.array([0, 2, 3, 4]), pa.array(["i3", "i5", "i9", "i2"]), mask=pa.array([False, True, False])
        ),
    ],
    ids=["large", "missing, of one value"],
)
def test_codes_of_lists_of_any_kind(seen):
    expected = [CODES[[3, 5], 0].tolist(), [], [CODES[2, 0]]]
    assert INDEX.columns(seen, "seen")["seen_1"].to_pylist() == expected


def test_codes_become_columns():
    made = INDEX.columns(pa.array([["i3", "no", "i5"], None, [], ["i3"]]), "seen")
    assert list(made) == ["seen_1", "seen_2", "seen_3"]
    assert made["seen_2"].to_pylist() == [[CODES[3, 1], CODES[5, 1]], [], [], [CODES[3, 1]]]
    single = INDEX.columns(pa.array(["i4", "no"]), "code")
    assert single["code_3"].to_pylist() == [CODES[4, 2], None]
    again = CodeIndex.of(pa.table({"item": IDS, "codes": pa.array(CODES.tolist())}))
    np.testing.assert_array_equal(again.codes, CODES)
    with pytest.raises(ValueError, match="no model to search with"):
        again.search(QUERIES, 1)
