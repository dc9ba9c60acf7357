"""Inputs as other libraries hold them: object arrays, sparse matrices, columns of frames."""

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from jax.experimental import sparse

import sparrow as sp

ROWS = 6
BAGS = [[3, 1], [], [4, 4, 0]]
WEIGHTS = [[0.5, 2.0], [], [1.0, 1.5, 3.0]]


def _embedder(combiner="sum", **options):
    table = sp.TableSpec(
        name="t", vocabulary_size=ROWS, embedding_dim=2, optimizer=sp.rules.SGD(0.1), combiner=combiner
    )
    return sp.Embedder([sp.FeatureSpec(name="f", table_spec=table, **options)])


def _activations(given, combiner="sum"):
    embedder = _embedder(combiner)
    state = embedder.init(jax.random.key(0))
    return np.asarray(embedder.lookup(state, embedder.pack({"f": given}))["f"])


def _objects(bags):
    array = np.empty(len(bags), object)
    array[:] = bags
    return array


@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize(
    "given",
    [
        sp.Ragged.from_lists(BAGS),
        _objects(BAGS),
        _objects([np.array(bag, np.int32) for bag in BAGS]),
        _objects([[3, 1], None, [4, 4, 0]]),
        [[3, 1], None, [4, 4, 0]],
        sp.Ragged.from_coo([[2, 1], [0, 0], [2, 0], [0, 1], [2, 2]], [4, 3, 4, 1, 0], (3, 3)),
        pa.array(BAGS),
    ],
    ids=["from_lists", "object lists", "object arrays", "object None", "list None", "from_coo", "arrow"],
)
def test_bags_in_any_form(given, combiner):
    np.testing.assert_array_equal(_activations(given, combiner), _activations(BAGS, combiner))


def _dense():
    matrix = np.zeros((3, ROWS), np.float32)
    for row, (ids, weights) in enumerate(zip(BAGS, WEIGHTS, strict=True)):
        np.add.at(matrix[row], ids, weights)
    return matrix


@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize(
    "make",
    [
        sparse.BCOO.fromdense,
        lambda m: sparse.BCOO.fromdense(m, nse=20),
        lambda m: sparse.BCOO.fromdense(m, n_batch=1),
        sparse.COO.fromdense,
        sparse.CSR.fromdense,
    ],
    ids=["BCOO", "padded BCOO", "BCOO by example", "COO", "CSR"],
)
def test_sparse_matrices(make, combiner):
    made = make(jnp.asarray(_dense()))
    expected = _activations(sp.Ragged.from_lists(BAGS, WEIGHTS), combiner)
    np.testing.assert_allclose(_activations(made, combiner), expected, rtol=1e-6)


def test_a_matrix_times_the_table():
    embedder = _embedder()
    state = embedder.init(jax.random.key(0))
    acts = embedder.lookup(state, embedder.pack({"f": sparse.BCOO.fromdense(jnp.asarray(_dense()))}))["f"]
    np.testing.assert_allclose(acts, _dense() @ np.asarray(embedder.table(state, "t")), rtol=1e-5)


def test_scipy():
    scipy = pytest.importorskip("scipy.sparse")
    expected = _activations(sp.Ragged.from_lists(BAGS, WEIGHTS))
    for make in (scipy.coo_matrix, scipy.csr_matrix, scipy.csc_array):
        np.testing.assert_allclose(_activations(make(_dense())), expected, rtol=1e-6)


def test_wrong_inputs_get_one_sentence():
    with pytest.raises(ValueError, match=r"a column for each of the 6 rows of the table, got 3 columns.*from_coo"):
        _activations(sparse.BCOO.fromdense(jnp.ones((2, 3))))
    with pytest.raises(ValueError, match="2 bags need as many lists of weights, got 1"):
        sp.Ragged.from_lists([[1], [2]], [[1.0]])
    with pytest.raises(ValueError, match=r"bag 1 has 1 ids and weights of shape \(2,\)"):
        sp.Ragged.from_lists([[1], [2]], [[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="outside 0 to 1"):
        sp.Ragged.from_coo([[2, 0]], [1], (2, 1))
    with pytest.raises(TypeError, match="ids must be integers"):
        _activations(_objects([["a"], ["b", "c"]]))
    with pytest.raises(TypeError, match="either ids or lists of ids, not both"):
        _activations(_objects([[1], 2]))


def test_object_array_of_ids():
    np.testing.assert_array_equal(_activations(np.array([3, 1], object)), _activations([3, 1]))
    np.testing.assert_array_equal(_activations(np.array([3, None], object)), _activations([[3], []]))


def test_columns_of_frames():
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    for column in (polars.Series(BAGS), pandas.Series(BAGS)):
        np.testing.assert_array_equal(_activations(column), _activations(BAGS))
    for column in (polars.Series([3, 1]), pandas.Series([3, 1])):
        np.testing.assert_array_equal(_activations(column), _activations([3, 1]))


def test_ragged_batches_of_a_capacity_stack_for_scan():
    embedder = _embedder("mean")
    state = embedder.init(jax.random.key(0))
    batches = [[[3, 1], [], [4]], [[0], [1, 2, 5, 5], [2]], [[], [], []]]
    packed = [embedder.pack({"f": bags}, capacity=8) for bags in batches]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *packed)

    def step(state, batch):
        acts = embedder.lookup(state, batch)
        return embedder.update(state, batch, jax.tree.map(jnp.ones_like, acts)), acts["f"]

    scanned, acts = jax.jit(lambda state: jax.lax.scan(step, state, stacked))(state)
    for i, batch in enumerate(packed):
        state, own = step(state, batch)
        np.testing.assert_allclose(acts[i], own, rtol=1e-6)
    np.testing.assert_allclose(embedder.table(scanned, "t"), embedder.table(state, "t"), rtol=1e-6)
    with pytest.raises(ValueError, match="capacity"):
        embedder.pack({"f": [[0] * 9]}, capacity=8)


def test_lengths_make_the_bags():
    bags = sp.Ragged.from_lengths(np.concatenate(BAGS).astype(int), [2, 0, 3], np.concatenate(WEIGHTS))
    assert bags.to_lists() == BAGS
    np.testing.assert_array_equal(_activations(bags, "mean"), _activations(sp.Ragged.from_lists(BAGS, WEIGHTS), "mean"))
    assert sp.Ragged.from_lengths([], []).to_lists() == []
    assert sp.Ragged.from_lengths([], [0, 0]).to_lists() == [[], []]


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([2, 2], "lengths add up to 4, but there are 3 values"),
        ([4, -1], "lengths must be at least 0, got -1"),
        ([1.5, 1.5], "lengths must be integers, got float64"),
        ([[2, 1]], "lengths must be 1-D, got 2-D"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        sp.Ragged.from_lengths([3, 1, 4], lengths)


def test_offsets_of_torch_make_the_bags():
    values, weights = np.concatenate(BAGS).astype(int), np.concatenate(WEIGHTS)
    assert sp.Ragged.from_offsets(values, [0, 2, 2]).to_lists() == BAGS
    with_last = sp.Ragged.from_offsets(values, [0, 2, 2, 5], weights, include_last_offset=True)
    assert with_last.to_lists() == BAGS
    expected = _activations(sp.Ragged.from_lists(BAGS, WEIGHTS), "mean")
    np.testing.assert_array_equal(_activations(with_last, "mean"), expected)
    np.testing.assert_array_equal(_activations(sp.Ragged.from_offsets(values, [0, 2, 2], weights), "mean"), expected)
    assert sp.Ragged.from_offsets([7], [0, 1]).to_lists() == [[7], []]
    assert sp.Ragged.from_offsets([], []).to_lists() == []
    assert sp.Ragged.from_offsets([], [0, 0]).to_lists() == [[], []]


@pytest.mark.parametrize(
    ("offsets", "with_last", "sentence"),
    [
        ([1, 2], False, "offsets must begin with 0"),
        ([0, 2, 1], False, "never decrease"),
        ([0, 4], False, "at most the number of values, 3"),
        ([], False, "offsets must begin with 0"),
        ([0, 2], True, "end with the number of values, 3, got 2"),
        ([], True, "end with the number of values, 3, got none"),
        ([0.0, 2.0], False, "offsets must be integers, got float64"),
    ],
)
def test_offsets_that_do_not_fit_are_refused(offsets, with_last, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        sp.Ragged.from_offsets([3, 1, 4], offsets, include_last_offset=with_last)


@pytest.mark.parametrize("form", [np.array, jnp.array])
def test_a_tuple_of_values_and_open_offsets_is_refused(form):
    with pytest.raises(TypeError, match=r"sp\.Ragged\.from_offsets\(values, offsets\)"):
        _embedder().pack({"f": (form([3, 1, 4]), form([0, 2]))})


@pytest.mark.parametrize("form", [list, np.array, jnp.array])
def test_a_tuple_of_values_and_offsets_is_refused(form):
    with pytest.raises(TypeError, match=r"feature 'f': a tuple of values and offsets .* sp\.Ragged\(values, offsets\)"):
        _embedder().pack({"f": (form([3, 1, 4]), form([0, 2, 2, 3]))})


def test_a_tuple_of_bags_is_a_batch():
    np.testing.assert_array_equal(_activations(([3, 1], [4, 4, 0])), _activations([[3, 1], [4, 4, 0]]))


def test_features_may_have_batches_of_different_sizes():
    table = sp.TableSpec(name="t", vocabulary_size=ROWS, embedding_dim=2, optimizer=sp.rules.SGD(0.1))
    embedder = sp.Embedder([sp.FeatureSpec(name=name, table_spec=table) for name in ("user", "item")])
    acts = embedder.lookup(embedder.init(jax.random.key(0)), embedder.pack({"user": [1], "item": [2, 3, 4]}))
    assert acts["user"].shape == (1, 2)
    assert acts["item"].shape == (3, 2)


class SparseTensor:
    """As TensorFlow's: entries are ids."""

    def __init__(self, indices, values, dense_shape):
        self.indices, self.values, self.dense_shape = indices, values, dense_shape


class RaggedTensor:
    def __init__(self, values, row_splits):
        self.values, self.row_splits = values, row_splits


def test_tensors_of_tensorflow_are_answered_with_what_to_write():
    sparse = SparseTensor([[0, 0], [0, 1], [2, 0]], [3, 1, 4], (3, 2))
    with pytest.raises(TypeError, match=r"a SparseTensor is not read as it is; write sp\.Ragged\.from_coo\("):
        _activations(sparse)
    ragged = RaggedTensor(np.array([3, 1, 4]), np.array([0, 2, 2, 3]))
    with pytest.raises(TypeError, match=r"a RaggedTensor is not read as it is; write sp\.Ragged\(tensor\.values"):
        _activations(ragged)
    expected = _activations([[3, 1], [], [4]])
    np.testing.assert_array_equal(_activations(sp.Ragged.from_coo(**vars(sparse))), expected)
    np.testing.assert_array_equal(_activations(sp.Ragged(ragged.values, ragged.row_splits)), expected)


def test_options_of_sparsecore_are_answered():
    with pytest.raises(
        TypeError, match="pack has no argument 'allow_id_dropping': leave it out, no id is ever dropped"
    ):
        _embedder("sum").pack({"f": [1]}, allow_id_dropping=True)
    with pytest.raises(TypeError, match="no argument 'quantization_config': lookups are not quantized, because"):
        sp.TableSpec(
            name="t", vocabulary_size=4, embedding_dim=2, optimizer=sp.rules.SGD(0.1), quantization_config=(0, 1, 8)
        )
    with pytest.raises(TypeError, match="no argument 'stack_name': leave it out, tables of one dim"):
        sp.TableSpec(name="t", vocabulary_size=4, embedding_dim=2, optimizer=sp.rules.SGD(0.1), stack_name="s")
