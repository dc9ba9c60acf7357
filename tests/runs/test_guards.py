"""What ends a run before its time: it is said in a line, and the last good state is there."""

import dataclasses
import io
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import runs
from sparrow.config import train_pipeline
from sparrow.runs.step.in_flight import Call, InFlight, Started
from sparrow.runs.step.non_finite import culprit
from sparrow.runs.step.step import History
from tests.runs import victim
from tests.runs.cases import IDS, NAMES, case
from tests.runs.test_training import assert_same_bits

ROWS, BATCH, BAD = 2000, 100, 1250  # the bad row is in batch 13


def written(path, bad):
    """Rows with a number that is fine, but for one row where it is too large for the model."""
    rng = np.random.default_rng(0)
    price = rng.normal(size=ROWS).astype(np.float32)
    price[BAD] = 3e38 if bad else 0
    columns = {name: rng.integers(0, IDS, ROWS) for name in NAMES}
    label = (rng.random(ROWS) < 0.3).astype(np.float32)
    pq.write_table(pa.table({**columns, "price": price, "label": label}), path, row_group_size=500)


def config(path, *overrides):
    features = [{"kind": "id", "name": name, "num_buckets": IDS, "embedding_dim": 4} for name in NAMES]
    return case(
        f"train.batch_size={BATCH}",
        "train.steps=18",
        "train.log_every_steps=20",
        *overrides,
        data={
            "train": {"name": "parquet", "path": str(path)},
            "features": [*features, {"kind": "raw", "name": "price"}],
        },
        model={
            "architecture": {
                "name": "dlrm",
                "dense_mlp": {"hidden_units": [64, 4], "use_bn": True},
                "final": {"hidden_units": [8]},
            },
            "groups": {"sparse": NAMES, "dense": ["price"]},
        },
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "bad.parquet"
    written(path, bad=True)
    return path


def quiet(config, folder=None, **options):
    return runs.train(config, folder, stream=io.StringIO(), **options)


def test_a_loss_that_is_not_finite_stops(data, tmp_path):
    """It is noticed late, steps later; the state is that of the step before all the same, and so is the position."""
    with pytest.raises(runs.NonFinite) as error:
        quiet(config(data), tmp_path / "stopped")
    first, second, last = str(error.value).splitlines()
    assert first.startswith(
        "step 13: the loss is nan; it was computed from batch 13 of the data (epoch 0, from row 200"
    )
    assert second == "inputs, tables and parameters are finite, but the model's output logits is not"
    assert last == "the checkpoint of step 12 is complete; continue from it with --resume"
    good = quiet(config(data, "train.steps=12"))
    _, state = runs.load(tmp_path / "stopped")
    assert_same_bits(good.state, state)
    mended = quiet(config(data, "train.non_finite=skip"), tmp_path / "stopped", resume=True)
    assert (mended.steps, int(mended.state.optimizer.skipped), int(mended.state.optimizer.step)) == (18, 1, 17)
    skipped = quiet(config(data, "train.non_finite=skip"))
    assert_same_bits(mended.state, skipped.state)
    assert all(np.isfinite(leaf).all() for leaf in [*mended.state.optimizer.embedding.tables.values()])


@pytest.mark.parametrize("bad", range(12))
def test_the_first_bad_step_is_found_among_steps_that_are_checked_together(bad):
    """Calls of one step and of several; the flag stays false from the bad step on, and its loss is that step's own."""
    queue, first, found = InFlight(), 0, None
    for size in (1, 1, 3, 1, 5, 1):
        steps = tuple(Started(number, (), {}, 0) for number in range(first, first + size))
        losses, go = (np.array([step.step for step in steps], dtype) for dtype in (np.float32, np.int32))
        history = History(jnp.asarray(losses), jnp.asarray(go < bad))
        if size == 1:
            history = History(history.loss[0], history.go[0])
        found = found or queue.add(Call(steps, history))
        first += size
    found = found or queue.settle()
    assert (found.step, found.loss) == (bad, bad)
    assert queue.is_empty
    assert queue.settle() is None


def test_what_carried_it(data):
    """Inputs, labels, rows of tables and parameters are found by name."""
    program = runs.Program.of(config(data))
    feed = next(iter(train_pipeline(program.config, program.preparer()))).feed
    state = program.init()
    position = {"epoch": 2, "chunk": 1, "row": 5, "batches": 41}

    def said(feed, state=state):
        first, *others = culprit(program, state, Started(50, (feed,), position, 2)).splitlines()
        expected = (
            "step 50: the loss is nan; it was computed from batch 42 of the data (epoch 2, from row 5 of chunk 1)"
        )
        assert first == expected
        return others

    def spoilt(array, *rows):
        return jnp.asarray(array).at[jnp.array(rows)].set(jnp.nan)

    bad = feed.with_parts(numbers={"price": spoilt(feed.numbers["price"], 3, 5)})
    assert said(bad) == ["dense feature 'price' is not finite in 2 rows of 100 (3, 5)"]
    bad = feed.with_parts(columns={"label": spoilt(feed.columns["label"], 7)})
    assert said(bad) == ["column 'label' is not finite in 1 row of 100 (7)"]

    embedder, embedding = program.embedder, state.optimizer.embedding
    with_nan = embedder.with_table(embedding, "id_1", spoilt(embedder.table(embedding, "id_1"), *range(IDS)))
    (line,) = said(feed, with_optimizer(state, embedding=with_nan))
    assert line.startswith(
        "feature 'id_1' is not finite in 100 rows of 100 (0, 1, 2, ...): table 'id_1' is not finite in 20"
    )

    params = jax.tree.map(lambda leaf: leaf, state.optimizer.params)
    leaf = jax.tree_util.tree_leaves_with_path(params)[0]
    name = jax.tree_util.keystr(leaf[0], simple=True, separator="/")
    broken = jax.tree_util.tree_map_with_path(lambda path, x: x * jnp.nan if path == leaf[0] else x, params)
    assert said(feed, with_optimizer(state, params=broken)) == [f"parameter {name} is not finite"]


def with_optimizer(state, **fields):
    return dataclasses.replace(state, optimizer=dataclasses.replace(state.optimizer, **fields))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 600 kB where one may be mounted; else a limit to the size of files."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    if shutil.which("mount") and not subprocess.run(mount, capture_output=True, check=False).returncode:
        yield folder, None
        subprocess.run(["umount", "-l", str(folder)], check=True)
    else:
        yield folder, 40_000


@pytest.mark.slow
def test_a_full_disk(small_disk, tmp_path):
    """One line, exit code 1, nothing half-written left; the last whole checkpoint goes on where there is room."""
    folder, limit = small_disk
    overrides = ("train.steps=100000", "train.checkpoint={every_steps: 5, keep: null}", "train.log_every_steps=10")
    output, cache = tmp_path / "output", tmp_path / "cache"
    process = victim.context().Process(
        target=victim.on_small_disk, args=(limit, overrides, folder / "run", cache, output)
    )
    process.start()
    process.join(victim.LIMIT)
    assert process.exitcode == 1
    errors = [line for line in output.read_text().splitlines() if line.startswith("sparrow: ")]
    assert len(errors) == 1
    assert "Traceback" not in output.read_text()
    steps = runs.RunFolder(folder / "run").steps
    assert f"the checkpoint of step {steps[0]} is complete; continue from it with --resume" in errors[0]
    if limit is None:
        assert "the disk is full" in errors[0]
    assert not [path.name for path in (folder / "run" / "checkpoints").iterdir() if not path.name.isdecimal()]
    shutil.copytree(folder / "run", tmp_path / "roomy")
    more = (*overrides, f"train.steps={steps[0] + 3}")
    resumed = runs.train(victim.config(*more), tmp_path / "roomy", resume=True, stream=io.StringIO())
    undisturbed = runs.train(victim.config(*more), stream=io.StringIO())
    assert_same_bits(undisturbed.state, resumed.state)


def test_a_file_that_vanishes(data, tmp_path):
    """The rows of the chunks that were read are trained on; then one line, with the state saved."""
    path = tmp_path / "here.parquet"
    written(path, bad=False)
    folder = tmp_path / "run"

    class Vanishing(io.StringIO):
        def write(self, text):
            if "step 5" in text:
                path.unlink(missing_ok=True)
            return super().write(text)

    with pytest.raises(runs.RunError) as error:
        runs.train(config(path, "train.log_every_steps=5", "train.steps=500"), folder, stream=Vanishing())
    first, last = str(error.value).splitlines()
    step = runs.RunFolder(folder).steps[0]
    assert "here.parquet" in first
    assert step >= 5
    assert last == f"the checkpoint of step {step} is complete; continue from it with --resume"
    written(path, bad=False)
    resumed = quiet(config(path, f"train.steps={step + 5}"), folder, resume=True)
    assert_same_bits(resumed.state, quiet(config(path, f"train.steps={step + 5}")).state)
