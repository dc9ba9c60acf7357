"""First values that the kernel draws are those of the initializers, by table and id."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from sparrow.embedding.dynamic.assigning import put_back, started
from sparrow.embedding.initializers import Constant, Uniform
from sparrow.embedding.stacking import stack_tables
from sparrow.kernels import ids


@pytest.mark.parametrize(("dim", "dtype", "rule"), [(5, "float32", sp.rules.Adam()), (40, "bfloat16", sp.rules.SGD())])
def test_rows_start_as_their_initializer_has_them(dim, dtype, rule):
    values = [None, Constant(0.25), Uniform(-3.0, 2.0)]
    tables = [
        sp.TableSpec(
            name=f"t{i}", vocabulary_size=50, embedding_dim=dim, optimizer=rule, initializer=one, dtype=dtype,
            dynamic=sp.Dynamic(),
        )
        for i, one in enumerate(values)
    ]  # fmt: skip
    (stack,) = stack_tables(tables)
    arrays = {"": jnp.full((150, dim), 7, dtype)}
    for name, _ in stack.step.slots:
        arrays[name] = jnp.full((150, dim), 7, jnp.float32)
    words = np.random.default_rng(0).integers(0, 2**32, (9, 2), np.uint32)
    rows = jnp.array([3, 1, 52, 60, 55, 101, 149, 150, 150], jnp.int32)
    fresh = ids.Changed(rows, jnp.asarray(words), jnp.array([2, 5, 7]))
    made = {
        backend: jax.jit(lambda a, f, backend=backend: started(stack, a, jnp.uint32(11), f, backend))(arrays, fresh)
        for backend in ("cuda", "xla")
    }
    for name, array in made["xla"][0].items():
        np.testing.assert_array_equal(np.asarray(made["cuda"][0][name]), np.asarray(array), err_msg=name)
    assert (made["cuda"][0][""] == 7).all(axis=1).sum() == 143
    for backend, (after, before) in made.items():
        assert all((np.asarray(array)[:7] == 7).all() for array in before.values())
        back = jax.jit(lambda a, b, f, when, backend=backend: put_back(a, b, f, when, backend))
        same = back(after, before, fresh, jnp.array(False))
        jax.tree.map(np.testing.assert_array_equal, same, after)
        jax.tree.map(np.testing.assert_array_equal, back(after, before, fresh, jnp.array(True)), arrays)
