"""Parquet pages by compiled code: the rows that Arrow reads, for any columns and any way of writing them."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import DataError, HeldOut, IdFeature, Label, Parquet, RawFeature, SequenceFeature
from sparrow.data.block import side_by_side
from sparrow.data.converter import Converter
from sparrow.data.labels import CheckedLabel, LabelCheck
from sparrow.data.sources.parquet import ParquetReader
from sparrow.feed.reading import BufferPart, WindowBuffer, with_buffers
from sparrow.kernels import feed
from tests.data.test_compiled import assert_same, assert_same_bags
from tests.feed.pipelines import pipeline_of

pytestmark = pytest.mark.skipif(feed.unavailable() is not None, reason=str(feed.unavailable()))

WORDS = ("a", "b", "", "longer than eight bytes", "ü", "x" * 40)
KINDS = {
    "int8": (pa.int8(), st.integers(-3, 40)),
    "int32": (pa.int32(), st.integers(-3, 40)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "texts": (pa.string(), st.sampled_from(WORDS)),
    "large": (pa.large_string(), st.sampled_from(WORDS)),
    "bool": (pa.bool_(), st.booleans()),
    "float": (pa.float32(), st.sampled_from([0.0, 3.0, 2.0, float("nan")])),
    "double": (pa.float64(), st.sampled_from([0.0, 3.0, 0.1])),
}


@st.composite
def columns(draw):
    kind, values = draw(st.sampled_from(list(KINDS.values())))
    rows = draw(st.sampled_from([1, 7, 8, 9, 40, 300]))
    form = draw(st.sampled_from(["plain", "list", "large_list", "fixed"]))
    may_miss = draw(st.booleans())
    entries = values | st.none() if may_miss else values
    if form == "plain":
        return pa.field("c", kind, nullable=may_miss), draw(st.lists(entries, min_size=rows, max_size=rows))
    inner = pa.field("element", kind, nullable=may_miss)
    if form == "fixed":
        lists = st.lists(entries, min_size=2, max_size=2)
        return pa.field("c", pa.list_(inner, 2), nullable=False), draw(st.lists(lists, min_size=rows, max_size=rows))
    list_may_miss = draw(st.booleans())
    lists = st.lists(entries, max_size=draw(st.sampled_from([1, 3, 30])))
    lists = lists | st.none() if list_may_miss else lists
    kind = pa.list_(inner) if form == "list" else pa.large_list(inner)
    return pa.field("c", kind, nullable=list_may_miss), draw(st.lists(lists, min_size=rows, max_size=rows))


def features(kind):
    made = [IdFeature("hashed", column="c", hash_bucket_size=1000, embedding_dim=2)]
    if not pa.types.is_nested(kind):
        made.append(RawFeature("number", column="c") if not pa.types.is_large_string(kind) else made[0])
    made.append(SequenceFeature("cut", column="c", hash_bucket_size=9, embedding_dim=2, max_length=2, pooling="sum"))
    if pa.types.is_integer(kind) or (pa.types.is_nested(kind) and pa.types.is_integer(kind.value_type)):
        made.append(IdFeature("empty", column="c", num_buckets=30, embedding_dim=2, unknown="empty", default=3))
        made.append(IdFeature("strict", column="c", num_buckets=30, embedding_dim=2))
    return list({feature.name: feature for feature in made}.values())


def both(path, made, bad_rows):
    """Rows by compiled code straight from the pages, and by way of Arrow."""
    converter = Converter(made, [Label("label")], [], [])
    reader = Parquet(str(path)).open(converter.columns)
    converter.check(reader)
    by_arrow = []
    for chunk in range(reader.num_chunks):
        try:
            by_arrow.append(converter.convert(reader.read(chunk, bad_rows), bad_rows))
        except DataError:
            by_arrow.append(None)
    encoded = [reader.fetch(chunk) for chunk in range(reader.num_chunks)]
    assert None not in encoded
    return [converter.decode(own, bad_rows) for own in encoded], by_arrow


@hypothesis.given(columns(), st.data())
@hypothesis.settings(max_examples=120, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_pages_give_the_rows_that_arrow_reads(tmp_path_factory, column, data):
    field, values = column
    table = pa.table(
        [pa.array(values, field.type), pa.array(np.arange(len(values)) % 2, pa.float32())],
        schema=pa.schema([field, pa.field("label", pa.float32())]),
    )
    made = [f for f in features(field.type) if not f.refuse("c", field.type)]
    hypothesis.assume(made)
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    pq.write_table(
        table,
        path,
        use_dictionary=data.draw(st.booleans()),
        dictionary_pagesize_limit=data.draw(st.sampled_from([1, 2**20])),
        write_batch_size=data.draw(st.sampled_from([3, 1024])),
        compression=data.draw(st.sampled_from(["snappy", "none"])),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        data_page_size=data.draw(st.sampled_from([16, 2**20])),
        row_group_size=data.draw(st.sampled_from([5, 10_000])),
    )
    ours, by_arrow = both(path, made, "skip")
    for mine, other in zip(ours, by_arrow, strict=True):
        if mine is not None and other is not None:  # or NumPy must look at an unusual value; Arrow fails on some files
            assert mine[1] == other[1]
            assert_same(mine[0], other[0])


def clicks(rows=5000, seed=0):
    rng = np.random.default_rng(seed)
    lists = [rng.integers(0, 50, n).tolist() for n in rng.integers(0, 5, rows)]
    return pa.table(
        {
            "item": pa.array(rng.integers(0, 1000, rows), pa.int32()),
            "user": pa.array([f"user {n}" if n else None for n in rng.integers(0, 300, rows)]),
            "seen": pa.array([None if n == 7 else own for n, own in enumerate(lists)], pa.list_(pa.int64())),
            "label": pa.array(rng.integers(0, 2, rows), pa.float64()),
        }
    )


FEATURES = [
    IdFeature("item", num_buckets=1000, embedding_dim=2),
    IdFeature("user", hash_bucket_size=99, embedding_dim=2),
    IdFeature("seen", num_buckets=50, embedding_dim=2, pooling="mean"),
]


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"dictionary_pagesize_limit": 64}])
def test_usual_files_need_no_arrow(tmp_path, options):
    pq.write_table(clicks(), tmp_path / "a.parquet", row_group_size=2000, write_batch_size=100, **options)
    ours, by_arrow = both(tmp_path / "a.parquet", FEATURES, "error")
    for mine, other in zip(ours, by_arrow, strict=True):
        assert_same(mine[0], other[0])


def lists_of(form, rows, rng):
    """Lists of one length, of any, empty and null ones, and ones with null elements."""
    lengths = {"one": np.ones(rows, int), "fixed": np.full(rows, 7)}.get(form, rng.integers(0, 12, rows))
    lists = [rng.zipf(1.3, n).clip(0, 900).tolist() for n in lengths]
    if form in ("null lists", "null elements"):
        for row in range(rows // 2, rows, 13):
            lists[row] = None if form == "null lists" else [None, *lists[row]]
    return lists


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("form", ["one", "fixed", "ragged", "null lists", "null elements"])
def test_lists_over_many_pages_and_blocks(tmp_path, form, version):
    """Dictionary pages, then plain ones, in columns whose pages and blocks of rows end at different entries."""
    rng = np.random.default_rng(3)
    lists = lists_of(form, 3300, rng)
    table = pa.table(
        {
            "narrow": pa.array(lists, pa.list_(pa.int32())),
            "wide": pa.array(lists, pa.list_(pa.int64())),
            "words": pa.array([own and [str(n) for n in own] for own in lists], pa.list_(pa.string())),
            "label": rng.integers(0, 2, 3300).astype(np.float32),
        }
    )
    made = [
        IdFeature("numbered", column="narrow", num_buckets=1000, embedding_dim=2),
        IdFeature("unknown", column="narrow", num_buckets=300, unknown="empty", embedding_dim=2),
        IdFeature("default", column="narrow", num_buckets=300, unknown="row", default=3, embedding_dim=2),
        IdFeature("hashed", column="wide", hash_bucket_size=77, embedding_dim=2),
        IdFeature("numbered wide", column="wide", num_buckets=1000, embedding_dim=2),
        IdFeature("known", column="words", vocabulary=("1", "2", "30"), embedding_dim=2),
        SequenceFeature("cut", column="narrow", hash_bucket_size=9, embedding_dim=2, max_length=3),
        IdFeature("strict", column="wide", num_buckets=850, embedding_dim=2),
    ]
    path = tmp_path / "a.parquet"
    for limit in (1, 256, 2**20):
        pq.write_table(
            table,
            path,
            row_group_size=2600,
            data_page_size=3000,
            write_batch_size=97,
            dictionary_pagesize_limit=limit,
            data_page_version=version,
        )
        for some in (made[:-1], made):
            ours, by_arrow = both(path, some, "skip")
            for mine, other in zip(ours, by_arrow, strict=True):
                assert mine[1] == other[1]
                assert_same(mine[0], other[0])
        assert by_arrow[0][1] > 0  # the last feature refuses some rows


def test_dictionaries_of_all_sizes(tmp_path):
    rng = np.random.default_rng(5)
    counts = [2**bits + 1 for bits in range(17)]
    table = pa.table({f"c{n}": rng.integers(0, n, 70_001).astype(np.int32) for n in counts})
    table = table.append_column("label", pa.array(np.arange(len(table)) % 2, pa.float32()))
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, dictionary_pagesize_limit=2**24, data_page_size=50_000)
    made = [IdFeature(f"c{n}", num_buckets=2**17, embedding_dim=2) for n in counts]
    ours, by_arrow = both(path, made, "error")
    assert_same(ours[0][0], by_arrow[0][0])


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_other_compressions_are_read_by_arrow(tmp_path, compression):
    pq.write_table(clicks(), tmp_path / "a.parquet", compression=compression)
    assert Parquet(str(tmp_path / "a.parquet")).open(["item"]).fetch(0) is None
    rows = pipeline_of(Parquet(str(tmp_path / "a.parquet")), FEATURES, batch_size=1000, threads=2)
    assert sum(len(batch) for batch in rows) == 5000


def test_some_columns_of_many_are_read_alone(tmp_path):
    table = clicks()
    for i in range(20):
        table = table.append_column(f"other {i}", pa.array(np.random.default_rng(i).random(len(table))))
    pq.write_table(table, tmp_path / "a.parquet")
    reader = Parquet(str(tmp_path / "a.parquet")).open(["label", "item"])
    assert len(reader.fetch(0).memory) < 100_000
    ours, by_arrow = both(tmp_path / "a.parquet", FEATURES[:1], "error")
    assert_same(ours[0][0], by_arrow[0][0])


def test_damaged_pages_never_crash(tmp_path):
    """Any byte may be wrong: the rows are then Arrow's to refuse, or hold other values, as they would by Arrow."""
    for version in ("1.0", "2.0"):
        path = tmp_path / f"{version}.parquet"
        pq.write_table(clicks(300), path, data_page_version=version, data_page_size=500, write_batch_size=50)
        converter = Converter(FEATURES, [Label("label")], [], [])
        reader = Parquet(str(path)).open(converter.columns)
        converter.check(reader)
        encoded = reader.fetch(0)
        whole = encoded.memory.copy()
        rng = np.random.default_rng(0)
        refused = 0
        for _ in range(1500):
            encoded.memory[:] = whole
            for at in rng.integers(0, len(whole), rng.integers(1, 4)):
                encoded.memory[at] = rng.integers(0, 256)
            made = converter.decode(encoded, "skip")
            refused += made is None
            if made is not None:
                assert len(made[0]) + made[1] == 300
                made[0].to_batch()
        assert 100 < refused < 1500


def test_a_file_that_was_cut_off_is_an_error_with_its_place(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(clicks(), path, row_group_size=1000)
    pipeline = pipeline_of(Parquet(str(path)), FEATURES, batch_size=500, threads=3, labels=["label"])
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"a\.parquet, row group \d: cannot be read, it may be damaged"):
        list(pipeline)


@pytest.mark.skipif(feed.unavailable() is not None, reason="compiled code reads the bytes")
def test_bytes_behind_the_end_of_a_file_are_not_made_up(tmp_path):
    """Memory is used again: what an earlier file left there must not pass for the end of this one."""
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(100)))
    assert bytes(feed.read(path, np.array([(90, 10), (5, 3)], np.int64))) == bytes([*range(90, 100), 5, 6, 7])
    assert feed.read(path, np.array([(5, 3), (90, 11)], np.int64)) is None
    assert feed.read(tmp_path / "none", np.array([(0, 1)], np.int64)) is None


@pytest.mark.parametrize("threads", [1, 7])
def test_wrong_rows_of_many_groups(tmp_path, threads):
    """Rows that are left out are counted, and an error has its row, whichever thread meets it."""
    table = clicks()
    items = table["item"].to_numpy().copy()
    items[[3, 1500, 1501, 4999]] = -1
    pq.write_table(table.set_column(0, "item", pa.array(items)), tmp_path / "a.parquet", row_group_size=100)
    options = {"batch_size": 64, "threads": threads, "labels": ["label"]}
    made = pipeline_of(Parquet(str(tmp_path / "a.parquet")), FEATURES, bad_rows="skip", shuffle_rows=250, **options)
    assert sum(len(batch) for batch in made) == 4996
    assert made.skipped == 4
    made = pipeline_of(Parquet(str(tmp_path / "a.parquet")), FEATURES[:1], **options)
    with pytest.raises(DataError, match=r"a\.parquet, row 3, column 'item': id -1 is outside 0 to 999"):
        list(made)


@pytest.mark.parametrize(("most", "integers", "wrong"), [(1.0, False, 1.5), (1.0, False, -1.0), (9.0, True, 0.5)])
def test_labels_outside_their_range_are_left_to_arrow(tmp_path, most, integers, wrong):
    """Their rows may not count, which the pages of one column cannot show."""
    label = CheckedLabel("label", checks=(LabelCheck("a loss", most=most, integers=integers),))
    labels = np.ones(3000, np.float32)
    for at in (None, 0, 1500, 2999):
        own = labels.copy()
        own[at if at is not None else 0] = 1.0 if at is None else wrong
        pq.write_table(pa.table({"c": np.zeros(3000, np.int32), "label": own}), tmp_path / "a.parquet")
        converter = Converter([IdFeature("c", num_buckets=9, embedding_dim=2)], [label], [], [])
        reader = Parquet(str(tmp_path / "a.parquet")).open(converter.columns)
        converter.check(reader)
        assert (converter.decode(reader.fetch(0), "error") is None) == (at is not None)


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("bad", [(), (33, 34, 250)])
def test_row_groups_of_a_window_are_decoded_side_by_side(tmp_path, monkeypatch, threads, bad):
    """The rows of a window are not copied, unless some were left out; batches and their order are the same."""
    items = np.arange(320)
    items[list(bad)] = 9999
    tags = pa.array([[n % 7] * (n % 3) for n in range(320)], pa.list_(pa.int64()))
    pq.write_table(pa.table({"item": items, "tags": tags}), tmp_path / "a.parquet", row_group_size=20)
    features = [IdFeature("item", num_buckets=400, embedding_dim=2), IdFeature("tags", num_buckets=7, embedding_dim=2)]

    def run(**options):
        made = pipeline_of(
            Parquet(str(tmp_path)), features, batch_size=10, shuffle_rows=70, bad_rows="skip", epochs=2, **options
        )
        return [(batch.ids["item"].tolist(), batch.ids["tags"].to_lists(), made.position()) for batch in made]

    found = []
    monkeypatch.setattr("sparrow.data.block.side_by_side", lambda parts: found.append(side_by_side(parts)) or found[-1])
    ours = run(threads=threads)
    copied = sum(whole is None for whole in found)
    assert found
    assert (copied > 0) == bool(bad)
    monkeypatch.setattr("sparrow.data.block.side_by_side", lambda parts: None)
    assert run(ahead=0) == ours
    assert sorted(item for items, _, _ in ours for item in items) == sorted(2 * [n for n in range(320) if n not in bad])


def test_more_rows_than_memory_are_one_sentence():
    with pytest.raises(DataError, match=r"1,099,511,627,776 of 400 bytes; lower shuffle_rows"):
        WindowBuffer(2**40).words(100)


def test_rows_side_by_side():
    buffer = WindowBuffer(10)
    words = [BufferPart(buffer, *span).words(span[1] - span[0], 3) for span in ((0, 4), (4, 4), (4, 10))]
    assert not len(words[1])
    assert side_by_side(words[1:2]) is None
    for number, part in enumerate(words):
        part[...] = number
    whole = side_by_side(words)
    assert np.shares_memory(whole, words[0])
    assert whole[:, 0].tolist() == [0] * 4 + [2] * 6
    assert side_by_side(words[::-1]) is None
    assert side_by_side([words[0], words[2].copy()]) is None
    assert side_by_side([np.ones((2, 3), np.int32)]) is None
    of_others = np.zeros((4, 3), np.int32)
    assert side_by_side([of_others[:2], of_others[2:]]) is None
    counts = {0: 5, 1: 5, 2: None, 3: 20, 4: 1, 5: 1}
    spans = [(chunk, part and part[1:]) for chunk, part in with_buffers(counts, counts.get, 10)]
    assert spans == [(0, (0, 5)), (1, (5, 10)), (2, None), (3, None), (4, (0, 1)), (5, (1, 2))]
    counts = {0: 5, 1: 2, 2: None, 3: 5}
    assert [chunk for chunk, _ in with_buffers(counts, counts.get, 10)] == [0, 1, 2, 3]  # never in another order


@pytest.mark.parametrize("part", ["train", "evaluate"])
def test_rows_that_are_held_out_need_no_arrow(tmp_path, monkeypatch, part):
    pq.write_table(clicks(), tmp_path / "a.parquet", row_group_size=700)
    source = HeldOut(Parquet(str(tmp_path / "a.parquet")), part, share=0.3)
    options = {"batch_size": 100, "labels": ["label"], "threads": 2, "shuffle_rows": 1000}
    with monkeypatch.context() as patch:
        patch.setattr(ParquetReader, "fetch", lambda *_: None)
        by_arrow = list(pipeline_of(source, FEATURES, **options))
    monkeypatch.setattr(ParquetReader, "read", lambda *_: pytest.fail("Arrow was asked"))
    ours = list(pipeline_of(source, FEATURES, **options))
    assert len(ours) == len(by_arrow) > 10
    for mine, other in zip(ours, by_arrow, strict=True):
        np.testing.assert_array_equal(mine.ids["item"], other.ids["item"])
        assert_same_bags(mine.ids["seen"], other.ids["seen"])
