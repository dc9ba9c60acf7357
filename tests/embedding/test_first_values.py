"""Tables of all sizes start from the values of their own key, drawn by a few programs."""

import jax
import numpy as np
import pytest

import sparrow as sp
from sparrow.embedding import initializers
from sparrow.embedding.stacking import stable_hash

SIZES = (1, 3, 8, 127, 129, 1000, 57)
INITIALIZERS = {
    "default": None,
    "normal": initializers.Normal(0.5, 0.1),
    "cut": initializers.Normal(std=0.1, low=-0.1),
    "constant": initializers.Constant(0.25),
    "own": lambda key, shape, dtype: jax.random.normal(key, shape, dtype).cumsum(axis=0),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in INITIALIZERS), ("default", "bfloat16"), ("own", "bfloat16")]
)
def test_values_are_the_table_s_own(name, dtype):
    tables = [
        sp.TableSpec(
            name=f"t{size}",
            vocabulary_size=size,
            embedding_dim=4,
            optimizer=sp.rules.SGD(0.1),
            initializer=INITIALIZERS[name],
            dtype=dtype,
        )
        for size in SIZES
    ]
    embedder = sp.Embedder([sp.FeatureSpec(name=table.name, table_spec=table) for table in tables])
    assert len(embedder.stacks) == 1
    key = jax.random.key(7)
    state = embedder.init(key)
    for table in tables:
        expected = table.initial_values(jax.random.fold_in(key, stable_hash(table.name)))
        np.testing.assert_array_equal(embedder.table(state, table.name), expected, err_msg=table.name)


@pytest.mark.parametrize("name", ["default", "normal", "cut"])
def test_one_program_draws_tables_of_all_sizes(name):
    tables = [
        sp.TableSpec(
            name=f"{i}",
            vocabulary_size=90 * i + 1,
            embedding_dim=4,
            optimizer=sp.rules.SGD(0.1),
            initializer=INITIALIZERS[name],
        )
        for i in range(60)
    ]
    embedder = sp.Embedder([sp.FeatureSpec(name=table.name, table_spec=table) for table in tables])
    programs = (initializers._draw_first, initializers._draw_into)
    before = [program._cache_size() for program in programs]
    embedder.init(jax.random.key(0))
    assert [program._cache_size() - held for program, held in zip(programs, before, strict=True)] == [1, 0]
