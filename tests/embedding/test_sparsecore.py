"""Rules and specs for SparseCores: the lowered programs on a CPU, and specs there and back."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lib import xla_client

import sparrow as sp
from sparrow.embedding import sparsecore
from tests.rule_cases import CASES

DIM = 6  # not a multiple of 8: two places of each row are padding


def table_of(rule, **fields):
    return sp.TableSpec(name="t", vocabulary_size=40, embedding_dim=DIM, optimizer=rule, **fields)


def compiled(text):
    """Return the StableHLO text as a function of arrays, as a device would run it."""
    devices = xla_client.DeviceList((jax.devices("cpu")[0],))
    backend = jax.extend.backend.get_backend("cpu")
    program = backend.compile_and_load(text, devices, xla_client.CompileOptions())

    def call(*arrays):
        results = program.execute_sharded([jnp.asarray(array, jnp.float32) for array in arrays])
        return [np.asarray(one[0]) for one in results.disassemble_into_single_device_arrays()]

    return call


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_lowered_rule_is_its_equation(case):
    """Three steps within 2e-6 of float64; padding keeps its values."""
    table, rng = table_of(case.rule), np.random.default_rng(0)
    run, slots = compiled(sparsecore.lower(table)), sparsecore.row_program(table).step.slots
    row = rng.normal(size=(1, 8)).astype("float32")
    held = [np.full((1, 8), case.rule.slot_init(name), "float32") for name, _ in slots]
    w = row[0, :DIM].astype("float64")
    s = {
        name: float(one[0, 0]) if layout == sp.rules.PER_ROW else one[0, :DIM].astype("float64")
        for one, (name, layout) in zip(held, slots, strict=True)
    }
    for step in range(3):
        grad = rng.normal(size=(1, 8)).astype("float32")
        scalars = [np.full((1, 8), number) for number in sparsecore.scalars(table, step)]
        new, *held = run(grad, row, *held, *scalars)
        np.testing.assert_array_equal(new[0, DIM:], row[0, DIM:])
        w, s = case.equation(w, grad[0, :DIM].astype("float64"), s, step)
        row = new
        np.testing.assert_allclose(row[0, :DIM], w, rtol=2e-6, atol=2e-6)
        for one, (name, layout) in zip(held, slots, strict=True):
            found = one[0, 0] if layout == sp.rules.PER_ROW else one[0, :DIM]
            np.testing.assert_allclose(found, s[name], rtol=2e-6, atol=2e-6)


def test_limits_are_part_of_the_program():
    table = table_of(sp.rules.SGD(1.0), max_value=0.5)
    scalars = [np.full((1, 8), number) for number in sparsecore.scalars(table, 0)]
    (row,) = compiled(sparsecore.lower(table))(np.full((1, 8), -1.0), np.zeros((1, 8)), *scalars)
    np.testing.assert_array_equal(row[0, :DIM], 0.5)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"dtype": "bfloat16"}, "float32"),
        ({"optimizer": sp.rules.SGD(0.1, max_gradient=1.0)}, "max_gradient"),
        ({"optimizer": sp.rules.SGD(0.0)}, "learning rate is 0"),
        ({"dynamic": sp.Dynamic()}, "dynamic"),
        ({"memory": sp.HostMemory(cache=0.5)}, "host memory"),
    ],
)
def test_tables_that_a_sparsecore_cannot_hold(fields, why):
    with pytest.raises(ValueError, match=f"table 't' cannot go to a SparseCore: .*{why}"):
        sparsecore.lower(dataclasses.replace(table_of(sp.rules.SGD(0.1)), **fields))


def test_the_backend_is_refused_by_name():
    feature = sp.FeatureSpec(name="f", table_spec=table_of(sp.rules.SGD(0.1)))
    with pytest.raises(ValueError, match=r"backend 'sparsecore' is not available here: .*TPU.*jax-tpu-embedding"):
        sp.Embedder([feature], backend="sparsecore")


@dataclasses.dataclass
class Spec:
    """Stands in for the library's records where it is not installed: its constructors keep what they are given."""

    def __init__(self, **fields):
        vars(self).update(fields)


class Custom(Spec):
    """Its custom optimizer."""


@pytest.fixture
def library(monkeypatch):
    """The library's specs, or records of the same fields."""
    try:
        yield sparsecore._library()
    except ImportError:
        stand_in = SimpleNamespace(
            TableSpec=type("TableSpec", (Spec,), {}),
            FeatureSpec=type("FeatureSpec", (Spec,), {}),
            CustomOptimizerSpec=Custom,
        )
        monkeypatch.setattr(sparsecore, "_library", lambda: stand_in)
        sparsecore._optimizer_class.cache_clear()
        yield stand_in
        sparsecore._optimizer_class.cache_clear()


def test_specs_there_and_back(library):
    movies = table_of(
        sp.rules.RowwiseAdagrad(0.1), combiner="mean", initializer=sp.embedding.Constant(0.5), max_value=2.0
    )
    users = dataclasses.replace(
        movies, name="u", embedding_dim=16, optimizer=sp.rules.Adam(lambda step: 0.1 / (step + 1))
    )
    features = {
        "movies": [sp.FeatureSpec(name=name, table_spec=movies) for name in ("watched", "movie")],
        "user": sp.FeatureSpec(name="user", table_spec=users),
    }
    emb = sp.Embedder(features)
    sizes = sp.Sizes()
    emb.pack({"movies": [[[1, 2]] * 64, [[3]] * 64], "user": [[5]] * 64}, sizes=sizes)
    specs = sparsecore.to_specs(features, 64, sizes=sizes, cores=4, ids=2)
    watched, user = specs["movies"][0], specs["user"]
    assert watched.table_spec is specs["movies"][1].table_spec
    assert (watched.input_shape, watched.output_shape) == ((64, 2), (64, DIM))
    held = {stack.tables[0].name: sizes.learned.held[stack.name] for stack in emb.stacks}
    assert watched.table_spec.max_ids_per_partition >= held["t"] / 4 >= 64 * 3 / 4
    assert watched.table_spec.max_unique_ids_per_partition == 16  # the rows of one core, 10, in steps of 8
    rates = [float(user.table_spec.optimizer.get_hyperparameters(step)[0]) for step in (0, 1)]
    assert rates == pytest.approx([0.1, 0.05])
    assert hash(watched.table_spec.optimizer) != hash(user.table_spec.optimizer)
    back = sparsecore.from_specs(specs)
    assert back == features


def test_a_sparsecore_optimizer_becomes_its_rule(library):
    """By the names of its fields; the rules themselves are compared with its numbers in tests of rules."""
    for name, (kind, fields) in sparsecore.OWN.items():
        own, names = getattr(library, name, None), sparsecore._fields(fields)
        defaults = {theirs: getattr(kind(), ours) for theirs, ours in names.items()}
        given = own() if own else type(name, (Spec,), {})(learning_rate=0.25, **defaults)
        rule = sparsecore._rule(given)
        assert type(rule) is kind
        assert rule.learning_rate == given.learning_rate
        assert {ours: getattr(rule, ours) for ours in names.values()} == {
            ours: getattr(given, theirs) for theirs, ours in names.items()
        }
        assert kind is not sp.rules.Adagrad or rule.eps == 0


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"combiner": None}, "is ordered"),
        ({"combiner": "mean"}, "combiner is the table's"),
        ({"invalid_ids": "hash"}, "clean the ids"),
    ],
)
def test_features_that_a_sparsecore_does_not_have(library, fields, why):
    with pytest.raises(ValueError, match=why):
        sparsecore.to_specs([sp.FeatureSpec(name="f", table_spec=table_of(sp.rules.SGD(0.1)), **fields)], 8)
