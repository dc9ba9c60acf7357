"""Many threads: the same batches as one, bounded memory, errors at their row, and no thread that stays."""

import dataclasses
import itertools
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import DataError, IdFeature, Parquet, Tables, concatenate
from sparrow.data.sources.memory import TableReader
from sparrow.feed import Made, Prepare, WaitInterrupted
from sparrow.feed.crew import Crew, Dropped, default_threads
from sparrow.feed.reading import Chunks, Memory
from tests.feed.pipelines import pipeline_of
from tests.feed.test_pipeline import items, pipeline, plain, table


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("sparrow-data")]


@pytest.fixture(autouse=True)
def _no_thread_stays():
    before = own_threads()  # of tests before, whose garbage was not collected
    yield
    assert set(own_threads()) <= set(before)


def everything(made):
    """Batches, positions and counts."""
    found = []
    for batch in made:
        found.append((plain(batch), made.position(), made.skipped))
    return [*found, made.skipped]


@pytest.mark.parametrize(
    "options", [{}, {"shuffle_rows": 25, "epochs": 3}, {"shuffle_rows": 31, "drop_remainder": True}]
)
def test_the_number_of_threads_changes_nothing(options):
    source = Tables(table(103, bad=(4, 50)), chunk_rows=7)
    expected = everything(pipeline(source, bad_rows="skip", ahead=0, **options))
    for threads in (1, 2, 7):
        assert everything(pipeline(source, bad_rows="skip", threads=threads, **options)) == expected
        tight = pipeline(source, bad_rows="skip", threads=threads, memory_ahead=1, ahead=1, **options)
        assert everything(tight) == expected


def test_resuming_with_another_number_of_threads():
    first = pipeline(epochs=2, shuffle_rows=25, threads=3)
    batches = iter(first)
    for _ in range(9):
        next(batches)
    position = first.position()
    rest = [plain(batch) for batch in batches]
    for threads in (1, 7):
        again = pipeline(epochs=2, shuffle_rows=25, threads=threads)
        again.restore(position)
        assert [plain(batch) for batch in again] == rest


class Slow(TableReader):
    """Reads chunks in times that differ, and counts how many are being read."""

    def read(self, chunk, bad_rows):
        time.sleep(0.02 * (chunk % 3))
        return super().read(chunk, bad_rows)


class Stuck(TableReader):
    """Never comes back from its fifth chunk, until it is let go."""

    go = threading.Event()

    def read(self, chunk, bad_rows):
        if chunk == 5:
            self.go.wait(60)
        return super().read(chunk, bad_rows)


class Failing(TableReader):
    def read(self, chunk, bad_rows):
        if chunk == 5:
            raise OSError("the disk is gone")
        return super().read(chunk, bad_rows)


def collect(made, found):
    for batch in made:
        found += batch.ids["item"].tolist()


def interrupt(made):
    for _ in made:
        raise KeyboardInterrupt


def read_by(kind, **options):
    made = pipeline(**options)
    reader = kind(made._reader._table, made._reader._chunk_rows)
    made._reading = dataclasses.replace(made._reading, reader=reader)
    return made


def test_chunks_that_are_late_stay_in_order():
    assert items(read_by(Slow, threads=5)) == list(range(103))


def test_an_error_arrives_at_its_row():
    source = Tables(table(103, bad=(47,)), chunk_rows=5)
    found = []
    with pytest.raises(DataError, match=r"^table in memory, row 47, column 'item': id -5 is outside"):
        collect(pipeline(source, batch_size=5, threads=7), found)
    assert found == list(range(45))


def test_a_reader_that_fails():
    found = []
    with pytest.raises(OSError, match="the disk is gone"):
        collect(read_by(Failing, threads=4, batch_size=10), found)
    assert found == list(range(50))


def test_a_reader_that_hangs_can_be_left(monkeypatch):
    monkeypatch.setattr("sparrow.feed.crew.PATIENCE", 0.1)
    Stuck.go.clear()
    made, found = read_by(Stuck, threads=4, batch_size=10), []
    made.waits.interrupted = lambda: len(found) == 50
    with pytest.warns(RuntimeWarning, match="reading data does not end"), pytest.raises(WaitInterrupted):
        collect(made, found)
    assert found == list(range(50))
    Stuck.go.set()
    for thread in own_threads():
        thread.join(5)


def test_keyboard_interrupt_in_the_loop():
    with pytest.raises(KeyboardInterrupt):
        interrupt(pipeline(epochs=None, threads=5))


def test_an_interrupt_in_prepare_arrives():
    def prepare(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(iter(pipeline(prepare=prepare, threads=3)))


def test_memory_ahead_is_bounded(monkeypatch):
    used = []
    monkeypatch.setattr(Memory, "fits", lambda self, n: used.append(self) or self.used + n <= self.limit)
    source = Tables({"item": np.arange(20_000)}, chunk_rows=100)
    chunk = 3 * 100 * 4  # a word a row, held three times
    feature, memory = IdFeature("item", num_buckets=20_000, embedding_dim=2), 5 * chunk
    made = pipeline_of(source, [feature], batch_size=50, threads=6, ahead=4, memory_ahead=memory)
    rows = 0
    for batch in made:
        rows += len(batch)
        if rows < 2000:
            time.sleep(0.005)
    assert rows == 20_000
    # Whatever somebody waits for is read all the same: one chunk more.
    assert 3 * chunk <= used[0].most <= 6 * chunk
    assert used[0].used == 0


@pytest.mark.parametrize(("small", "most"), [(2**25, 4), (10, 2)])
def test_few_threads_are_further_ahead_in_small_chunks(monkeypatch, small, most):
    monkeypatch.setattr("sparrow.feed.reading.SMALL", small)
    begun, next_ = [], Chunks.next

    def counted(self):
        made = next_(self)
        begun.append(len(self._begun))
        return made

    monkeypatch.setattr(Chunks, "next", counted)
    assert items(pipeline(threads=1)) == list(range(103))
    assert max(begun) == most - 1  # besides the one that was waited for


def test_all_threads_begin_at_once_where_the_size_of_chunks_is_known(monkeypatch):
    """The first time, one chunk is read to learn it."""
    made, begun, next_ = pipeline(threads=3), [], Chunks.next

    def counted(self):
        begun.append(self._memory.chunk)
        return next_(self)

    monkeypatch.setattr(Chunks, "next", counted)
    expected = items(made)
    chunks = len(begun)
    assert items(made) == expected
    assert begun[0] == 0 < begun[chunks] == max(begun)


class Grouped(Prepare):
    """Batches by threes, or one by one where the first of them holds ``odd``."""

    odd = None

    def together(self, batch_size, layout):
        return 3

    def make(self, batches, in_turn):
        given = [concatenate(blocks).to_batch() for blocks in batches]
        if not given or self.odd not in given[0].ids["item"]:
            return Made(given)
        made = []
        try:
            for batch in in_turn(lambda: given):
                made.append(self.finish(batch))
        except ValueError as error:
            return Made(made, error)
        return Made(made)

    def finish(self, batch):
        if 60 in batch.ids["item"]:
            raise ValueError("sixty is refused")
        return batch


@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"ahead": 2}, {"ahead": 0}, {"drop_remainder": True}])
def test_batches_that_are_made_together(options):
    source = Tables(table(103), chunk_rows=7)
    own = {"drop_remainder": options.get("drop_remainder", False)}
    expected = everything(pipeline(source, ahead=0, shuffle_rows=25, epochs=2, **own))
    prepare = Grouped()
    prepare.odd = 50
    options = {"threads": 4, **options}
    assert everything(pipeline(source, shuffle_rows=25, epochs=2, prepare=prepare, **options)) == expected
    first = pipeline(source, shuffle_rows=25, epochs=2, prepare=Grouped(), **options)
    batches = iter(first)
    for _ in range(5):  # into the middle of a group
        next(batches)
    rest = pipeline(source, shuffle_rows=25, epochs=2, prepare=Grouped(), **options)
    rest.restore(first.position())
    batches.close()
    assert everything(rest) == expected[5:]


def test_an_error_comes_after_the_batches_of_its_group():
    prepare, found = Grouped(), []
    prepare.odd = 48  # its group holds the rows 48 to 71
    with pytest.raises(ValueError, match="sixty is refused"):
        collect(pipeline(batch_size=8, prepare=prepare, threads=4), found)
    assert found == list(range(56))
    source, found = Tables(table(103, bad=(47,)), chunk_rows=5), []
    with pytest.raises(DataError, match="row 47"):
        collect(pipeline(source, batch_size=5, prepare=Grouped(), threads=4), found)
    assert found == list(range(45))


def test_groups_are_finished_by_several_threads_at_a_time():
    """A group lets the next one begin before its own batches are finished."""
    at_work, most, lock = [0], [0], threading.Lock()

    class Slow(Grouped):
        def make(self, batches, in_turn):
            return Made([*map(self.finish, in_turn(lambda: [concatenate(blocks).to_batch() for blocks in batches]))])

        def finish(self, measured):
            with lock:
                at_work[0] += 1
                most[0] = max(most[0], at_work[0])
            time.sleep(0.02)
            with lock:
                at_work[0] -= 1
            return measured

    made = pipeline(Tables(table(59), chunk_rows=7), batch_size=4, prepare=Slow(), threads=4)
    assert [len(batch) for batch in made] == [4] * 14 + [3]
    assert most[0] >= 3


def test_a_parquet_file_by_many_threads(tmp_path):
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"item": rng.integers(0, 99, 5000)}), tmp_path / "a.parquet", row_group_size=100)
    source = Parquet(str(tmp_path / "a.parquet"))
    features = [IdFeature("item", num_buckets=99, embedding_dim=2)]
    runs = [
        [
            batch.ids["item"].tolist()
            for batch in pipeline_of(source, features, batch_size=64, shuffle_rows=300, threads=threads)
        ]
        for threads in (1, 7)
    ]
    assert runs[0] == runs[1]


def test_time_is_counted_by_stage_and_for_the_loop():
    made = read_by(Slow, threads=2)
    list(made)
    assert made.stages.seconds["decode"] > 0.05
    assert made.stages.seconds["convert"] > 0
    assert made.waits.seconds > 0.02


def test_a_crew_does_urgent_tasks_first_and_drops_what_has_not_begun():
    crew, gate, done = Crew(1), threading.Event(), []
    first = crew.do(gate.wait)
    crew.do(lambda: done.append("later"), urgent=False)
    urgent = crew.do(lambda: done.append("urgent"))
    gate.set()
    urgent.result()
    assert first.result()
    assert done[0] == "urgent"
    gate.clear()
    begun = threading.Event()
    blocking, dropped = crew.do(lambda: begun.set() or gate.wait()), crew.do(lambda: 1)
    assert begun.wait(60)
    crew.stop()
    with pytest.raises(Dropped):
        dropped.result()
    gate.set()
    crew.close()
    assert blocking.result()
    with pytest.raises(Dropped):
        crew.do(lambda: 1).result()


def test_the_waiting_thread_does_urgent_tasks():
    crew, gate, begun, done = Crew(1), threading.Event(), threading.Event(), []
    crew.do(lambda: begun.set() or gate.wait())
    assert begun.wait(60)
    assert not crew.help()
    late = crew.do(lambda: done.append("chunk"), urgent=False)
    task = crew.do(threading.current_thread)
    assert crew.help()
    assert task.result() is threading.current_thread()
    assert not crew.help()  # chunks stay with the crew, because reading may hang
    assert not done
    task = crew.do(lambda: interrupt([None]))
    with pytest.raises(KeyboardInterrupt):
        crew.help()
    with pytest.raises(KeyboardInterrupt):
        task.result()
    gate.set()
    late.result()
    crew.close()
    assert not crew.help()


def test_an_interrupt_while_the_loop_makes_a_batch_arrives_at_once():
    gate = threading.Event()

    class Slow(Grouped):
        """The crew's only thread is at work on the first group; the loop on the second, where Ctrl-C is pressed."""

        def make(self, batches, in_turn):
            if threading.current_thread() is threading.main_thread():
                gate.set()
                raise KeyboardInterrupt
            gate.wait(60)
            return super().make(batches, in_turn)

    batches = iter(
        pipeline(Tables(table()), prepare=Slow(), threads=1, batch_size=2)
    )  # one chunk: both groups are there
    with pytest.raises(KeyboardInterrupt):
        next(batches)


def test_a_loop_whose_device_would_be_idle_only_waits():
    class Slow(Grouped):
        """The crew's only thread takes its time for each group."""

        loop_only_waits = True

        def make(self, batches, in_turn):
            threads.add(threading.current_thread())
            time.sleep(0.01)
            return super().make(batches, in_turn)

    threads = set()
    assert len(list(pipeline(prepare=Slow(), threads=1, batch_size=2))) == 52
    assert threading.main_thread() not in threads
    Slow.loop_only_waits = False
    list(pipeline(prepare=Slow(), threads=1, batch_size=2))
    assert threading.main_thread() in threads


class Busy(TableReader):
    """Keeps its thread in the fourth chunk until the loop has made a batch."""

    made = threading.Event()

    def read(self, chunk, bad_rows):
        if chunk == 3 and not self.made.wait(30):
            raise RuntimeError("the loop made no batch")
        return super().read(chunk, bad_rows)


def test_the_loop_makes_batches_while_the_only_thread_reads():
    def prepare(batch):
        if threading.current_thread() is threading.main_thread():
            Busy.made.set()
        return batch

    Busy.made.clear()
    made, found = read_by(Busy, threads=1, batch_size=2, ahead=1, prepare=prepare), []
    for batch in made:
        found += batch.ids["item"].tolist()
        time.sleep(0.002)
    assert found == list(range(103))


def test_defaults():
    made = pipeline()
    assert made.threads == default_threads() >= 1
    assert made.batches_ahead == made.threads + 2
    assert pipeline(ahead=5).batches_ahead == 5
    with pytest.raises(ValueError, match="threads must be an integer of at least 1, got 0"):
        pipeline(threads=0)
    assert len(list(itertools.islice(iter(made), 3))) == 3
