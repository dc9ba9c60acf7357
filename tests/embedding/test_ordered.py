"""Ordered features: rows in order, with where each sequence ends; numbers, gradients, sizes, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from flax import linen as nn
from flax import nnx

import sparrow as sp
from sparrow.kernels.feed import filling

ITEMS = sp.TableSpec(name="items", vocabulary_size=20, embedding_dim=4, optimizer=sp.rules.SGD(0.5), combiner="mean")
SEEN = sp.FeatureSpec(name="seen", table_spec=ITEMS, combiner=None)
POOLED = sp.FeatureSpec(name="pooled", table_spec=ITEMS)
SUMMED = sp.FeatureSpec(name="summed", table_spec=ITEMS, combiner="sum")
ITEM = sp.FeatureSpec(name="item", table_spec=ITEMS)
HISTORIES = [[3, 1, 3], [], [7], [19, 0]]
INPUTS = {"seen": HISTORIES, "pooled": HISTORIES, "summed": HISTORIES, "item": [5, 5, 3, 2]}


@pytest.fixture(scope="module")
def emb():
    return sp.Embedder([SEEN, POOLED, SUMMED, ITEM])


@pytest.fixture(scope="module")
def state(emb):
    return emb.init(jax.random.key(0))


def test_one_table_serves_ordered_and_pooled_features(emb, state):
    batch = emb.pack(INPUTS)
    acts = jax.jit(emb.lookup)(state, batch)
    table = np.asarray(emb.table(state, "items"))
    assert batch.offsets["seen"].tolist() == [0, 3, 3, 4, 6]
    assert acts["seen"].shape == (8, 4)  # a size class
    np.testing.assert_array_equal(acts["seen"][:6], table[[3, 1, 3, 7, 19, 0]])
    np.testing.assert_array_equal(acts["seen"][6:], 0)
    np.testing.assert_allclose(acts["pooled"][0], table[[3, 1, 3]].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(acts["summed"][0], table[[3, 1, 3]].sum(axis=0), rtol=1e-6)


def test_padding_keeps_the_newest_and_marks_the_rest(emb, state):
    batch = emb.pack(INPUTS)
    acts = emb.lookup(state, batch)
    table = np.asarray(emb.table(state, "items"))
    seen = batch.jagged(acts)["seen"]
    assert seen.lengths.tolist() == [3, 0, 1, 2]
    assert seen.segments.tolist() == [0, 0, 0, 2, 3, 3, 4, 4]
    padded = jax.jit(lambda s: s.pad(2))(seen)
    assert padded.lengths.tolist() == [2, 0, 1, 2]
    assert padded.mask.tolist() == [[True, True], [False, False], [True, False], [True, True]]
    zero = np.zeros(4, np.float32)
    expected = [[table[1], table[3]], [zero, zero], [table[7], zero], [table[19], table[0]]]
    np.testing.assert_array_equal(padded.values, expected)


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_the_gradient_of_padding_is_that_of_plain_indexing(length):
    rng = np.random.default_rng(0)
    offsets = jnp.array([0, 3, 3, 4, 6, 6])
    values = jnp.asarray(rng.normal(size=(9, 2)), jnp.float32)
    weights = jnp.asarray(rng.normal(size=(5, length, 2)), jnp.float32)

    def plain(values):
        rows = [values[max(a, b - length) : b] for a, b in zip([0, 3, 3, 4, 6], [3, 3, 4, 6, 6], strict=True)]
        padded = jnp.stack([jnp.pad(row, ((0, length - len(row)), (0, 0))) for row in rows])
        return (padded**2 * weights).sum()

    def by_pad(values):
        return (sp.Jagged(values, offsets).pad(length).values ** 2 * weights).sum()

    np.testing.assert_allclose(by_pad(values), plain(values), rtol=1e-6)
    np.testing.assert_array_equal(jax.jit(jax.grad(by_pad))(values), jax.grad(plain)(values))


def test_padding_of_no_rows_at_all():
    padded, back = jax.vjp(lambda rows: sp.Jagged(rows, jnp.array([0, 0])).pad(3).values, jnp.zeros((0, 2)))
    assert padded.tolist() == [[[0, 0]] * 3]
    assert back(padded)[0].shape == (0, 2)


def test_row_gradients_are_exact(backend):
    """SGD moves each row by the gradient that jax.grad gives for a plain gather from the table."""
    emb = sp.Embedder([SEEN, ITEM], backend=backend)
    state = emb.init(jax.random.key(0))
    batch = emb.pack({"seen": HISTORIES, "item": INPUTS["item"]})
    weights = jax.random.normal(jax.random.key(1), (4, 3, 4))

    def loss(seen, item):
        return ((seen * item[:, None]) ** 2 * weights).sum()

    def of_acts(acts):
        return loss(batch.jagged(acts)["seen"].pad(3).values, acts["item"])

    def of_table(table):
        rows = jnp.array([[3, 1, 3], [20, 20, 20], [7, 20, 20], [19, 0, 20]])
        return loss(table.at[rows].get(mode="fill", fill_value=0), table[jnp.array(INPUTS["item"])])

    new = jax.jit(lambda s: emb.update(s, batch, jax.grad(of_acts)(emb.lookup(s, batch))))(state)
    table = emb.table(state, "items")
    np.testing.assert_allclose(emb.table(new, "items"), table - 0.5 * jax.grad(of_table)(table), rtol=1e-5, atol=1e-6)


def test_both_ways_of_packing_give_the_same_arrays(emb, monkeypatch):
    offsets = np.array([0, 3, 3, 4, 6])
    ragged = sp.Ragged(np.array([3, 1, 3, 7, 19, 0], np.int32), offsets)
    inputs = {"seen": ragged, "pooled": ragged, "summed": ragged, "item": np.array([5, 5, 3, 2], np.int32)}
    sizes = sp.Sizes()
    fast = emb.pack(inputs, sizes=sizes)
    monkeypatch.setattr(filling, "library", lambda: None)
    slow = emb.pack(inputs, sizes=sizes)
    assert jax.tree.structure(fast) == jax.tree.structure(slow)
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "given",
    [
        HISTORIES,
        sp.Ragged([3, 1, 3, 7, 19, 0], [0, 3, 3, 4, 6]),
        pa.array([[3, 1, 3], None, [7], [19, 0]]),
    ],
    ids=["lists", "ragged", "arrow"],
)
def test_every_form_of_input(given):
    emb = sp.Embedder([SEEN])
    batch = emb.pack({"seen": given}, capacity=10)
    assert batch.offsets["seen"].tolist() == [0, 3, 3, 4, 6]
    assert batch.lookups["items"].ids.tolist() == [3, 1, 3, 7, 19, 0, 20, 20, 20, 20]


def test_single_ids_and_bags_of_one_length_need_no_room():
    emb = sp.Embedder([SEEN])
    assert emb.activation_shapes(emb.pack({"seen": [1, 2, 3]})) == {"seen": (3, 4)}
    batch = emb.pack({"seen": np.array([[1, 2], [3, 4], [5, 6]])})
    assert emb.activation_shapes(batch) == {"seen": (6, 4)}
    assert batch.offsets["seen"].tolist() == [0, 2, 4, 6]


def test_sizes_grow_and_do_not_shrink(emb):
    sizes = sp.Sizes()
    first = emb.pack(INPUTS, sizes=sizes)
    fewer = emb.pack({**INPUTS, "seen": [[], [], [], [1]]}, sizes=sizes)
    assert emb.activation_shapes(first) == emb.activation_shapes(fewer)
    assert jax.tree.structure(first) == jax.tree.structure(fewer)
    more = emb.pack({**INPUTS, "seen": [[1] * 50, [], [], [1]]}, sizes=sizes)
    assert emb.activation_shapes(more)["seen"][0] >= 51


def test_capacity_gives_batches_that_scan(emb, state):
    batches = [emb.pack({**INPUTS, "seen": seen}, capacity=12) for seen in (HISTORIES, [[1], [2], [3, 4, 5], []])]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
    _, rows = jax.lax.scan(lambda s, batch: (s, emb.lookup(s, batch)["seen"]), state, stacked)
    assert rows.shape == (2, 12, 4)
    with pytest.raises(ValueError, match="feature 'seen': the batch holds 13 ids, and its capacity is 12"):
        emb.pack({**INPUTS, "seen": [[1] * 13, [], [], []]}, capacity=12)


def test_ignored_ids_keep_their_place():
    feature = sp.FeatureSpec(name="seen", table_spec=ITEMS, combiner=None, invalid_ids="ignore")
    emb = sp.Embedder([feature])
    state = emb.init(jax.random.key(0))
    batch = emb.pack({"seen": [[3, -1, 4], [99]]})
    acts, table = emb.lookup(state, batch)["seen"], emb.table(state, "items")
    np.testing.assert_array_equal(acts[:4], [table[3], jnp.zeros(4), table[4], jnp.zeros(4)])
    new = emb.update(state, batch, {"seen": jnp.ones_like(acts)})
    moved = np.flatnonzero(np.asarray(emb.table(new, "items") != table).any(axis=1))
    assert moved.tolist() == [3, 4]


def test_hashed_ids_go_to_the_rows_of_bags():
    ids = [[2**40 + 7, 5], [-3]]
    ordered = sp.Embedder([sp.FeatureSpec(name="f", table_spec=ITEMS, combiner=None, invalid_ids="hash")])
    bags = sp.Embedder([sp.FeatureSpec(name="f", table_spec=ITEMS, combiner="sum", invalid_ids="hash")])
    a, b = (e.pack({"f": ids}).lookups["items"].ids[:3].tolist() for e in (ordered, bags))
    assert a == b


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (sp.Ragged([1], [0, 1], [0.5]), "keeps its rows in order .* takes no weights"),
        ([[1, 20]], "feature 'seen'.*20"),
        (sp.Ragged([1, 2], [0, 1]), "offsets must run from 0 to the number of ids"),
    ],
)
def test_bad_input_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        sp.Embedder([SEEN]).pack({"seen": given})


def test_bad_combiners_are_refused():
    with pytest.raises(ValueError, match="FeatureSpec 'f': combiner"):
        sp.FeatureSpec(name="f", table_spec=ITEMS, combiner="max")
    with pytest.raises(ValueError, match="TableSpec 'items': combiner"):
        sp.TableSpec(name="items", vocabulary_size=2, embedding_dim=2, optimizer=sp.rules.SGD(0.1), combiner=None)


def last_of(batch, acts):
    """The newest element of each history; zeros for an empty one."""
    padded = batch.jagged(acts)["seen"].pad(1)
    return padded.values[:, 0]


def test_an_nnx_model_trains_on_the_last_element():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.embed = sp.nnx.Embed([SEEN], rngs=rngs)
            self.head = nnx.Linear(4, 1, rngs=rngs)

        def __call__(self, batch):
            return self.head(last_of(batch, self.embed(batch)))[:, 0]

    model = Model(nnx.Rngs(0))
    optimizer = sp.nnx.Optimizer(model, optax.sgd(0.1))
    batch, before = model.embed.pack({"seen": HISTORIES}), model.embed.table("items")

    @nnx.jit
    def step(model, optimizer, batch):
        loss, grads = sp.nnx.value_and_grad(lambda m, b: (m(b) ** 2).mean())(model, batch)
        optimizer.update(model, grads)
        return loss

    losses = [float(step(model, optimizer, batch)) for _ in range(3)]
    assert losses[-1] < losses[0]
    moved = np.flatnonzero(np.asarray(model.embed.table("items") != before).any(axis=1))
    assert moved.tolist() == [0, 3, 7]


def test_a_linen_model_trains_on_the_last_element():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, batch):
            return nn.Dense(1)(last_of(batch, sp.linen.Embed((SEEN,), name="embed")(batch)))[:, 0]

    model = Model()
    batch = sp.Embedder([SEEN]).pack({"seen": HISTORIES})
    state = sp.linen.TrainState.create(model=model, variables=model.init(jax.random.key(0), batch), tx=optax.sgd(0.1))

    @jax.jit
    def step(state, batch):
        def loss_fn(trainable):
            out, seen = model.apply({**state.variables, **trainable}, batch, mutable=["lookups"])
            return (out**2).mean(), seen["lookups"]

        (loss, lookups), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.trainable(batch))
        return state.apply_gradients(grads=grads, lookups=lookups), loss

    losses = []
    for _ in range(3):
        state, loss = step(state, batch)
        losses.append(float(loss))
    assert losses[-1] < losses[0]
