"""Shares of the data: every row once, in an order that depends on the number of shares, and not of processes."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import DataError, IdFeature, Parquet, Tables
from sparrow.feed import Division, OneByOne
from sparrow.feed.shares import ROUND, portions
from tests.feed.pipelines import pipeline_of

FEATURES = [IdFeature("row", num_buckets=10_000, embedding_dim=4)]


class Rows(OneByOne):
    """The ids of a batch without its padding."""

    def __init__(self, pads=True):
        super().__init__(lambda batch: (batch.ids["row"][: batch.examples].tolist(), len(batch)))
        self.pads = pads


class Board:
    """Messages of processes that are threads."""

    def __init__(self):
        self.messages, self.change = {}, threading.Condition()

    def tell(self, share, epoch, rows, is_last):
        with self.change:
            self.messages.setdefault(share, []).append((epoch, rows, is_last))
            self.change.notify_all()

    def failed(self, share):
        self.tell(share, -1, 0, True)

    def have(self, share, epoch, rows, is_over):
        def known():
            found = [m for m in self.messages.get(share, []) if m[0] in (epoch, -1)]
            if any(m[1] >= rows or m[0] < 0 for m in found):
                return 1
            return 0 if any(m[2] for m in found) else -1

        with self.change:
            assert self.change.wait_for(lambda: known() >= 0, timeout=60)
            return bool(known())


def source(folder, sizes, kind):
    """Rows that are numbered, in chunks of such sizes."""
    starts = np.cumsum([0, *sizes])
    tables = [pa.table({"row": np.arange(a, b)}) for a, b in itertools.pairwise(starts)]
    if kind == "memory":  # the rows of a chunk are not known before it is read
        return Tables(pa.concat_tables(tables), chunk_rows=max(sizes))
    with pq.ParquetWriter(folder / "rows.parquet", tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return Parquet(str(folder / "rows.parquet"))


def pipeline(given, division, batch=12, **options):
    made = pipeline_of(given, FEATURES, batch_size=batch, prepare=Rows(not options.get("drop_remainder")), **options)
    made.divide(division)
    return made


def read(made, most=10_000):
    """Batches, and the position after each."""
    found = []
    for batch in made:
        found.append((*batch, made.position()))
        if len(found) == most:
            break
    return found


def together(given, shares, processes, at=None, **options):
    """The batches of all processes, each of the rows of all of them; and the positions after each."""
    board = Board()

    def one(process):
        made = pipeline(given, Division(shares, process, processes, board), **options)
        if at is not None:
            made.restore(at)
        return read(made)

    with ThreadPoolExecutor(processes) as pool:
        each = list(pool.map(one, range(processes)))
    assert len({len(batches) for batches in each}) == 1
    joined, positions = [], []
    for parts in zip(*each, strict=True):
        assert len({size for _, size, _ in parts}) == 1
        joined.append([row for rows, _, _ in parts for row in rows])
        position = dict(parts[0][2])
        if position["shares"]:
            known = zip(*(part[2]["shares"] for part in parts), strict=True)
            position["shares"] = [next(one for one in own if one is not None) for own in known]
        positions.append(position)
    return joined, positions


SIZES = [40, 7, 25, 40, 3, 40, 18, 1, 33]


@pytest.mark.parametrize("kind", ["parquet", "memory"])
@pytest.mark.parametrize(("shares", "shuffle"), [(1, 30), (2, 0), (3, 30), (4, 30)])
def test_the_order_does_not_depend_on_the_processes(tmp_path, kind, shares, shuffle):
    given = source(tmp_path, SIZES, kind)
    expected, positions = together(given, shares, 1, epochs=2, shuffle_rows=shuffle)
    rows = [row for batch in expected for row in batch]
    half = len(rows) // 2
    assert sorted(rows[:half]) == sorted(rows[half:]) == list(range(sum(SIZES)))
    assert (rows[:half] == rows[half:]) == (shuffle == 0)
    for processes in (2, 3, 4):
        batches, at = together(given, shares, processes, epochs=2, shuffle_rows=shuffle)
        assert batches == expected, processes
        assert at == positions, processes


@pytest.mark.parametrize("kind", ["parquet", "memory"])
def test_resumed_on_another_number_of_processes(tmp_path, kind):
    given = source(tmp_path, SIZES, kind)
    expected, positions = together(given, 2, 2, epochs=2, shuffle_rows=30)
    for done in range(1, len(expected) + 1):
        batches, _ = together(given, 2, 1 + done % 3, at=positions[done - 1], epochs=2, shuffle_rows=30)
        assert batches == expected[done:], done


@pytest.mark.parametrize("kind", ["parquet", "memory"])
def test_remainders_are_dropped(tmp_path, kind):
    given = source(tmp_path, SIZES, kind)
    expected, _ = together(given, 2, 1, epochs=2, shuffle_rows=30, drop_remainder=True)
    assert all(len(batch) == 12 for batch in expected)
    assert len(expected) == 2 * (17 if kind == "parquet" else 14)  # the last chunk in memory is short, and no one knows
    assert together(given, 2, 2, epochs=2, shuffle_rows=30, drop_remainder=True)[0] == expected
    with pytest.raises(DataError, match="do not fill a batch"):
        together(given, 2, 2, batch=400, drop_remainder=True)


def test_fewer_chunks_than_processes(tmp_path):
    given = source(tmp_path, [5], "parquet")
    batches, _ = together(given, 4, 4, batch=8)
    assert [sorted(batch) for batch in batches] == [list(range(5))]
    given = source(tmp_path, [1], "memory")
    assert together(given, 4, 4, batch=8)[0] == [[0]]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_portions_are_even_and_cut_few_chunks(count):
    rng = np.random.default_rng(count)
    sizes = rng.integers(50, 100, 200)
    shares = [list(portions(range(200), lambda chunk: int(sizes[chunk]), share, count)) for share in range(count)]
    rows = [sum(one.end - one.begin for one in share) for share in shares]
    assert sum(rows) == sizes.sum()
    assert max(rows) - min(rows) <= 1
    assert max(map(len, shares)) <= (ROUND + 2) / ROUND * 200 / count + 1
    even = [list(portions(range(count * ROUND * 3), lambda chunk: 50, share, count)) for share in range(count)]
    assert all(one.is_whole for share in even for one in share)


def test_a_process_converts_its_share_alone(tmp_path):
    given = source(tmp_path, [40] * 64, "parquet")
    made = pipeline(given, Division(2, 1, 2, Board()), shuffle_rows=100)
    assert len(read(made)) == 40 * 64 // 12 + 1
    assert made.stages.rows == 40 * 32


def test_a_share_that_fails_keeps_no_other_waiting(tmp_path):
    """The process that fails reports it at that batch; the others go on up to there."""
    board = Board()
    board.failed(0)
    rows = read(pipeline(source(tmp_path, [4], "memory"), Division(2, 1, 2, board), batch=4), most=3)
    assert [size for _, size, _ in rows] == [2, 2, 2]
