"""Stacks: what shares an array, what does not, and that nobody can tell from outside."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from sparrow.rules import SGD, Adagrad, Adam


def table(name, rule, rows=6, dim=3, **changes):
    return sp.TableSpec(name=name, vocabulary_size=rows, embedding_dim=dim, optimizer=rule, **changes)


def embedder(*tables, **options):
    return sp.Embedder([sp.FeatureSpec(name=t.name, table_spec=t) for t in tables], **options)


def test_tables_of_one_kind_share_an_array():
    emb = embedder(
        table("a", Adagrad(0.1)),
        table("b", Adagrad(0.2, initial_accumulator=0.5), rows=9),
        table("c", Adagrad(0.1), dim=4),
        table("d", Adagrad(0.1), dtype="bfloat16"),
        table("e", Adam(0.1)),
        table("f", Adagrad(lambda step: 0.1)),
        table("g", SGD(0.1)),
        table("h", SGD(0.1, momentum=0.9)),
        table("i", SGD(0.1), min_value=-1.0),
    )
    stacks = [[spec.name for spec in stack.tables] for stack in emb.stacks]
    assert stacks == [["a", "b", "f"], ["c"], ["d"], ["e"], ["g"], ["h"], ["i"]]


def test_a_stack_has_at_most_256_dynamic_tables():
    many = [table(f"t{number}", Adagrad(0.1), dynamic=sp.Dynamic()) for number in range(257)]
    emb = embedder(*many, table("plain", Adagrad(0.1)))
    assert sorted(len(stack.tables) for stack in emb.stacks) == [1, 1, 256]


def test_a_table_does_not_depend_on_its_neighbors():
    """Initial values and updates are the same whether a table stands alone or in a stack."""
    first, second = table("first", Adagrad(0.1, initial_accumulator=0.3)), table("second", Adagrad(0.2), rows=11)
    together, alone = embedder(first, second), embedder(second)
    key = jax.random.key(3)
    both, one = together.init(key), alone.init(key)
    np.testing.assert_array_equal(together.table(both, "second"), alone.table(one, "second"))
    grads = jax.random.normal(jax.random.key(4), (4, 3))
    both = together.update(
        both, together.pack({"first": [1, 2, 3, 1], "second": [7, 0, 7, 10]}), {"first": grads, "second": grads}
    )
    one = alone.update(one, alone.pack({"second": [7, 0, 7, 10]}), {"second": grads})
    np.testing.assert_array_equal(together.table(both, "second"), alone.table(one, "second"))
    np.testing.assert_array_equal(
        together.slots(both, "second")["accumulator"], alone.slots(one, "second")["accumulator"]
    )


def test_stochastic_rounding_does_not_depend_on_neighbors_but_on_step_and_seed():
    spec = table("t", SGD(0.01), rows=40, dtype="bfloat16")
    together, alone = embedder(table("other", SGD(0.01), dtype="bfloat16"), spec), embedder(spec)
    grads = jax.random.normal(jax.random.key(0), (40, 3))
    ids = np.arange(40)

    def run(emb, seed, steps=1):
        state = emb.init(jax.random.key(seed))
        state = emb.with_table(state, "t", jnp.ones((40, 3)))
        inputs = {name: ids if name == "t" else [0] * 40 for name in emb.tables}
        for _ in range(steps):
            state = emb.with_table(state, "t", jnp.ones((40, 3)))
            state = emb.update(state, emb.pack(inputs), dict.fromkeys(emb.tables, grads))
        return np.asarray(emb.table(state, "t")).astype(np.float32)

    np.testing.assert_array_equal(run(together, 0), run(alone, 0))
    assert (run(alone, 0) != run(alone, 1)).any()
    assert (run(alone, 0) != run(alone, 0, steps=2)).any()


def test_views_write_and_read_by_name():
    emb = embedder(table("a", Adam(0.1)), table("b", Adam(0.1), rows=4))
    state = emb.init(jax.random.key(0))
    new = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    state = emb.with_table(state, "b", new)
    state = emb.with_slots(state, "b", {"momentum": new + 1})
    np.testing.assert_array_equal(emb.table(state, "b"), new)
    np.testing.assert_array_equal(emb.slots(state, "b")["momentum"], new + 1)
    assert (np.asarray(emb.slots(state, "a")["momentum"]) == 0).all()


def test_limits_clamp_touched_rows_only():
    emb = embedder(table("t", SGD(1.0), min_value=-0.5, max_value=0.25), table("u", SGD(1.0), max_value=2.0))
    start = np.full((6, 3), 3.0, np.float32)
    state = emb.with_table(emb.with_table(emb.init(jax.random.key(0)), "t", start), "u", start)
    grads = {"t": jnp.array([[1.0, 3.0, 9.0]]), "u": jnp.zeros((1, 3))}
    state = emb.update(state, emb.pack({"t": [2], "u": [2]}), grads)
    np.testing.assert_array_equal(emb.table(state, "t")[2], [0.25, 0.0, -0.5])
    np.testing.assert_array_equal(emb.table(state, "t")[1], start[1])
    np.testing.assert_array_equal(emb.table(state, "u")[2], [2.0, 2.0, 2.0])


def test_a_frozen_table_costs_nothing_and_never_changes():
    emb = embedder(table("frozen", Adam(0.0, weight_decay=0.1)), table("moving", Adam(0.1)))
    state = emb.init(jax.random.key(0))
    assert emb.slots(state, "frozen") == {}
    new = emb.update(
        state,
        emb.pack({"frozen": [1], "moving": [1]}),
        {"frozen": jnp.full((1, 3), jnp.nan), "moving": jnp.ones((1, 3))},
    )
    np.testing.assert_array_equal(emb.table(new, "frozen"), emb.table(state, "frozen"))
    assert (np.asarray(emb.table(new, "moving")) != np.asarray(emb.table(state, "moving"))).any()


def test_rules_by_pattern():
    from sparrow.optimizer import with_rules

    features = [sp.FeatureSpec(name=n, table_spec=table(n, SGD(0.1))) for n in ("user", "item_id", "item_shop")]
    changed = with_rules(features, {"item_.*": Adam(0.1), "user": SGD(0.0)})
    assert [f.table_spec.optimizer for f in changed] == [SGD(0.0), Adam(0.1), Adam(0.1)]
    with pytest.raises(ValueError, match="pattern 'item' fully matches none of the names: user, item_id, item_shop"):
        with_rules(features, {"item": Adam(0.1)})
    with pytest.raises(ValueError, match="'item_id' is matched by"):
        with_rules(features, {"item_.*": Adam(0.1), ".*_id": SGD(0.2)})


def test_repr_names_the_backends():
    on_xla = embedder(table("a", SGD(0.1)), backend="xla")
    assert repr(on_xla) == "Embedder(1 features, 1 tables; a: 6x3 on xla)"
    assert on_xla.backend_of("a") == "xla"
