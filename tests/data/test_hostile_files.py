"""Parquet files whose numbers lie: each is one refusal, in time, before anything is allocated or read by them."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import DataError, IdFeature, Parquet
from sparrow.kernels import feed
from tests.data.thrift import BINARY, I32, I64, LIST, MAP, SET, STRUCT, File, changed, varint, write
from tests.feed.pipelines import pipeline_of

pytestmark = pytest.mark.skipif(feed.unavailable() is not None, reason=str(feed.unavailable()))

SINGLE = pa.table({"c": pa.array(np.arange(100, dtype=np.int64) % 7)})
LISTS = pa.table({"c": pa.array([[1, 2], None, [3], []] * 25, pa.list_(pa.int64()))})
CASES = {}


def case(why, table=SINGLE, place=", row group 0, column 'c'", **options):
    """Register a function that changes a file, which is then refused for the reason ``why``."""

    def register(function):
        CASES[function.__name__] = (function, table, options, f"t.parquet{place}: cannot be read, it is damaged: {why}")
        return function

    return register


HASHED = IdFeature("c", hash_bucket_size=1000, embedding_dim=2)
NUMBERED = IdFeature("c", num_buckets=1000, embedding_dim=2)


def read(path, shuffle_rows=0, feature=HASHED):
    made = pipeline_of(
        Parquet(str(path)),
        [feature],
        batch_size=10,
        threads=1,
        shuffle_rows=shuffle_rows,
    )
    return list(made)


GROUP = ", row group 0"


@case("the row group has a negative number of rows", place=GROUP)
def negative_rows(file):
    changed(file.group(), f3=-5)


@case("the row group has more than 67,108,864 rows", place=GROUP)
def too_many_rows(file):
    changed(file.group(), f3=2**40)


@case("the number of values does not fit the number of rows")
def more_rows_than_values(file):
    changed(file.group(), f3=101)


@case("the number of values does not fit the number of rows", LISTS)
def fewer_values_than_lists(file):
    changed(file.column(), f5=99)


@case("its pages hold fewer values than the footer has")
def rows_without_pages(file):
    changed(file.group(), f3=2**26)
    changed(file.column(), f5=2**26)
    changed(file.footer, f3=2**26)


@case("the rows of its groups are not the rows of the file", place="")
def rows_of_the_file(file):
    changed(file.footer, f3=2**62)


@case("the footer is malformed", place="")
def rows_twice(file):
    footer = write(file.footer)
    file.footer = footer[:-1] + bytes([I64]) + write(3, 4) + write(5, I64) + b"\0"


@case("the pages are outside of the file")
def endless_pages(file):
    changed(file.column(), f7=2**62)


@case("the pages are outside of the file")
def pages_of_negative_size(file):
    changed(file.column(), f7=-1)


@case("the pages are outside of the file")
def pages_behind_the_end(file):
    changed(file.column(), f9=2**63 - 1, f11=2**63 - 2)


@case("the pages are outside of the file")
def pages_in_the_footer(file):
    changed(file.column(), f9=len(file.body) + 1, f11=len(file.body))


@case("the compression is unknown")
def unknown_compression(file):
    changed(file.column(), f4=99)


@case("the column has an unknown encoding")
def unknown_encoding_in_the_footer(file):
    changed(file.column(), f2=(I32, [77]))


@case("the statistics have more or fewer levels than the schema", LISTS)
def levels_that_disagree(file):
    file.column()[16] = (STRUCT, {3: (LIST, (I64, [1] * 9))})


@case("the statistics have a value that is cut off")
def statistics_that_are_cut_off(file):
    changed(file.column()[12][1], f5=b"\0\0")


@case("the statistics have a value that is cut off")
def statistics_without_a_value(file):
    changed(file.column()[12][1], f5=b"")


@case("the type of its pages is not the one of the schema")
def another_type(file):
    changed(file.column(), f1=1)


@case("the column is in another file")
def another_file(file):
    chunk = file.group()[1][1][1][0]
    file.group()[1][1][1][0] = {1: (BINARY, b"/etc/passwd"), **chunk}


@case("the row group has fewer columns than the schema", place=GROUP)
def no_columns(file):
    changed(file.group(), f1=(STRUCT, []))


@case("the row group has more columns than the schema")
def columns_twice(file):
    columns = file.group()[1][1][1]
    changed(file.group(), f1=(STRUCT, columns * 2))


@case("the schema is nested too deeply", place="")
def schema_of_many_levels(file):
    deep = {3: (I32, 0), 4: (BINARY, b"a"), 5: (I32, 1)}
    root, leaf = file.footer[2][1][1]
    changed(file.footer, f2=(STRUCT, [root, *[deep] * 100_000, leaf]))


@case("the schema has fewer columns than its root", place="")
def schema_that_ends_early(file):
    changed(file.footer[2][1][1][0], f5=2**31 - 1)


@case("the schema has more columns than its root", place="")
def schema_that_goes_on(file):
    changed(file.footer[2][1][1][0], f5=0)


@case("the footer is malformed", place="")
def footer_of_many_lists(file):
    file.footer[99] = (LIST, bytes([0x10 | LIST]) * 200_000 + b"\0")


@case("the footer is malformed", place="")
def footer_with_an_endless_list(file):
    file.footer[99] = (LIST, bytes([0xF0 | STRUCT]) + varint(2**62))


@case("the footer is malformed", place="")
def footer_with_an_endless_text(file):
    file.footer[99] = (STRUCT, bytes([0x10 | BINARY]) + varint(2**63 + 5))


NESTED = {
    "lists": (LIST, bytes([0x10 | LIST]), b"\0"),
    "sets": (SET, bytes([0x10 | SET]), b"\0"),
    "maps": (MAP, b"\1" + bytes([I32 << 4 | MAP]) + b"\0", b"\0"),
    "structs": (STRUCT, bytes([0x10 | STRUCT]), b"\0"),
}


@pytest.mark.parametrize("depth", [40, 1000, 200_000])
@pytest.mark.parametrize("kind", NESTED)
def test_headers_of_any_depth(tmp_path, kind, depth):
    """A header may hold fields that nobody knows, but not nested without end."""
    own, level, end = NESTED[kind]
    file = File.of(tmp_path / "t.parquet", SINGLE, use_dictionary=False, compression="none")
    ((header, body),) = file.pages()
    header[99] = (own, b"")
    file.set_pages([(write(header)[:-1] + level * depth + end * (depth if kind == "structs" else 1) + b"\0", body)])
    with pytest.raises(DataError, match=r"row group 0, column 'c': .* the header of a page is malformed"):
        read(file.write(tmp_path / "t.parquet"))


def page(why, field=None, table=SINGLE, **options):
    """Register a function that changes the header of the last page, and the part of it for its version."""

    def register(function):
        def change(file):
            pages = file.pages()
            function(pages[-1][0], pages[-1][0].get(field, (0, None))[1])
            file.set_pages(pages)

        case(why, table, **{"compression": "none", "use_dictionary": False, **options})(change)
        CASES[function.__name__] = CASES.pop("change")

    return register


@page("a page is larger than its column")
def page_behind_the_end(header, _):
    changed(header, f2=2**31 - 1, f3=2**31 - 1)


@page("the header of a page has a negative size, or none")
def page_of_negative_size(header, _):
    changed(header, f2=-8, f3=-8)


@page("a page that is not compressed has two sizes")
def page_of_two_sizes(header, _):
    changed(header, f2=header[2][1] + 8)


@page("a page is larger than its compressed bytes can hold", compression="snappy")
def page_larger_than_snappy_can_be(header, _):
    changed(header, f2=2**31 - 1)


@page("its pages are more than 64 MB, and 100 times their compressed size", compression="zstd")
def page_that_unpacks_without_end(header, _):
    changed(header, f2=2**31 - 1)


@page("its pages hold more values than the footer has", field=5)
def page_of_too_many_values(header, own):
    changed(own, f1=2**31 - 1)


@page("a page has a negative number of values, or none", field=5)
def page_of_negative_values(header, own):
    changed(own, f1=-1)


@page("its pages hold fewer values than the footer has", field=5)
def page_of_too_few_values(header, own):
    changed(own, f1=50)


@page("a page has an unknown encoding", field=5)
def page_of_an_unknown_encoding(header, own):
    changed(own, f2=77)


@page("the levels of a page are larger than the page", field=8, data_page_version="2.0")
def levels_behind_the_end(header, own):
    changed(own, f5=2**31 - 1)


@page("the levels of a page are larger than the page", field=8, data_page_version="2.0")
def levels_of_negative_size(header, own):
    changed(own, f6=-8)


@case("a dictionary has more values than bytes for them")
def endless_dictionary(file):
    pages = file.pages()
    changed(pages[0][0][7][1], f1=2**31 - 1)
    file.set_pages(pages)


@case("a dictionary is not the first page")
def two_dictionaries(file):
    pages = file.pages()
    file.set_pages([pages[0], *pages])


@pytest.mark.parametrize("name", CASES)
def test_a_lying_file_is_refused(tmp_path, name):
    change, table, options, message = CASES[name]
    file = File.of(tmp_path / "t.parquet", table, **options)
    read(file.write(tmp_path / "t.parquet"))  # put together again, it is a file
    change(file)
    path = file.write(tmp_path / "t.parquet")
    for shuffle_rows in (0, 1000):
        began = time.process_time()
        with pytest.raises(DataError) as caught:
            read(path, shuffle_rows)
        assert message in str(caught.value)
        assert time.process_time() - began < 1


def test_two_groups_share_memory_and_one_lies(tmp_path):
    """Rows of a window are written side by side: one group with fewer rows must not write into another's."""
    file = File.of(tmp_path / "t.parquet", SINGLE, row_group_size=50)
    changed(file.group(0), f3=-5)
    with pytest.raises(DataError, match="negative number of rows"):
        read(file.write(tmp_path / "t.parquet"), shuffle_rows=1000)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_places_outside_of_the_dictionary(tmp_path, compression, mixed):
    """By compiled code, and by Arrow, which reads strings as dictionaries, and adds words of plain pages to them."""
    words = [f"word {n // 10}" for n in range(100)]
    options = {"dictionary_pagesize_limit": 20, "write_batch_size": 10, "data_page_size": 10} if mixed else {}
    file = File.of(tmp_path / "t.parquet", pa.table({"c": words}), compression=compression, **options)
    assert len({header[5][1][2][1] for header, _ in file.pages()[1:]}) == 1 + mixed  # encodings
    header, body = file.pages()[0]
    given = pa.decompress(body, header[2][1], "zstd").to_pybytes() if compression == "zstd" else body
    fewer = given[:-10]  # without the last word
    body = pa.compress(fewer, "zstd").to_pybytes() if compression == "zstd" else fewer
    changed(header, f2=len(fewer), f3=len(body))
    changed(header[7][1], f1=header[7][1][1][1] - 1)
    file.set_pages([(header, body), *file.pages()[1:]])
    with pytest.raises(DataError, match=r"t\.parquet, row group 0: cannot be read, it may be damaged: "):
        read(file.write(tmp_path / "t.parquet"))


def page_of_lists(header, repeated, defined, values):
    """Return a page of integers in lists: levels in groups of eight."""
    bits = sum(own << i for i, own in enumerate(repeated))
    pairs = sum(own << 2 * i for i, own in enumerate(defined))
    levels = [bytes([3]) + bits.to_bytes(1, "little"), bytes([3]) + pairs.to_bytes(2, "little")]
    body = b"".join(len(own).to_bytes(4, "little") + own for own in levels)
    body += b"".join(n.to_bytes(8, "little") for n in values)
    own = {**header, 5: (header[5][0], dict(header[5][1]))}
    changed(own, f2=len(body), f3=len(body))
    changed(own[5][1], f1=len(repeated))
    return own, body


@pytest.mark.parametrize("last", [0, 1], ids=["missing", "empty"])
@pytest.mark.parametrize("pages", [1, 2])
def test_an_entry_of_a_list_that_has_none(tmp_path, last, pages):
    """A level that goes on with a list, after one that says the list is missing or empty: Arrow's rows, or none."""
    table = pa.table({"c": pa.array([[1, 2], [3, 4], [5]], pa.list_(pa.int64()))})
    file = File.of(tmp_path / "t.parquet", table, compression="none", use_dictionary=False)
    ((header, _),) = file.pages()
    levels = [(0, 3), (1, 3), (0, last), (1, 3), (0, 3)]
    cuts = [levels] if pages == 1 else [levels[:3], levels[3:]]
    made, values = [], iter([1, 2, 4, 5])
    for own in cuts:
        repeated, defined = zip(*own, strict=True)
        made.append(page_of_lists(header, repeated, defined, [next(values) for n in defined if n == 3]))
    file.set_pages(made)
    path = file.write(tmp_path / "t.parquet")
    try:
        arrow = [own or [] for own in pq.read_table(path)["c"].to_pylist()]
    except (OSError, pa.ArrowException):
        arrow = None
    try:
        (batch,) = read(path, feature=NUMBERED)
        ours = batch.ids["c"].to_lists()
    except DataError:
        ours = None
    assert ours in (arrow, None)
