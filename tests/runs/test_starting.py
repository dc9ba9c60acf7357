"""Weights of another run: by name, renamed, in part, in another dtype, stacking or backend."""

import io

import jax
import pytest

import sparrow as sp
from sparrow import runs
from sparrow.checkpoint import Checkpoints, Key, Saved, placed, rows_of
from sparrow.config import ConfigError
from sparrow.data import DataError
from sparrow.runs.saved.restoring import log_dtypes
from sparrow.runs.saved.starting import started
from tests.runs.cases import IDS, NAMES, case
from tests.runs.test_training import assert_same_bits

MODEL = {
    "architecture": {"name": "deepfm", "deep": {"hidden_units": [8]}},
    "groups": {"wide": NAMES, "deep": NAMES},
}


def quiet(config, folder=None, **options):
    return runs.train(config, folder, stream=io.StringIO(), **options)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run of four steps, with adagrad."""
    folder = tmp_path_factory.mktemp("first")
    return folder, quiet(case("train.steps=4"), folder)


def start(folder, *overrides, **fields):
    given = ", ".join(f"{name}: {value}" for name, value in {"folder": folder, **fields}.items())
    return case("train.steps=1", f"train.start_from={{{given}}}", *overrides)


def first_state(config):
    """Before the first step: what `start_from` gives."""
    program, lines = runs.Program.of(config), []
    return program, started(program, config.train.start_from, lines.append), lines


def test_weights_but_no_optimizer(first):
    folder, trained = first
    config = start(folder, "train.sparse_optimizer={name: adam, learning_rate: 0.1}")
    program, state, (line,) = first_state(config)
    before, old = trained.state.optimizer, trained.program.embedder
    for table in old.tables:
        assert_same_bits(old.table(before.embedding, table), program.embedder.table(state.optimizer.embedding, table))
    assert_same_bits(before.params, state.optimizer.params)
    fresh = program.init()
    assert_same_bits(fresh.optimizer.embedding.slots, state.optimizer.embedding.slots)
    assert_same_bits(fresh.optimizer.dense, state.optimizer.dense)
    assert int(state.optimizer.step) == 0
    assert "6 tables and" in line
    assert line.endswith("left fresh: the optimizer")
    assert quiet(config).steps == 1


def test_with_the_optimizer(first):
    """Everything, and then one more step is the fifth of the other run, on the first batch."""
    folder, trained = first
    _, state, _ = first_state(start(folder, optimizer="true"))
    assert_same_bits(trained.state.optimizer, state.optimizer)


def test_other_names_and_what_stays_fresh(first):
    folder, trained = first
    features = [{"kind": "id", "name": name, "num_buckets": IDS, "embedding_dim": 4} for name in (*NAMES[1:], "new")]
    names = [*NAMES[1:], "new"]
    config = case(
        "train.steps=1",
        f"train.start_from={{folder: {folder}, tables: {{new: id_0}}, skip: [new_wide, deep/.*]}}",
        data={"train": {"name": "clicks", "impressions": 512, "fields": 3, "ids": IDS}, "features": features},
        model={"architecture": MODEL["architecture"], "groups": {"wide": names, "deep": names}},
    )
    program, state, (line,) = first_state(config)
    embedder, old = program.embedder, trained.program.embedder
    embedding, before = state.optimizer.embedding, trained.state.optimizer.embedding
    assert_same_bits(embedder.table(embedding, "new"), old.table(before, "id_0"))
    assert_same_bits(embedder.table(embedding, "id_1_wide"), old.table(before, "id_1_wide"))
    fresh = program.init().optimizer
    assert_same_bits(embedder.table(embedding, "new_wide"), embedder.table(fresh.embedding, "new_wide"))
    assert "left fresh: table 'new_wide', deep/" in line


@pytest.mark.parametrize(
    ("fields", "overrides", "message"),
    [
        ({"tables": "{id_9: id_0}"}, [], "train.start_from.tables: the model has no table 'id_9': did you mean"),
        ({"tables": "{id_0: id_7}"}, [], "the checkpoint has no table 'id_7' for table 'id_0': did you mean"),
        ({"skip": "[id_9.*]"}, [], "train.start_from.skip: 'id_9.*' matches nothing; there are"),
        ({"params": "{tower.*: deep}"}, [], "train.start_from.params: 'tower.*' matches nothing"),
        ({"params": "{'[': deep}"}, [], "params: '[' is not a regular expression"),
        ({}, ["model.architecture.deep.hidden_units=[9]"], "has the shape"),
        ({"optimizer": "true"}, ["train.sparse_optimizer={name: adam, learning_rate: 1}"], "the rule is another one"),
        ({"step": 3}, [], "step 3 is not saved; the saved steps are 4"),
        ({"step": "best"}, [], "no best step is known"),
    ],
)
def test_what_does_not_fit(first, fields, overrides, message):
    with pytest.raises((ConfigError, DataError)) as error:
        first_state(start(first[0], *overrides, **fields))
    assert message in str(error.value)


def test_another_stacking_dtype_and_backend(tmp_path):
    """Two tables in one stack, and each in its own; sizes that fill no block."""

    def tables(second_dtype="float32"):
        rule = sp.rules.Adagrad(0.1)
        one = sp.TableSpec(name="a/b", vocabulary_size=1000, embedding_dim=3, optimizer=rule)
        two = sp.TableSpec(name="..", vocabulary_size=77, embedding_dim=3, optimizer=rule, dtype=second_dtype)
        return [sp.FeatureSpec(name=spec.name, table_spec=spec) for spec in (one, two)]

    together, apart = sp.Embedder(tables()), sp.Embedder(tables("bfloat16"), backend="xla")
    assert (len(together.stacks), len(apart.stacks)) == (1, 2)
    state = together.init(jax.random.key(1))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, rows_of(together, state), {}, {})
    checkpoints.close()
    saved = Saved(tmp_path / "1")
    other = placed(apart, apart.init(jax.random.key(2)), [Key("a/b"), Key(".."), Key("..", "accumulator")], saved.rows)
    assert_same_bits(together.table(state, "a/b"), apart.table(other, "a/b"))
    assert_same_bits(together.table(state, "..").astype("bfloat16"), apart.table(other, ".."))
    lines = []
    log_dtypes({key: str(rows.array.dtype) for key, rows in rows_of(apart, other).items()}, saved, lines.append)
    assert lines == ["tables saved as float32 are bfloat16 here, and were converted: .."]
    again = placed(together, together.init(jax.random.key(3)), list(saved.tables), saved.rows)
    assert_same_bits(state.tables, again.tables)
    assert_same_bits(state.slots, again.slots)


def test_more_numbered_ids(first):
    folder, trained = first
    more = start(folder, "data.features[0].num_buckets=" + str(IDS + 3))
    program, state, lines = first_state(more)
    before, old = trained.state.optimizer, trained.program.embedder
    table = program.embedder.table(state.optimizer.embedding, NAMES[0])
    fresh = program.embedder.table(program.init().optimizer.embedding, NAMES[0])
    assert_same_bits(table[:IDS], old.table(before.embedding, NAMES[0]))
    assert_same_bits(table[IDS:], fresh[IDS:])
    assert f"table '{NAMES[0]}': {IDS} rows are of known ids, 3 start fresh" in lines
