"""The index of items: filters, exclusions, ids of all kinds, files, damage, and FAISS beside exact search."""

import contextlib
import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

from sparrow.retrieval import ItemIndex, build_approximate, passing, read_index, write_index


def index(count=200, dim=8, seed=0, **options):
    vectors = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    attributes = pa.table(
        {
            "genre": pa.array([["drama", "crime"][: n % 3] or None for n in range(count)]),
            "year": pa.array([1990 + n % 30 if n % 7 else None for n in range(count)]),
            "kind": pa.array(["film" if n % 2 else "series" for n in range(count)]),
        }
    )
    return ItemIndex(pa.array(np.arange(count) * 10), vectors, attributes=attributes, **options)


def reading(folder, **options):
    """The index in a folder."""
    with contextlib.ExitStack() as stack:
        return read_index(
            lambda name: (folder / name).read_bytes(),
            lambda name: stack.enter_context((folder / name).open("rb")),
            **options,
        )


def best(held, query, keep):
    """The statement: all scores, sorted, among the items that pass."""
    order = np.argsort(-(held.vectors @ query), kind="stable")
    return [int(row) * 10 for row in order if keep(row)]


def test_a_missing_list_of_one_value_holds_none():
    offsets, is_missing = pa.array([0, 1, 2, 3]), pa.array([False, True, False])
    lists = pa.ListArray.from_arrays(offsets, pa.array(["a", "a", "b"]), mask=is_missing)
    assert passing(pa.table({"tags": lists}), {"tags": ["a", "b"]}).tolist() == [True, False, True]
    held = ItemIndex(pa.array(["a", "b"]), np.array([[2.0], [1.0]], np.float32))
    assert held.search(np.ones((3, 1)), 1, exclude=lists).rows.tolist() == [[1], [0], [0]]
    fixed = pa.array([["a", "b"], None], pa.list_(pa.string(), 2))
    assert held.search(np.ones((2, 1)), 1, exclude=fixed).rows.tolist() == [[-1], [0]]


def test_excluded_allowed_and_filtered_items_are_those_of_the_statement():
    held = index()
    queries = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    seen = [[10, 20, 999], [], [n * 10 for n in range(100)]]
    where = {"genre": "crime", "year": {"min": 1995, "max": 2010}, "kind": ["film", "series"]}
    found = held.search(queries, 5, exclude=seen, allow=[n * 10 for n in range(150)], where=where)
    for query in range(3):

        def keep(n, seen=seen[query]):
            year = 1990 + n % 30
            return n % 7 and 1995 <= year <= 2010 and n % 3 == 2 and n < 150 and n * 10 not in seen

        expected = best(held, queries[query], keep)[:5]
        assert [held.ids[int(row)].as_py() for row in found.rows[query] if row >= 0] == expected


def test_words_as_parquet_gives_them_are_filtered_as_strings():
    words = [["crime", None, "drama"], ["drama", "comedy", None]]
    chunks = [pa.array(own).dictionary_encode() for own in words]
    lists = [pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), own) for own in chunks]
    attributes = pa.table({"genre": pa.chunked_array(chunks), "tags": pa.chunked_array(lists)})
    assert passing(attributes, {"genre": ["drama", "western"]}).tolist() == [False, False, True, True, False, False]
    assert passing(attributes, {"genre": {"max": "comedy"}}).tolist() == [False, False, False, False, True, False]
    assert passing(attributes, {"tags": "comedy"}).tolist() == [False, False, False, True, False, False]
    with pytest.raises(ValueError, match="attribute 'genre' holds string, and cannot be compared with 5"):
        passing(attributes, {"genre": 5})


def test_the_table_has_keys_items_scores_and_ranks():
    held = ItemIndex(pa.array(["a", "b"]), np.eye(2, dtype=np.float32), item="movie")
    found = held.search([[1.0, 2.0], [3.0, 1.0]], 3, exclude=[["b"], None])
    assert found.table(pa.table({"user": [7, 8]})).to_pydict() == {
        "user": [7, 8, 8],
        "movie": ["a", "a", "b"],
        "score": [1.0, 3.0, 1.0],
        "rank": [1, 1, 2],
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda held: held.search(np.ones((1, 3)), 2), r"queries must be \(queries, 8\), got \(1, 3\)"),
        (lambda held: held.search(np.ones((1, 8)), 0), "k must be an integer of at least 1"),
        (
            lambda held: held.search(np.ones((1, 8)), 2, where={"genres": "x"}),
            "no attribute 'genres': did you mean 'genre'",
        ),
        (lambda held: held.search(np.ones((1, 8)), 2, where={"year": "x"}), "attribute 'year' holds int64"),
        (lambda held: held.search(np.ones((1, 8)), 2, where={"year": {"from": 3}}), "a range of 'year' is"),
        (lambda held: held.search(np.ones((1, 8)), 2, exclude=[[1], [2]]), "exclude has 2 lists for 1 queries"),
        (lambda held: held.search(np.ones((1, 8)), 2, exclude=[1]), "exclude must hold a list of ids for each query"),
        (lambda held: held.search(np.ones((1, 8)), 2, allow=["x"]), "ids of items are of type int64"),
        (lambda held: ItemIndex(pa.array([1, 1]), held.vectors[:2]), "the item 1 is in the catalog more than once"),
        (lambda held: ItemIndex(pa.array([1, None]), held.vectors[:2]), "1 items have no id"),
        (lambda held: ItemIndex(pa.array([1]), held.vectors[:1] * np.nan), "vectors with NaN or infinity"),
    ],
)
def test_mistakes_are_one_sentence(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        change(index())


def test_an_index_comes_back_from_its_files(tmp_path):
    held = index()
    write_index(held, tmp_path / "index")
    again = reading(tmp_path / "index")
    assert again.ids.equals(held.ids)
    assert again.attributes.equals(held.attributes)
    np.testing.assert_array_equal(again.vectors, held.vectors)
    assert not again.vectors.flags.writeable


@pytest.mark.parametrize("damage", ["cut", "json", "missing", "format", "sizes"])
def test_damage_is_one_sentence(tmp_path, damage):
    write_index(index(), tmp_path)
    about = json.loads((tmp_path / "index.json").read_text())
    if damage == "cut":
        (tmp_path / "items.arrow").write_bytes((tmp_path / "items.arrow").read_bytes()[:-200])
    elif damage == "json":
        (tmp_path / "index.json").write_text("{")
    elif damage == "missing":
        (tmp_path / "vectors.f32").unlink()
    elif damage == "format":
        (tmp_path / "index.json").write_text(json.dumps(about | {"format": 99}))
    else:
        (tmp_path / "index.json").write_text(json.dumps(about | {"dim": 2**61}))
    with pytest.raises(ValueError, match="index"):
        reading(tmp_path)


@pytest.mark.parametrize("kind", ["ivf", "ivf_sq8", "hnsw"])
def test_approximate_search_reaches_its_recall_and_knows_filters(tmp_path, kind):
    pytest.importorskip("faiss")
    plain = index(2000)
    queries = np.random.default_rng(2).standard_normal((50, 8)).astype(np.float32)
    made = build_approximate(plain.vectors, kind, queries, recall=0.9)
    assert made.recall >= 0.9
    if kind != "hnsw":  # one list less would find too little
        known = plain.search(queries, 10).rows
        less = dataclasses.replace(made, effort=made.effort - 1).search(queries, 10, None, None)[1]
        assert made.effort > 1
        assert np.mean([np.isin(a, b).mean() for a, b in zip(known, less, strict=True)]) < 0.9
    many = dataclasses.replace(made, effort=1).search(queries, 300, None, None)[1]
    assert (many >= 0).all()  # more items than one list holds
    held = index(2000, approximate=made)
    write_index(held, tmp_path)
    again = reading(tmp_path, approximate=True)
    exclude = [[int(n) * 10 for n in plain.search(queries, 3).rows[query]] for query in range(50)]
    found = again.search(queries, 10, exclude=exclude, where={"kind": "film"})
    exact = again.search(queries, 10, exclude=exclude, where={"kind": "film"}, exact=True)
    assert (found.rows % 2 == 1).all()
    assert not any(set(found.rows[query] * 10) & set(exclude[query]) for query in range(50))
    share = np.mean([np.isin(a, b).mean() for a, b in zip(exact.rows, found.rows, strict=True)])
    assert share > 0.7
    assert reading(tmp_path).approximate is None
