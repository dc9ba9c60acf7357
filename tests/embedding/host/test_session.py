"""Sessions: streams that end early, tables that are read and replaced, dynamic tables, and mistakes."""

import itertools
import subprocess
import sys

import jax
import numpy as np
import pytest

import sparrow as sp
from tests.embedding.host.loops import ROWS, batches, differing, features, on_device, step_of

RULE = sp.rules.Adagrad(0.05)


def begun(cache=0.2, **options):
    emb = sp.Embedder(features(RULE, sp.HostMemory(cache=cache)))
    session = emb.session(**options)
    return emb, session, session.init(jax.random.key(0)), step_of(emb)


def held(session, state):
    return {name: (session.table(state, name), session.slots(state, name)) for name in session.embedder.tables}


def test_a_stream_that_is_left_early_and_one_that_continues():
    given = list(batches(ROWS, 20, 16))
    emb, session, state, step = begun()
    stream = session.stream(given, sizes=sp.Sizes())
    for staged in itertools.islice(stream, 8):
        state = session.advance(state, staged)
        state, _ = step(state, list(staged.batches), list(staged.others))
    stream.close()
    with pytest.raises(ValueError, match=r"the last stream was not used up: call session\.restart"):
        session.stream(given)
    state = session.restart(state)
    evaluated, packed = session.reading(state, given[0][0])
    assert emb.lookup(evaluated, packed)["bag"].shape == (16, 4)
    table, slots = session.table(state, "t1"), session.slots(state, "t1")
    state = session.replace(state, "t1", np.zeros_like(table))
    state = session.replace(state, "t1", table, slots)  # back, as from a checkpoint
    for staged in session.stream(given[8:], sizes=sp.Sizes()):
        state = session.advance(state, staged)
        state, _ = step(state, list(staged.batches), list(staged.others))
    assert differing(on_device(features(RULE), given)[0], held(session, state)) == 0
    session.close()


def test_reading_gives_the_activations_of_the_device():
    given = list(batches(ROWS, 6, 16))
    emb, session, state, step = begun()
    for staged in session.stream(given[:5]):
        state = session.advance(state, staged)
        state, _ = step(state, list(staged.batches), list(staged.others))
    reading, packed = session.reading(state, given[5][0])
    plain = sp.Embedder(features(RULE))
    whole = plain.init(jax.random.key(0))
    for name in plain.tables:
        whole = plain.with_table(whole, name, session.table(state, name))
    expected = plain.lookup(whole, plain.pack(given[5][0]))
    for name, acts in emb.lookup(reading, packed).items():
        np.testing.assert_array_equal(acts, expected[name])


def dynamic(memory):
    table = sp.TableSpec(
        name="users", vocabulary_size=64, embedding_dim=4, optimizer=RULE, dynamic=sp.Dynamic(admit=2), memory=memory
    )
    return [sp.FeatureSpec(name="user", table_spec=table)]


def test_dynamic_tables_in_host_memory():
    """An id gets a row, the row a slot; rows that start fresh are made on the device."""
    generator = np.random.default_rng(0)
    given = [({"user": (generator.zipf(1.3, 24) % 400) * 2**40}, None) for _ in range(30)]

    def update(emb):
        return jax.jit(lambda state, batch: emb.update(state, batch, emb.lookup(state, batch)), donate_argnums=0)

    emb = sp.Embedder(dynamic(None))
    words, state, step = emb.vocabularies(), emb.init(jax.random.key(0)), update(emb)
    state = emb.with_table(state, "users", np.zeros((64, 4), np.float32))
    for inputs, _ in given:
        state, batch = emb.admit(state, emb.pack(inputs, vocabularies=words))
        state = step(state, batch)
    expected = np.asarray(emb.table(state, "users")), emb.slots(state, "users")
    emb = sp.Embedder(dynamic(sp.HostMemory(cache=30)))
    words, session, step = emb.vocabularies(), emb.session(), update(emb)
    state = session.replace(session.init(jax.random.key(0)), "users", np.zeros((64, 4), np.float32))
    for staged in session.stream(given, vocabularies=words):
        state = session.advance(state, staged)
        state = step(state, staged.batch)
    total = session.host.total
    assert total.leaving > 20
    assert total.started > 50
    assert total.bytes_in == total.coming * 4 * (4 + 4)  # rows that start fresh are not copied
    assert differing({"users": expected}, held(session, state)) == 0


def test_mistakes():
    emb, session, state, _ = begun(cache=20)
    batch = next(iter(batches(ROWS, 1, 16)))[0]
    with pytest.raises(ValueError, match=r"take batches from emb.session\(\).stream"):
        emb.lookup(state, emb.pack(batch))
    with pytest.raises(ValueError, match=r"table 't0' is in host memory: its session has it"):
        emb.table(state, "t0")
    with pytest.raises(ValueError, match="has the shape"):
        session.replace(state, "t0", np.zeros((3, 4)))
    with pytest.raises(TypeError, match="a session takes the state of its Embedder, or of an Optimizer, got int"):
        session.flush(3)
    many = {"a": np.arange(25), "bag": [[0]] * 25, "b": np.zeros(25, int), "c": np.zeros(25, int)}
    with pytest.raises(ValueError, match="table 't0': one step needs 25 rows on the device, and its cache has 20"):
        list(
            session.stream(
                [({**many, "a": np.arange(25) % 25, "bag": [[0]] * 25, **dict.fromkeys("bc", np.zeros(25, int))}, 0)]
            )
        )
    with pytest.raises(ValueError, match="outside"):
        list(begun()[1].stream([({**batch, "a": np.arange(16) + 10**6}, 0)]))
    for wrong in (np.ones(16), None):
        with pytest.raises((ValueError, TypeError), match="'a'"):
            emb.pack({**batch, "a": wrong})
    with pytest.raises(TypeError, match=r"memory must be a sparrow\.HostMemory or None"):
        features(RULE, memory="host")


def test_capacity_of_one_row():
    table = sp.TableSpec(name="t", vocabulary_size=1, embedding_dim=2, optimizer=RULE, memory=sp.HostMemory(cache=1))
    emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])
    session = emb.session(ahead=0)
    state = session.init(jax.random.key(0))
    for staged in session.stream([({"f": np.zeros(3, int)}, None), ({"f": np.zeros(0, int)}, None)]):
        state = session.advance(state, staged)
        state = emb.update(state, staged.batch, emb.lookup(state, staged.batch))
    assert session.host.total.coming == 1


def test_a_process_that_ends_without_a_word_stores_its_rows_first():
    """A thread that was still storing rows aborted it."""
    code = """
import atexit, time
import jax, numpy as np
import sparrow as sp

made = []
atexit.register(lambda: print(made[0].landed))
table = sp.TableSpec(name="t", vocabulary_size=90, embedding_dim=2, optimizer=sp.rules.SGD(0.1),
                     memory=sp.HostMemory(cache=30))
emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])
session = emb.session(ahead=0, lookahead=0)
state = session.init(jax.random.key(0))
made.append(session.host.writer)
made[0].delay = lambda: time.sleep(0.3)
for step in session.stream(({"f": np.arange(30) + start}, None) for start in (0, 30, 60)):
    state = session.advance(state, step)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout.strip()) == (0, "2"), ended.stderr
