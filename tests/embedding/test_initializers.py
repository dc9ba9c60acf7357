"""The values that tables start from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp


@pytest.mark.slow
def test_a_large_table_is_drawn_in_little_memory():
    table = sp.TableSpec(name="t", vocabulary_size=4_300_000, embedding_dim=16, optimizer=sp.rules.SGD(0.1))
    compiled = jax.jit(table.initial_values).lower(jax.random.key(0)).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 0.6 * memory.output_size_in_bytes  # in one piece: three times the table
    values = np.asarray(compiled(jax.random.key(0)))
    limit = 4_300_000**-0.5
    assert values.shape == (4_300_000, 16)
    assert np.abs(values).max() <= limit
    assert np.abs(values.mean()) < 1e-3 * limit
    np.testing.assert_allclose(values.std(), limit / 3**0.5, rtol=1e-3)
    blocks = values[: 8 << 18].reshape(8, -1)
    assert len(np.unique(blocks[:, :4], axis=0)) == 8  # no block is like another
    assert (values[-1] != 0).all()


def test_an_initializer_of_ones_own_is_called_once_for_the_whole_table():
    shapes = []

    def rows_by_number(key, shape, dtype):
        shapes.append(shape)
        return jnp.broadcast_to(jnp.arange(shape[0], dtype=dtype)[:, None], shape)

    table = sp.TableSpec(
        name="t", vocabulary_size=4_300_000, embedding_dim=16, optimizer=sp.rules.SGD(0.1), initializer=rows_by_number
    )
    values = np.asarray(table.initial_values(jax.random.key(0)))
    assert shapes == [(4_300_000, 16)]
    assert (values[:, 3] == np.arange(4_300_000)).all()
