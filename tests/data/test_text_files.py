"""Text files cut into chunks: every line once, with its number, whatever it holds."""

import gc
import itertools
import tempfile

import hypothesis
import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import (
    ClickLog,
    Csv,
    DataError,
    IdFeature,
    Parquet,
    RawFeature,
    Tables,
)
from tests.data.reading import read_all
from tests.feed.pipelines import pipeline_of


@pytest.mark.parametrize("chunk_bytes", [1, 10, 57, 10**6])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_chunks_hold_every_line_once(tmp_path, chunk_bytes, ending, last):
    lines = [f"{i},{'x' * (i % 7)}" for i in range(50)]
    text = ending.join(["a,b", *lines]) + last.replace("\n", ending)
    (tmp_path / "t.csv").write_bytes(text.encode())
    columns, rows = read_all(Csv(str(tmp_path / "t.csv"), chunk_bytes=chunk_bytes))
    assert columns["a"] == [str(i) for i in range(50)]
    assert columns["b"] == ["x" * (i % 7) or None for i in range(50)]
    places = [row.place(i) for row in rows for i in range(row.table.num_rows)]
    assert places == [f"line {i + 2}" for i in range(50)]


@pytest.mark.parametrize("chunk_bytes", [1, 10, 57, 10**6])
@pytest.mark.parametrize("last", ["", "\n"])
def test_line_breaks_in_quotes(tmp_path, chunk_bytes, last):
    """Rows of several lines, cut between rows only; the line of a row is where it begins."""
    values = [str(i) + "\n" * (i % 3) + ', ""quoted""' for i in range(30)]
    text = "\n".join(['a,"b\nb"', *(f'{i},"{value}"' for i, value in enumerate(values))]) + last
    (tmp_path / "t.csv").write_text(text)
    source = Csv(str(tmp_path / "t.csv"), chunk_bytes=chunk_bytes, newlines_in_values=True)
    columns, rows = read_all(source)
    assert columns["a"] == [str(i) for i in range(30)]
    assert columns["b\nb"] == [value.replace('""', '"') for value in values]
    lines = [3 + sum(1 + j % 3 for j in range(i)) for i in range(30)]
    assert [row.place(i) for row in rows for i in range(row.table.num_rows)] == [f"line {line}" for line in lines]
    assert source.open(["a"]).num_rows == 30


def test_a_bad_row_among_rows_of_several_lines(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'a,b\n1,"x\ny"\n2\n3,"\xff\n"\n\n4,"\n\n"\n')
    source = Csv(str(tmp_path / "t.csv"), newlines_in_values=True)
    columns, (rows,) = read_all(source, bad_rows="skip")
    assert columns == {"a": ["1", "4"], "b": ["x\ny", "\n\n"]}
    assert (rows.skipped, rows.place(0), rows.place(1)) == (3, "line 2", "line 8")
    with pytest.raises(DataError, match="line 5: byte 0xff is not utf8 text"):
        read_all(source)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.bz2", "t.csv.zst"])
def test_packed_files(tmp_path, name, monkeypatch):
    """They are read as if they were not packed, and leave nothing behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "data").mkdir()
    with pa.output_stream(str(tmp_path / "data" / name), compression="detect") as packed:
        packed.write(b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(50)))
    source = Csv(str(tmp_path / "data"), chunk_bytes=20)
    columns, rows = read_all(source)
    assert columns["a"] == [str(i) for i in range(50)]
    assert rows[-1].place(0).startswith("line ")
    del rows
    gc.collect()
    assert not list((tmp_path / "temporary").iterdir())


def test_rows_are_counted(tmp_path):
    for text in ("a\n1\n2", "a\n1\n2\n", "a\n1\n2\n\n"):
        (tmp_path / "t.csv").write_text(text)
        assert Csv(str(tmp_path / "t.csv"), chunk_bytes=1).open(["a"]).num_rows == 2
    pq.write_table(pa.table({"a": range(7)}), tmp_path / "t.parquet", row_group_size=3)
    assert Parquet(str(tmp_path / "t.parquet")).open(["a"]).num_rows == 7
    assert Tables({"a": [1, 2, 3]}).open(["a"]).num_rows == 3
    assert ClickLog(impressions=9, fields=1, ids=2).open(["label"]).num_rows == 9


def test_quotes_encodings_separators_and_marks(tmp_path):
    (tmp_path / "q.csv").write_text('a,b\n"x, y",2\n', encoding="utf-8-sig")
    assert read_all(Csv(str(tmp_path / "q.csv")))[0] == {"a": ["x, y"], "b": ["2"]}
    (tmp_path / "l.txt").write_bytes("Caf\xe9::1\n".encode("latin1"))
    source = Csv(str(tmp_path / "l.txt"), columns=("a", "b"), separator="::", quote=None, encoding="latin1")
    assert read_all(source)[0] == {"a": ["Caf\xe9"], "b": ["1"]}
    (tmp_path / "n.tsv").write_bytes(b"\xef\xbb\xbf1\tNA\n")
    source = Csv(str(tmp_path / "n.tsv"), columns=("a", "b"), separator="\t", missing=("NA",))
    assert read_all(source)[0] == {"a": ["1"], "b": [None]}


def test_bad_lines_are_skipped_counted_and_do_not_shift_the_others(tmp_path):
    lines = [b"a,b", b"0,0", b"1", b"2,2", b"\xff,3", b"4,4,4", b"5,5", b"", b"7,7"]
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines))
    for chunk_bytes in (1, 9, 10**6):
        columns, rows = read_all(Csv(str(tmp_path / "t.csv"), chunk_bytes=chunk_bytes), bad_rows="skip")
        assert columns["a"] == ["0", "2", "5", "7"]
        assert sum(row.skipped for row in rows) == 4
        places = [row.place(i) for row in rows for i in range(row.table.num_rows)]
        assert places == ["line 2", "line 4", "line 7", "line 9"]


def test_a_bad_value_after_a_skipped_line_has_its_own_line_number(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,0\nonly one\n2,0\n3,oops\n")
    pipeline = pipeline_of(Csv(str(tmp_path / "t.csv")), [RawFeature("a")], labels=["y"], batch_size=9, bad_rows="skip")
    assert [batch.numbers["a"].tolist() for batch in pipeline] == [[[1.0], [2.0]]]
    assert pipeline.skipped == 2


def test_a_position_in_text_files_with_bad_lines_is_exact(tmp_path):
    lines = [f"{i},{i % 2}" if i % 7 else f"{i}" for i in range(100)]
    for name, part in (("a.csv", lines[:60]), ("b.csv", lines[60:])):
        (tmp_path / name).write_text("\n".join(["item,click", *part]) + "\n")

    def make():
        source, item = Csv(str(tmp_path), chunk_bytes=50), IdFeature("item", num_buckets=100, embedding_dim=4)
        return pipeline_of(source, [item], labels=["click"], batch_size=9, shuffle_rows=20, bad_rows="skip", ahead=0)

    whole = make()
    positions, batches = [whole.position()], []
    for batch in whole:
        positions.append(whole.position())
        batches.append(batch.ids["item"].tolist())
    assert sorted(item for batch in batches for item in batch) == [i for i in range(100) if i % 7]
    assert whole.skipped == 15
    for i, position in enumerate(positions):
        again = make()
        again.restore(position)
        assert [batch.ids["item"].tolist() for batch in again] == batches[i:]


@hypothesis.given(st.lists(st.sampled_from([b"1", b",", b"\n", b"\r", b'"', b"x", b"\xff", b"-7", b"1.5", b"\x00"])))
@hypothesis.settings(max_examples=150, deadline=None)
def test_any_bytes_give_rows_or_one_line(tmp_path_factory, pieces):
    file = tmp_path_factory.mktemp("fuzz") / "t.csv"
    file.write_bytes(b"item,click\n" + b"".join(pieces))
    item = IdFeature("item", num_buckets=5, embedding_dim=4)
    for bad_rows, newlines in itertools.product(("error", "skip"), (False, True)):
        said = str(file)
        try:
            source = Csv(str(file), chunk_bytes=7, newlines_in_values=newlines)
            for batch in pipeline_of(source, [item], labels=["click"], batch_size=3, bad_rows=bad_rows, ahead=0):
                assert ((batch.ids["item"] >= -1) & (batch.ids["item"] < 5)).all()
        except DataError as error:
            said = str(error)
        assert said.startswith(str(file))
        assert "\n" not in said
