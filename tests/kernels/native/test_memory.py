"""A step does not copy its table, and addresses reach beyond 2**31 elements."""

import re
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import EntryGradients, Lookups, native
from sparrow.rules import Adam
from tests.kernels.native.problems import learning_rate, row_step, scalars, sgd_step

pytestmark = pytest.mark.slow

NUM_ROWS, DIM, BATCH = 5003, 16, 64  # a shape that nothing else in the program has
RULE = Adam()
STEP = row_step(RULE, DIM)


def arguments():
    table = jnp.ones((NUM_ROWS, DIM))
    slots = (jnp.zeros((NUM_ROWS, DIM)), jnp.zeros((NUM_ROWS, DIM)))
    ids = jnp.arange(BATCH, dtype=jnp.int32)
    return table, slots, Lookups(ids, None, None, None, BATCH), scalars(RULE)


def train(table, slots, lookups, numbers):
    """Lookup, a loss, the gradient at the activations, update."""
    activations = native.lookup(table, lookups)
    grads = jax.grad(lambda a: jnp.sum(jnp.tanh(a) ** 2))(activations)
    return native.update(STEP, table, slots, EntryGradients(lookups.ids, None, None, grads), numbers)


def train_scan(table, slots, lookups, numbers):
    def body(state, shift):
        moved = Lookups((lookups.ids + shift) % NUM_ROWS, None, None, None, BATCH)
        return train(*state, moved, numbers), ()

    return jax.lax.scan(body, (table, slots), jnp.arange(5, dtype=jnp.int32))[0]


def train_with_a_dense_model(table, slots, lookups, numbers):
    weights = jnp.eye(DIM) * 0.1
    activations = native.lookup(table, lookups)

    def loss(weights, activations):
        return jnp.mean((jnp.tanh(activations @ weights) @ weights.T - 1.0) ** 2)

    dense, grads = jax.grad(loss, argnums=(0, 1))(weights, activations)
    state = native.update(STEP, table, slots, EntryGradients(lookups.ids, None, None, grads), numbers)
    return state, weights - 0.1 * dense


def table_copies(function):
    text = jax.jit(function, donate_argnums=(0, 1)).lower(*arguments()).compile().as_text()
    assert "sparrow_update" in text
    return re.findall(rf"= f32\[{NUM_ROWS},{DIM}\]\S* (?:copy|copy-start)\(.*", text)


@pytest.mark.parametrize("function", [train, train_scan, train_with_a_dense_model])
def test_the_compiled_step_holds_no_copy_of_a_table(function):
    assert table_copies(function) == []


def test_the_search_for_copies_finds_one():
    """The old table returned beside the new one, which cannot be done in place."""

    def train_and_keep(table, slots, lookups, numbers):
        return train(table, slots, lookups, numbers), table

    assert table_copies(train_and_keep)


def test_the_buffers_stay_where_they_are():
    step = jax.jit(train, donate_argnums=(0, 1))
    table, slots, lookups, numbers = arguments()
    before = [array.unsafe_buffer_pointer() for array in (table, *slots)]
    table, slots = step(table, slots, lookups, numbers)
    assert [array.unsafe_buffer_pointer() for array in (table, *slots)] == before


PEAK = """
    import resource, jax, jax.numpy as jnp
    from sparrow.kernels import Lookups, EntryGradients, native
    from tests.kernels.native.problems import learning_rate, sgd_step

    rows, dim, batch = 1 << 22, 128, 1024        # 2 GB
    step = sgd_step(dim)
    def train(table, lookups, numbers):
        activations = native.lookup(table, lookups)
        grads = EntryGradients(lookups.ids, None, None, activations * 0.5)
        return native.update(step, table, (), grads, numbers)[0]
    def scan(table, lookups, numbers):
        return jax.lax.scan(lambda t, _: (train(t, lookups, numbers), ()), table, length=3)[0]
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20     # GB
    table = jax.jit(lambda: jnp.ones((rows, dim)))().block_until_ready()
    lookups = Lookups(jnp.arange(batch, dtype=jnp.int32) * 4000, None, None, None, batch)
    before = peak()
    for function in (train, train, scan):
        table = jax.jit(function, donate_argnums=0)(table, lookups, learning_rate(1.0)).block_until_ready()
    print(before, peak(), float(table[4000, 0]), float(table[4001, 0]))
"""


def test_peak_memory_over_a_table_of_two_gigabytes():
    run = [sys.executable, "-c", textwrap.dedent(PEAK)]
    before, after, touched, untouched = map(float, subprocess.check_output(run, text=True).split())
    assert before > 2.0
    assert after - before < 0.3  # a copy would be 2
    assert (touched, untouched) == (0.5**5, 1.0)


BEYOND = 2**31 // 2048 + 3, 2048
IDS = np.asarray([0, BEYOND[0] - 1, BEYOND[0] - 2, BEYOND[0]], np.int32)


def test_lookup_beyond_two_to_the_31_elements():
    memory = np.zeros(BEYOND[0] * BEYOND[1] + 16, np.float32)  # 8 GB of promises: pages never written take no memory
    start = -memory.ctypes.data % 64 // 4
    table = memory[start:][: BEYOND[0] * BEYOND[1]].reshape(BEYOND)
    table[-1], table[-2] = 1.0, 2.0
    array = jax.device_put(table)
    assert array.unsafe_buffer_pointer() == table.ctypes.data
    got = np.asarray(native.lookup(array, Lookups(jnp.asarray(IDS), None, None, None, 4)))
    np.testing.assert_array_equal(got, np.repeat([[0.0], [1.0], [2.0], [0.0]], BEYOND[1], axis=1))


def test_update_beyond_two_to_the_31_elements():
    step = sgd_step(BEYOND[1], "bfloat16")
    grads = EntryGradients(jnp.asarray(IDS), None, None, jnp.ones((4, BEYOND[1])))

    def train(table, numbers):
        return native.update(step, table, (), grads, numbers)[0]

    table = jnp.zeros(BEYOND, jnp.bfloat16)  # 4 GB
    table = jax.jit(train, donate_argnums=0)(table, learning_rate(-1.0))
    for row, want in [(0, 1), (1, 0), (BEYOND[0] - 3, 0), (BEYOND[0] - 2, 1), (BEYOND[0] - 1, 1)]:
        np.testing.assert_array_equal(jax.lax.dynamic_index_in_dim(table, row, keepdims=False), want)
