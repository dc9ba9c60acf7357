"""Plans: sizes are those of what is allocated, a run uses as much as was planned, and nothing is allocated to plan."""

import json
import subprocess
import sys
import types

import jax
import pytest

from sparrow import config, rules, runs
from sparrow.cli import main
from sparrow.embedding import TableSpec
from sparrow.planning import plan, sizes
from sparrow.planning.advice import advice, lines_that_fit
from sparrow.planning.sizes import Movement, TableMovement, TableSize, size_of, step_memory, table_sizes
from tests.conftest import AS_USERS, AVAILABLE
from tests.runs.cases import IDS, NAMES, case

ROWS = (1_500_000, 500_000, 300_000)
LARGE = [
    "train.steps=4",
    "train.batch_size=4096",
    "train.log_every_steps=2",
    "data.train.impressions=20000",
    "data.evaluate=null",
    *(f"data.features[{i}].num_buckets={rows}" for i, rows in enumerate(ROWS)),
    *(f"data.features[{i}].embedding_dim=24" for i in range(len(ROWS))),
]

# Trains, and tells the peak of the process's resident set and the arrays that are alive at the end.
TRAIN = """
import io, json, sys
from sparrow.cli import entry  # imports as the command line has them

entry.collect_next_to_nothing()
import jax
from sparrow import config, runs

entry.collect_seldom()
from sparrow.runs.parts.reporting import status_bytes
trained = runs.train(config.load(sys.argv[1]), stream=io.StringIO())
alive = sum(array.nbytes for array in jax.live_arrays())
print(json.dumps({"peak": status_bytes("VmHWM"), "now": status_bytes("VmRSS"), "alive": alive}))
"""


def output_of(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=AS_USERS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="compares with the memory of the process")
def test_a_run_uses_what_was_planned(tmp_path):
    """460 MB of tables and slots; "used" is the largest resident set of the process, libraries and all."""
    file = tmp_path / "large.yaml"
    file.write_text(config.dumps(case(*LARGE)))
    planned = output_of("-m", "sparrow.cli", "plan", str(file), "--json")
    used = output_of("-c", TRAIN, str(file))
    assert planned["held"] > 440e6
    assert used["peak"] == pytest.approx(planned["host"], rel=0.05)
    assert used["alive"] == pytest.approx(planned["held"], rel=0.01)
    # Once the first values are drawn, it needs less: the state and what the process itself takes.
    assert used["now"] == pytest.approx(planned["process"] + planned["training"], rel=0.05)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["train.sparse_optimizer={name: partial_rowwise_adam, learning_rate: 0.1}", "train.ema=0.9"],
        [f"train.table_optimizers=[{{tables: [{NAMES[0]}], optimizer: {{name: sgd, learning_rate: 0}}}}]"],
    ],
    ids=["adagrad", "partial rowwise adam, average", "a frozen table"],
)
def test_sizes_are_those_of_what_is_allocated(overrides):
    program = runs.Program.of(case(*overrides))
    shapes, state = jax.eval_shape(program.init), program.init()
    embedding = state.optimizer.embedding
    assert size_of(shapes) == sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    sizes = {table.name: table for table in table_sizes(program.embedder, shapes.optimizer.embedding)}
    assert set(sizes) == set(program.embedder.tables)
    for name, planned in sizes.items():
        slots = program.embedder.slots(embedding, name)
        assert planned.values == program.embedder.table(embedding, name).nbytes
        assert planned.slots == {slot: array.nbytes for slot, array in slots.items()}
        assert planned.rows == IDS
    assert sum(table.total for table in sizes.values()) == size_of((embedding.tables, embedding.slots))


def test_a_table_that_fits_nowhere_is_planned_all_the_same(tmp_path, capsys, monkeypatch):
    """Nothing is allocated: terabytes are planned as quickly as megabytes."""
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "huge.yaml"
    options = ["data.features[0].num_buckets=1500000000", "data.features[0].embedding_dim=128", "data.evaluate=null"]
    options += ["train.sparse_optimizer.name=adam", "data.features[1].embedding_dim=128"]
    file.write_text(config.dumps(case(*options, "data.features[2].embedding_dim=128")))
    assert main(["plan", str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1,500,000,000 x 128 float32" in shown
    assert "2.32 TB" in shown  # rows, and two slots as large
    assert "does not fit" in shown
    assert "PartialRowwiseAdam in place of Adam would save" in shown
    assert main(["plan", str(file), "train.batch_siz=1"]) == 2
    assert "did you mean 'batch_size'" in capsys.readouterr().err
    assert main(["plan", str(file), "data.train={name: parquet, path: nowhere.parquet}"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.skipif("native" not in AVAILABLE, reason="needs the kernels that work in place")
@pytest.mark.parametrize(("pipeline", "is_small"), [("exact", True), ("stale", False)])
def test_the_work_space_of_a_step_is_that_of_its_size(pipeline, is_small, monkeypatch):
    """Where small tables have the same one, the step is not compiled again in its size."""
    buckets = [f"data.features[{i}].num_buckets=50000" for i in range(3)]
    settings = case(f"train.pipeline={pipeline}", "train.sparse_optimizer.name=adam", "data.evaluate=null", *buckets)
    program, batches = runs.Program.of(settings), config.train_pipeline(settings)
    batches.prepare = program.preparer(use="train")
    feeds, state = (next(iter(batches)).feed,), jax.eval_shape(program.init)
    in_its_size = step_memory(program, state, feeds)
    compiled = []
    monkeypatch.setattr(sizes, "step_memory", lambda *_: compiled.append(1) or in_its_size)
    made = sizes.Rehearsal(program, state)
    made.train(feeds)
    assert made.work == in_its_size
    assert (not compiled) == is_small


@pytest.fixture(scope="module")
def made():
    return plan(case("train.accumulate=2", "data.evaluate=null"))


def test_movement_is_counted_on_the_data(made):
    """Each of the tables is looked up once per example, by 20 different ids at most."""
    table = made.moved.tables[NAMES[0]]
    assert (table.lookups, table.touched, table.row, table.slots) == (512, IDS, 16, (16,))
    assert table.scattered == 512 * 16 + 2 * IDS * (16 + 16)
    acts = 2 * 256 * 4 * 4 * sum(4 + 1 for _ in NAMES)  # written and read, gradients too; a wide table has one column
    dense = size_of(jax.eval_shape(runs.Program.of(case()).init).optimizer.params)
    assert made.moved.ordered > acts + 2 * 3 * dense  # Adam keeps two moments
    assert made.moved.ordered < acts + 2 * 3 * dense + 100_000  # the rest is the batch
    assert 0 < made.seconds < 1
    assert made.machine.copy_rate > 1e8
    assert set(made.machine.row_seconds) == {4, 16}


def table(name, rule, rows=1000, **options):
    return TableSpec(name=name, vocabulary_size=rows, embedding_dim=16, optimizer=rule, **options)


def test_advice_saves_what_it_says():
    specs = [table("a", rules.Adagrad(0.1)), table("b", rules.Adam(0.1)), table("c", rules.RowwiseAdagrad(0.1))]
    moved = Movement({spec.name: TableMovement(10, 5, 64, ()) for spec in specs}, 0)
    total = 1000 * 4 * (2 * 16 + 3 * 16 + 17)
    said = advice(specs, total, moved, steps=None)
    assert [line.split(" would")[0] for line in said] == [
        "tables in bfloat16",
        "RowwiseAdagrad in place of Adagrad",
        "PartialRowwiseAdam in place of Adam",
    ]
    assert "save 96 kB (3 tables" in said[0]
    assert "save 60 kB (table 'a')" in said[1]
    assert "'b' and 2 more tables have more rows than the run makes lookups" in advice(specs, total, moved, steps=7)[0]
    assert advice([table("f", rules.SGD(0.1), dtype="bfloat16")], 32_000, moved, None) == []
    assert not any("rows than" in line for line in advice(specs, total, moved, steps=500))


def test_what_fits_is_said_by_place(made):
    small = types.SimpleNamespace(name="host", total=10**6, free=10**6)
    tight = type(made)(**{**vars(made), "machine": types.SimpleNamespace(**{**vars(made.machine), "host": small})})
    assert "fits" in made.fits()[-1]
    assert "does not fit" in tight.fits()[-1]


def test_tables_that_do_not_fit_get_lines_for_the_config():
    sizes = [TableSize(name, name, 1000, 4, "float32", "SGD", total, {}) for name, total in [("a", 500), ("b", 9000)]]
    lines = lines_that_fit(sizes, 12_000, 8_000)
    assert lines[3:] == ["    - tables: [b]", "      memory: {kind: host, cache: 0.46}"]
    assert lines_that_fit(sizes, 100_000, 8_000) == []
