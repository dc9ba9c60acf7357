"""A chain of links gives the bits of a full checkpoint; of a damaged one, the longest sound part is used."""

import contextlib
import json
import os
import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import sparrow as sp
from sparrow.checkpoint import Checkpoints, Damaged, Saved, links, placed, rows_of, whole
from sparrow.checkpoint import folder as folders
from sparrow.embedding import CHECKPOINTS, EXPORTS, ChangedRows, SavedIds, tracking

RULE = sp.rules.Adam(0.1)
TABLES = [
    sp.TableSpec(name="a", vocabulary_size=300, embedding_dim=4, optimizer=RULE),
    sp.TableSpec(name="b", vocabulary_size=50, embedding_dim=4, optimizer=RULE),
    sp.TableSpec(
        name="c/d", vocabulary_size=40, embedding_dim=6, optimizer=sp.rules.RowwiseAdagrad(0.1), dtype="bfloat16"
    ),
    sp.TableSpec(name="new", vocabulary_size=30, embedding_dim=4, optimizer=RULE, dynamic=sp.Dynamic(evict="lru")),
    sp.TableSpec(name="held", vocabulary_size=9, embedding_dim=4, optimizer=sp.rules.SGD(0.1)),
]
EMB = sp.Embedder([sp.FeatureSpec(name=table.name, table_spec=table) for table in TABLES], backend="xla")
SIZE = 8


@jax.jit
def step(state, batch, grads, go):
    state, batch = EMB.assign(state, batch)
    grads = EMB.row_grads(batch, grads).only_if(go)
    return EMB.apply(state, grads)


class Trainer:
    """A run of random steps, whose complete state is known at each save."""

    def __init__(self, folder, seed=0, keep=None, log=lambda line: None):
        self.rng, self.folder, self.log = np.random.default_rng(seed), folder, log
        self.state = EMB.tracked(EMB.init(jax.random.key(0)))
        self.step, self.truth, self.keep = 0, {}, keep
        self.dense = {"w": np.zeros((4, 4), np.float32), "same": np.arange(5), "big": np.zeros(1000, np.int32)}
        self.open()

    def open(self):
        self.checkpoints = Checkpoints(self.folder, self.keep, self.log)

    def train(self, steps=2):
        for _ in range(steps):
            ids = {t.name: self.rng.integers(0, t.vocabulary_size, SIZE) for t in TABLES}
            ids["new"] = self.rng.integers(0, 10**6, SIZE) if self.rng.random() < 0.5 else np.arange(SIZE)
            grads = {t.name: self.rng.normal(size=(SIZE, t.embedding_dim)).astype(np.float32) for t in TABLES}
            self.state = step(self.state, EMB.pack(ids), grads, self.rng.random() < 0.8)
            self.step += 1
        self.dense = {**self.dense, "w": self.dense["w"] + self.rng.random(), "big": self.dense["big"].copy()}
        self.dense["big"][self.rng.integers(0, 1000, 3)] += 1

    def arrays(self):
        ids = EMB.saved_ids(self.state)
        return {**self.dense, **{f"ids/{t}/{k}": a for t, own in ids.items() for k, a in own.arrays().items()}}

    def save(self, link=True, compact_after=None):
        arrays, about = self.arrays(), {"of": self.step}
        self.truth[self.step] = complete(self.state), arrays
        self.state, changed = EMB.taken(self.state, CHECKPOINTS)
        if link and self.checkpoints.can_link:
            self.checkpoints.save_link(self.step, changed, arrays, about, compact_after)
        else:
            self.checkpoints.save(self.step, rows_of(EMB, self.state), arrays, about)

    def restart(self):
        """As a process that goes on from the newest checkpoint."""
        self.checkpoints.close()
        with contextlib.closing(next(whole(self.folder, self.log))) as saved:
            self.state = EMB.tracked(restored(saved))
            self.step = saved.step
        self.open()


def complete(state):
    made = {table.name: {"": EMB.table(state, table.name), **EMB.slots(state, table.name)} for table in TABLES}
    return jax.tree.map(lambda array: np.array(array), made)


def restored(saved):
    state, arrays = EMB.init(jax.random.key(5)), saved.arrays()
    ids = {k.removeprefix("ids/new/"): a for k, a in arrays.items() if k.startswith("ids/new/")}
    state, _ = EMB.with_ids(state, {"new": SavedIds.of(ids, "new")})
    return placed(EMB, state, list(rows_of(EMB, state)), saved.rows)


def assert_same(saved, truth):
    tables, arrays = truth
    state = restored(saved)
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8)), complete(state), tables
    )
    found = saved.arrays()
    assert set(found) == set(arrays)
    assert all(
        found[name].tobytes() == arrays[name].tobytes() and found[name].dtype == a.dtype for name, a in arrays.items()
    )
    again = EMB.saved_ids(state)["new"].arrays()
    assert all(again[name].tobytes() == arrays[f"ids/new/{name}"].tobytes() for name in again)


@pytest.mark.parametrize(("saves", "compact_after"), [(15, 4), pytest.param(200, 60, marks=pytest.mark.slow)])
def test_any_chain_gives_the_bits_of_a_full_checkpoint(tmp_path, saves, compact_after):
    """Evictions, skipped steps, restarts, compactions and full saves in between."""
    run = Trainer(tmp_path)
    full = 0.15 if saves < 100 else 0.02
    for _ in range(saves):
        run.train(int(run.rng.integers(1, 4)))
        run.save(link=run.rng.random() >= full, compact_after=compact_after)
        if run.rng.random() < 0.15:
            run.restart()
    run.checkpoints.close()
    kinds = {step: links.parent_of(tmp_path / str(step)) is not None for step in run.truth}
    assert saves / 5 < sum(kinds.values()) < 0.95 * saves
    for step, truth in run.truth.items():
        with contextlib.closing(Saved(tmp_path / str(step))) as saved:
            assert saved.about["of"] == step
            assert_same(saved, truth)
    assert not [name for name in os.listdir(tmp_path) if not name.isdecimal()]


def test_a_link_holds_what_changed_alone(tmp_path):
    run = Trainer(tmp_path)
    run.train()
    run.save()
    run.train(1)
    before = complete(run.state)
    _, changed = EMB.taken(run.state, EXPORTS)
    assert set(changed()) <= {"a", "b", "c/d", "new", "held"}
    run.save()
    run.checkpoints.close()
    held = links.changed_of((tmp_path / str(run.step) / links.CHANGED).read_bytes())
    assert all(len(own.rows) <= SIZE for own in held.values())
    assert "same" in json.loads((tmp_path / str(run.step) / "about.json").read_bytes())["arrays"]
    for own in held.values():
        assert set(own.arrays) >= {""}
    np.testing.assert_array_equal(held["a"].arrays[""], before["a"][""][held["a"].rows])


def test_old_links_stay_as_long_as_a_newer_one_needs_them(tmp_path):
    run = Trainer(tmp_path, keep=2)
    run.train()
    run.save()
    for _ in range(4):
        run.train(1)
        run.save()
    run.checkpoints.close()
    assert len(os.listdir(tmp_path)) == 5
    run.open()
    for _ in range(3):
        run.train(1)
        run.save(link=False)
        run.checkpoints.wait()
    run.checkpoints.close()
    assert sorted(map(int, os.listdir(tmp_path))) == sorted(run.truth)[-2:]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    run = Trainer(tmp_path_factory.mktemp("chain"))
    run.train()
    run.save()
    for _ in range(4):
        run.train(1)
        run.save()
    run.checkpoints.close()
    return run


@pytest.fixture
def chain(made, tmp_path):
    shutil.copytree(made.folder, tmp_path, dirs_exist_ok=True)
    return tmp_path, made.truth, sorted(made.truth)


@pytest.mark.parametrize("name", ["changed.safetensors", "state.safetensors", "about.json", "manifest.json", None])
@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_the_longest_sound_chain_is_used(chain, name, how):
    folder, truth, steps = chain
    hurt = folder / str(steps[3])
    if name is None:
        shutil.rmtree(hurt)
    elif how == "gone":
        (hurt / name).unlink()
    else:
        data = bytearray((hurt / name).read_bytes())
        data[len(data) // 2] ^= 1
        (hurt / name).write_bytes(data[:-1] if how == "cut" else data)
    lines = []
    saved = next(whole(folder, lines.append))
    assert saved.step == steps[2]
    assert_same(saved, truth[steps[2]])
    assert f"checkpoint {steps[4]} is damaged and was skipped: " in lines[0]
    assert str(hurt) in lines[0]
    saved.close()


def test_a_link_of_another_parent_is_refused(chain):
    folder, _, steps = chain
    other = Trainer(folder / "other", seed=9)
    other.train(steps[0])
    other.save()
    other.checkpoints.close()
    shutil.rmtree(folder / str(steps[0]))
    shutil.copytree(folder / "other" / str(steps[0]), folder / str(steps[0]))
    with pytest.raises(Damaged, match=f"stands on another checkpoint of step {steps[0]}"):
        Saved(folder / str(steps[1]))


def test_crafted_links_are_refused():
    for rows, values in [([3, 1], 2), ([1, 1], 2), ([-1, 2], 2), ([1, 2], 3)]:
        made = ChangedRows(np.array(rows, np.int32), {"": np.zeros((values, 4), np.float32)})
        with pytest.raises(ValueError, match=r"do not fit|not in order"):
            links.changed_of(safetensors.numpy.save(links.changed_arrays({"a": made})))
    with pytest.raises(ValueError, match="header"):
        links.changed_of(b"x" * 100)


def test_a_failed_link_is_raised_and_leaves_nothing(tmp_path, monkeypatch):
    run = Trainer(tmp_path)
    run.train()
    run.save()
    run.checkpoints.wait()

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(links, "write_state", full)
    run.train(1)
    run.save()
    with pytest.raises(folders.CheckpointError, match="the disk is full"):
        run.checkpoints.wait()
    assert os.listdir(tmp_path) == ["2"]


def test_a_reader_of_a_chain_holds_all_of_it(chain):
    folder, truth, steps = chain
    saved = Saved(folder / str(steps[2]))
    writer = Checkpoints(folder, keep=1)
    writer.save(99, rows_of(EMB, EMB.init(jax.random.key(0))), {"x": jnp.zeros(3)}, {})
    writer.close()
    left = sorted(map(int, os.listdir(folder)))
    assert left == [*steps[:3], 99]
    assert_same(saved, truth[steps[2]])
    saved.close()


@pytest.mark.parametrize("on_cpu", [True, False])
def test_many_blocks_of_rows_are_one(tmp_path, monkeypatch, on_cpu):
    """As of a large delta; and found as on devices other than CPUs."""
    monkeypatch.setattr(tracking, "BLOCK_BYTES", 64)
    monkeypatch.setattr(tracking, "_is_on_cpu", lambda array: on_cpu)
    run = Trainer(tmp_path)
    before = complete(run.state)
    run.state, changed = EMB.taken(run.state, CHECKPOINTS)
    assert changed() == {}
    run.train(8)
    _, changed = EMB.taken(run.state, CHECKPOINTS)
    after, found = complete(run.state), changed()
    assert len(found["a"].rows) > 3 * tracking.BLOCK_BYTES // 16
    for table, own in found.items():
        assert (np.diff(own.rows) > 0).all()
        for slot, array in own.arrays.items():
            before[table][slot][own.rows] = array
            np.testing.assert_array_equal(before[table][slot], after[table][slot])


def test_a_save_does_not_wait_for_the_removal_of_old_ones(tmp_path, monkeypatch):
    run, real, removed = Trainer(tmp_path, keep=1), folders.remove, []
    began, go = threading.Event(), threading.Event()

    def slow(path, doomed):
        began.set()
        go.wait(20)
        removed.append(real(path, doomed))
        return removed[-1]

    monkeypatch.setattr(folders, "remove", slow)
    for link in (False, True):
        run.train()
        run.save(link, compact_after=1)
    assert began.wait(60)
    run.train()
    run.save()
    assert not removed
    go.set()
    run.checkpoints.wait()
    assert removed == [True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4", "6"]
    run.checkpoints.close()
