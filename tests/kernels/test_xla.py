"""The reference kernels: ids that are no row read zeros and write nothing."""

import jax.numpy as jnp
import numpy as np

from sparrow.kernels import EntryGradients, Lookups
from sparrow.kernels.xla import lookup, sum_by_row


def test_ids_that_are_no_row():
    table = jnp.arange(8.0).reshape(4, 2) + 1
    ids = jnp.array([0, -1, 4, 2**30, 3], jnp.int32)
    np.testing.assert_array_equal(lookup(table, Lookups(ids, None, None, None, 5))[:, 0], [1, 0, 0, 0, 7])
    rows, grads = sum_by_row(EntryGradients(ids, None, None, jnp.ones((5, 2))), 4)
    assert rows[:2].tolist() == [0, 3]
    assert (rows[2:] >= 4).all()
    assert len(set(rows.tolist())) == 5
    np.testing.assert_array_equal(grads[:2], np.ones((2, 2)))
