"""Runs on a mesh of virtual devices. Run by test_mesh.py as ``on_devices.py CHECK... FOLDER``; prints its findings."""

import contextlib
import io
import json
import sys
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow import exports, runs, samples, serving
from sparrow.config import ConfigError
from sparrow.data import DataError
from sparrow.embedding import host_memory
from sparrow.runs.step.program import Program
from tests.data.test_bag_sequences import loaded as of_bags
from tests.runs.cases import IDS, NAMES, case
from tests.runs.test_dynamic import growing
from tests.runs.test_samplers import two_towers, written
from tests.runs.test_sequences import described, rows

UNEVEN = ("data.evaluate.impressions=510",)  # no multiple of 4: the last batch is filled up
SMALL = ("train.steps=4", "train.batch_size=64", "evaluate.batch_size=64", *UNEVEN)


def train(folder, *overrides, mesh=None, resume=False, placement="rows"):
    """Train; the run, and its lines."""
    given = () if mesh is None else (f"train.mesh.data={mesh}", f"train.mesh.placement={placement}")
    with contextlib.redirect_stdout(io.StringIO()) as lines:
        trained = runs.train(case(*SMALL, *given, *overrides), folder, resume=resume)
    return trained, lines.getvalue()


def arrays(trained):
    """Tables, slots and dense parameters."""
    emb, state = trained.program.embedder, trained.state.optimizer
    tables = [np.asarray(emb.table(state.embedding, name)) for name in emb.tables]
    slots = [np.asarray(x) for name in emb.tables for x in emb.slots(state.embedding, name).values()]
    return [*tables, *slots, *map(np.asarray, jax.tree.leaves(state.params))]


def gap(a, b):
    return max(float(np.abs(x - y).max()) for x, y in zip(arrays(a), arrays(b), strict=True))


def same(a, b):
    return all(x.tobytes() == y.tobytes() for x, y in zip(arrays(a), arrays(b), strict=True))


def message(f):
    try:
        f()
    except (ConfigError, DataError) as error:
        return str(error)
    return "no error"


def numbers(folder):
    """A run on a mesh beside one on one device: values, evaluation, prediction; and the run stopped and resumed."""
    one, _ = train(folder / "one")
    many, lines = train(folder / "many", mesh=4)
    half, _ = train(folder / "half", "train.steps=2", mesh=4)
    again, _ = train(folder / "half", mesh=4, resume=True)
    calls, _ = train(folder / "calls", "train.steps_per_call=2", mesh=4)
    return {
        "calls": same(many, calls),
        "gap": gap(one, many),
        "loss": [one.results["loss"], many.results["loss"]],
        "auc": [one.results["exact_auc"], many.results["exact_auc"]],
        "programs": lines.count("compile training"),
        "devices": many.state.optimizer.embedding.tables[many.program.embedder.stacks[0].name].sharding.num_devices,
        "resumed": same(many, again),
        "stopped": not same(many, half),
        "sizes": any(key.startswith("extras/sizes/train/stack/") for key in _sizes(folder / "many")),
        "predictions": _predictions(folder, "one", "many"),
    }


def placed(folder):
    """Runs with chosen and with given places, stopped and resumed, loaded, and moved from one to another."""
    one, _ = train(folder / "one")
    found = {}
    for name, places in {"auto": "auto", "given": "{id_0: replicated, id_1: {kind: columns, columns: 2}}"}.items():
        many, lines = train(folder / name, mesh=4, placement=places)
        half, _ = train(folder / f"half {name}", "train.steps=2", mesh=4, placement=places)
        again, _ = train(folder / f"half {name}", mesh=4, placement=places, resume=True)
        train(folder / f"other {name}", "train.steps=2", mesh=4, placement="device")
        moved, _ = train(folder / f"other {name}", mesh=4, placement=places, resume=True)
        found[name] = {
            "gap": gap(one, many),
            "resumed": same(many, again) and not same(many, half),
            "moved": gap(many, moved),
            "line": "placement of tables" in lines,
            "kept": again.program.config.train.mesh == many.program.config.train.mesh,
            "copies": sum(layout.copies for layout in many.program.embedder.sharded.layouts.values()),
            "loaded": gap(many, runs.load(folder / name)),
        }
    found["unknown"] = message(lambda: train(folder / "bad", mesh=4, placement="{id_9: device}"))
    return found


def moved(folder):
    """A run resumed on other meshes and on none, and exported from a mesh."""
    many, _ = train(folder / "many", mesh=4)
    found = {}
    for count in (1, 2, 3):
        train(folder / str(count), "train.steps=2", mesh=4)
        # 64 examples do not split over 3 devices; 48 and 16 would be other steps.
        if count == 3:
            found["3"] = message(lambda: train(folder / "3", mesh=3, resume=True))
            continue
        fewer, told = train(folder / str(count), mesh=count, resume=True)
        found[str(count)] = [gap(many, fewer), f"devices was 4, is now {count}" in told]
    program, state = runs.load(folder / "many")
    exports.export(program, state, folder / "export")
    found["predictions"] = _predictions(folder, "many", "many")
    serving.predict(serving.load(folder / "export"), str(folder / "in.parquet"), folder / "served.parquet")
    served = pq.read_table(folder / "served.parquet")["click"].to_numpy()
    found["served"] = float(np.abs(served - pq.read_table(folder / "many.parquet")["click"].to_numpy()).max())
    return found


def _predictions(folder, *names):
    """The number of rows, and the largest difference; 29 rows in batches of 16 fill no mesh."""
    pq.write_table(pa.table({name: np.arange(29) % IDS for name in NAMES}), folder / "in.parquet")
    made = []
    for name in names:
        program, state = runs.load(folder / name)
        runs.predict(program, state, str(folder / "in.parquet"), folder / f"{name}.parquet", batch_size=16)
        made.append(pq.read_table(folder / f"{name}.parquet")["click"].to_numpy())
    return [len(made[1]), float(np.abs(made[1] - made[0]).max())]


def _sizes(folder):
    from sparrow.checkpoint import Saved

    newest = max((folder / "checkpoints").iterdir(), key=lambda path: int(path.name))
    return {key: array for key, array in Saved(newest).arrays().items() if key.startswith("extras/sizes/")}


def sequences(folder):
    """A model of histories on a mesh beside one device; the last batches of training and evaluation are uneven."""
    pq.write_table(rows(270), folder / "train.parquet")
    pq.write_table(rows(70, seed=1), folder / "test.parquet")
    made = []
    for name, overrides in (("one", ()), ("many", ("train.mesh.data=4",))):
        config = described(folder, "train.batch_size=64", "train.steps=5", "evaluate.batch_size=32", *overrides)
        with contextlib.redirect_stdout(io.StringIO()):
            made.append(runs.train(config, folder / name))
        program, state = runs.load(folder / name)
        runs.predict(program, state, str(folder / "test.parquet"), folder / f"{name}.out.parquet", batch_size=16)
    scores = [pq.read_table(folder / f"{name}.out.parquet")["click"].to_numpy() for name in ("one", "many")]
    losses = [trained.results["loss"] for trained in made]
    return {"gap": gap(*made), "loss": losses, "predictions": float(np.abs(scores[1] - scores[0]).max())}


def bags(folder):
    """Sequences of bags on a mesh beside one device; the last batch of the evaluation is uneven."""
    samples.write(of_bags("train.parquet"), folder / "data", rows=250)
    made = []
    for name, devices in (("one", None), ("many", 4)):
        with contextlib.redirect_stdout(io.StringIO()):
            made.append(runs.train(of_bags(str(folder / "data" / "train.parquet"), devices), folder / name))
    return {"gap": gap(*made), "loss": [trained.results["loss"] for trained in made]}


def dynamic(folder):
    """Ids that come and go on a mesh: stopped and resumed there, and on one device."""

    def run(name, *overrides, resume=False):
        with contextlib.redirect_stdout(io.StringIO()):
            return runs.train(growing("train.steps=6", *overrides, rows=400), folder / name, resume=resume)

    many = run("many", "train.mesh.data=4")
    run("half", "train.mesh.data=4", "train.steps=3")
    again = run("half", "train.mesh.data=4", resume=True)
    calls = run("calls", "train.mesh.data=4", "train.steps_per_call=3", "train.log_every_steps=6")
    program, state = runs.load(folder / "many", growing("train.steps=6", rows=400))
    embedder, here = many.program.embedder, state.optimizer.embedding
    there = many.state.optimizer.embedding
    held = [embedder.held(there, "id_0"), program.embedder.held(here, "id_0")]
    sets = [set(embedder.ids(there, "id_0").ids.tolist()), set(program.embedder.ids(here, "id_0").ids.tolist())]
    return {
        "resumed": same(many, again),
        "calls": same(many, calls),
        "moved": abs(runs.Evaluator(program)(state)["loss"] - many.results["loss"]),
        "ids": sets[0] == sets[1] and held[0].waiting == held[1].waiting,
        "used": held[0].used,
    }


def composed(folder):
    """Dynamic tables in every way to make steps of micro-batches: on a mesh, stopped and resumed, beside one device."""
    fields = [f"data.features[{i}].dynamic={{rows: 2048, unknown: zeros, expire_steps: 6}}" for i in range(2)]
    skips = ("train.precision=float16", "train.loss_scale={init_scale: 1.0e+9}", "train.non_finite=skip")
    ways = {
        "skipped": skips,
        "skipped in calls": (*skips, "train.steps_per_call=2"),
        "skipped and stale": (*skips, "train.pipeline=stale"),
    }
    found = {}
    for way, given in ways.items():

        def run(name, *overrides, way=way, given=given, resume=False):
            config = growing("train.steps=10", *fields, *given, *overrides)
            with contextlib.redirect_stdout(io.StringIO()):
                return runs.train(config, folder / way / name, resume=resume)

        one, many = run("one"), run("many", "train.mesh.data=4")
        run("half", "train.mesh.data=4", "train.steps=4")
        again = run("half", "train.mesh.data=4", resume=True)
        states = [trained.state.optimizer for trained in (one, many)]
        ids = [set(one.program.embedder.ids(states[0].embedding, "id_0").ids.tolist())]
        ids.append(set(many.program.embedder.ids(states[1].embedding, "id_0").ids.tolist()))
        found[way] = {
            "resumed": same(many, again),
            "skipped": [int(state.skipped) for state in states],
            "ids": ids[0] == ids[1],
            "gap": abs(one.results["loss"] - many.results["loss"]),
        }
    return found


def apart(folder):
    """Tables in host memory apart from the memory of the devices, some with ids that come and go, beside others."""
    fields = ["data.features[0].dynamic={rows: 2048, unknown: zeros, expire_steps: 6}"]
    fields.append("train.mesh={data: 4, placement: rows}")
    fields.append("model.tables=[{tables: ['.*'], memory: {kind: host, cache: 0.6}}]")

    def run(name, *overrides, apart=True, resume=False):
        config = growing("train.steps=8", *fields, *overrides)
        with contextlib.redirect_stdout(io.StringIO()), mock.patch.object(host_memory, "is_apart", return_value=apart):
            return runs.train(config, folder / name, resume=resume)

    near, far = run("near", apart=False), run("far")
    run("half", "train.steps=4")
    found = {"apart": [stack.apart for stack in far.program.embedder.stacks], "bits": same(near, far)}
    found["resumed"] = same(far, run("half", resume=True))
    found["calls"] = same(far, run("calls", "train.steps_per_call=2"))
    found["results"] = near.results == far.results
    found["moved"] = far.program.embedder.cache_traffic(far.state.optimizer.embedding)["cache_bytes_in"] > 0
    return found


def stale(folder):
    """``train.pipeline: stale`` with micro-batches on a mesh, beside one device; stopped and resumed; and exact."""
    given = ("train.pipeline=stale", "train.accumulate=2")
    one, _ = train(folder / "one", *given)
    many, _ = train(folder / "many", *given, mesh=4)
    train(folder / "half", *given, "train.steps=2", mesh=4)
    again, _ = train(folder / "half", *given, mesh=4, resume=True)
    exact, _ = train(folder / "exact", "train.accumulate=2", mesh=4)
    return {"gap": gap(one, many), "resumed": same(many, again), "exact": gap(exact, many)}


def patch(folder):
    """``train.pipeline: patch`` beside exact: over 200 steps, stopped and resumed, with all that a step may do."""
    wide = [{"kind": "id", "name": name, "num_buckets": 997, "embedding_dim": 4} for name in NAMES]
    many = (f"data.features={json.dumps(wide)}", "data.train.ids=997", "data.evaluate.ids=997", "train.steps=200")

    def both(*given, skipped=0):
        one, other = (train(None, *given, f"train.pipeline={kind}", mesh=4)[0] for kind in ("exact", "patch"))
        return same(one, other) and int(other.state.optimizer.skipped) >= skipped

    train(folder / "half", *many, "train.pipeline=patch", "train.steps=77", mesh=4)
    again, _ = train(folder / "half", *many, "train.pipeline=patch", mesh=4, resume=True)
    exact, _ = train(None, *many, mesh=4)
    with contextlib.redirect_stdout(io.StringIO()):
        dynamic = [
            runs.train(growing("train.mesh.data=4", "train.steps=20", f"train.pipeline={kind}", rows=400), None)
            for kind in ("exact", "patch")
        ]
    return {
        "resumed": same(exact, again),
        "steps": int(exact.state.optimizer.step),
        "micro-batches": both("train.accumulate=2", "train.steps=8"),
        "skipped": both("train.precision=float16", "train.loss_scale={init_scale: 1.0e+9}", "train.steps=8", skipped=1),
        "clipped": both("train.clip_global_norm=0.01", "train.steps=8"),
        "dynamic": same(*dynamic),
        "one device": same(*[train(None, f"train.pipeline={kind}")[0] for kind in ("exact", "patch")]),
        "calls": message(lambda: train(None, "train.pipeline=patch", "train.steps_per_call=2", mesh=4)),
    }


def negatives(folder):
    """Five drawn items, which four devices cannot share evenly, beside one device."""
    written(folder)
    given = ("data.negatives.count=5", "train.steps=3")
    one, many = (
        runs.train(two_towers(folder, *given, f"train.mesh={mesh}"), None, stream=io.StringIO())
        for mesh in ("null", "{data: 4}")
    )
    return gap(one, many)


def refusals(folder):
    """Mistakes, each with its message."""
    return {
        "many": message(lambda: train(None, mesh=16)),
        "batch": message(lambda: train(None, "train.batch_size=63", "evaluate.batch_size=65", mesh=2)),
        "axis": message(lambda: case("train.mesh.rows=2")),
        "none": message(lambda: case("train.mesh.data=0")),
        "dtype": message(lambda: case("train.mesh={data: 2, exchange_dtype: int8}")),
        "taken": Program.of(case("train.mesh={data: 2, exchange_dtype: bfloat16}")).embedder.shards.dtype,
    }


if __name__ == "__main__":
    *checks, folder = sys.argv[1:]
    known = {
        function.__name__: function
        for function in (
            numbers,
            moved,
            placed,
            refusals,
            sequences,
            bags,
            dynamic,
            composed,
            apart,
            stale,
            patch,
            negatives,
        )
    }
    print(json.dumps({check: known[check](Path(folder)) for check in checks}))
