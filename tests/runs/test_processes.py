"""Runs of several processes: the bits of one process with as many devices, faults, other topologies."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.checkpoint import saved_steps
from sparrow.processes.supervising import free_port
from tests.runs.cases import IDS, NAMES
from tests.runs.groups import LIMIT, command, content, environment, gap, run, same, train, written

pytestmark = pytest.mark.slow

GROUPED = (
    "tasks.click.metrics=[auc, exact_auc, {name: grouped_auc, group_by: id_1}, "
    "{name: ndcg_at_k, top_k: 2, group_by: id_1}]"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs that the tests compare: of 2 processes with a device each, and of one process with both, on two shares."""
    folder = tmp_path_factory.mktemp("processes")
    os.environ.setdefault("SPARROW_TEST_CACHE", str(tmp_path_factory.mktemp("cache")))
    train(folder / "two", GROUPED, processes=2, devices=2)
    train(folder / "one", GROUPED, "data.shares=2", processes=1, devices=2)
    return folder


@functools.cache
def evaluated(folder, processes):
    """The output of the command."""
    return run("eval", folder, processes=processes, devices=2)[1]


def test_two_processes_give_the_bits_of_one(folder):
    for step in (2, 4, 6):
        assert same(content(folder / "two", step), content(folder / "one", step)), step
    report = (folder / "two" / "report.html").read_text()
    assert "exchange of id_0" in report
    assert "sent by a device in a step" in report
    assert len((folder / "two" / "metrics.jsonl").read_text().splitlines()) == 4


def test_files_are_those_of_one_process(folder):
    names = [path.name for path in sorted((folder / "one" / "checkpoints" / "6" / "tables").iterdir())]
    for name in names:
        tables = [(folder / run_of / "checkpoints" / "6" / "tables" / name).read_bytes() for run_of in ("one", "two")]
        assert tables[0] == tables[1], name


def test_stopped_and_resumed(folder):
    """Also by one process with the devices of both."""
    train(folder / "stopped", GROUPED, "train.steps=3", processes=2, devices=2)
    for name, processes in (("again", 2), ("moved", 1)):
        shutil.copytree(folder / "stopped", folder / name)
        train(folder / name, GROUPED, processes=processes, devices=2, options=["--resume"])
        assert same(content(folder / name), content(folder / "two")), name


def test_evaluation_prediction_and_export(folder):
    results = [evaluated(folder / name, processes).splitlines() for name, processes in (("two", 2), ("one", 1))]
    assert results[0][-3:] == results[1][-3:]
    pq.write_table(pa.table({name: np.arange(29) % IDS for name in NAMES}), folder / "in.parquet")
    for processes in (1, 2):
        output = folder / f"out-{processes}.parquet"
        code, text = run("predict", folder / "two", folder / "in.parquet", output, processes=processes, devices=2)
        assert code == 0, text
    made = [pq.read_table(folder / f"out-{p}.parquet")["click"].to_numpy() for p in (1, 2)]
    assert len(made[0]) == 29
    np.testing.assert_allclose(made[0], made[1], rtol=1e-6)
    code, text = run("export", folder / "two", folder / "export", processes=2, devices=2)
    assert code == 0, text
    code, text = run("predict", folder / "export", folder / "in.parquet", folder / "served.parquet")
    assert code == 0, text
    np.testing.assert_allclose(pq.read_table(folder / "served.parquet")["click"].to_numpy(), made[0], rtol=1e-5)


def test_each_process_evaluates_its_share_and_has_the_numbers_of_all(folder):
    """Metrics by group need the keys of all rows. Of 130 rows, each process has padding in its part of a batch."""
    assert logged(folder / "two") == logged(folder / "one")
    texts = [evaluated(folder / "two", processes) for processes in (2, 1)]
    found = [{name: float(x) for name, x in re.findall(r"([\w()]+) +(\d+\.\d+)", text)} for text in texts]
    assert len(found[0]) >= 5
    assert found[0] == pytest.approx(found[1], rel=1e-5)


CLIPPED = (
    "train.steps=13",
    "train.accumulate=2",
    "train.clip_global_norm=0.05",
    "evaluate.every_steps=5",
    "data.train.impressions=1000",
)


def logged(folder):
    """The losses and metrics of training and evaluation."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds", "waiting", "memory", "time", "examples_per_second")
    return [{name: value for name, value in line.items() if not any(word in name for word in timed)} for line in lines]


@pytest.mark.parametrize("pipeline", ["exact", "stale"])
def test_the_bits_do_not_depend_on_how_devices_belong_to_processes(folder, pipeline):
    """Tables, slots, dense parameters, optimizer state, losses and metrics; an uneven batch ends the evaluation.

    Steps have two micro-batches, and clipping is at work in each.
    """
    two, one = folder / f"2x2-{pipeline}", folder / f"1x4-{pipeline}"
    given = (*CLIPPED, f"train.pipeline={pipeline}", "data.shares=1")
    train(two, *given, processes=2, devices=4)
    train(one, *given, processes=1, devices=4)
    for step in (2, 12, 13):
        assert same(content(two, step), content(one, step)), step
    assert logged(two) == logged(one)
    assert len(logged(one)) > 8


@pytest.mark.slow
def test_dynamic_tables_are_spread_over_processes(tmp_path):
    field = "data.features[0]={kind: id, name: id_0, embedding_dim: 4, dynamic: {rows: 400}}"
    train(tmp_path / "two", field, processes=2, devices=2)
    train(tmp_path / "calls", field, "train.steps_per_call=2", processes=2, devices=2)
    assert same(content(tmp_path / "calls"), content(tmp_path / "two"))
    train(tmp_path / "one", field, "data.shares=2", processes=1, devices=2)
    assert gap(content(tmp_path / "two"), content(tmp_path / "one")) < 1e-5
    given = ("train.pipeline=stale", "train.accumulate=2", "train.precision=float16", "train.steps=8")
    for name, processes in (("two late", 2), ("one late", 1)):
        shares = () if processes == 2 else ("data.shares=2",)
        train(
            tmp_path / name,
            field,
            *given,
            "train.loss_scale={init_scale: 1.0e+9}",
            *shares,
            processes=processes,
            devices=2,
        )
    assert same(content(tmp_path / "two late"), content(tmp_path / "one late"))


def test_another_number_of_devices_agrees_to_rounding(folder):
    train(folder / "four", GROUPED, "data.shares=2", processes=1, devices=4)
    assert gap(content(folder / "four"), content(folder / "one")) < 1e-5


def started(folder, *overrides, options=(), processes=2, devices=2):
    path = written(folder.with_name(f"{folder.name}-config"), *overrides, f"train.mesh.data={devices}")
    given, held = command("train", path, "--model-dir", folder, *options, processes=processes)
    return subprocess.Popen(given, env=held, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def children(process):
    """The process ids of the group, in order of their numbers."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat") as stat, open(f"/proc/{name}/cmdline") as line:
                    parent, words = int(stat.read().rpartition(")")[2].split()[1]), line.read().split("\0")
            except OSError:
                continue
            if parent == process.pid and "--process-id" in words:
                found[int(words[words.index("--process-id") + 1])] = int(name)
    return [found[number] for number in sorted(found)]


def wait_for(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


LONG = ("train.steps=2000", "data.train.impressions=200000", "train.log_every_steps=1000")


@pytest.mark.parametrize(("number", "victim"), [(signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGTERM, 1)])
def test_a_signal_to_one_process_ends_all(folder, tmp_path, victim, number):
    run_folder = tmp_path / "run"
    process = started(run_folder, *LONG)
    wait_for(lambda: saved_steps(run_folder / "checkpoints"))
    group = children(process)
    assert len(group) == 2
    os.kill(group[victim], number)
    output, _ = process.communicate(timeout=LIMIT)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in group)
    if number == signal.SIGKILL:
        assert process.returncode == 137, output
        assert f"process {victim} was ended by SIGKILL" in output
    else:
        assert process.returncode == 143, output
        assert "stopped by SIGTERM after step" in output
    steps = saved_steps(run_folder / "checkpoints")
    content(run_folder, steps[0])  # complete, with its checksums
    assert not [path for path in (run_folder / "checkpoints").iterdir() if not path.name.isdecimal()] or number == 9
    train(run_folder, *LONG, f"train.steps={steps[0] + 2}", processes=2, devices=2, options=["--resume"])
    assert saved_steps(run_folder / "checkpoints")[0] == steps[0] + 2


@pytest.mark.slow
@pytest.mark.parametrize("elastic", [False, True])
def test_a_run_comes_back_by_itself(tmp_path, elastic):
    """Two kills: with as many processes to the same bits; where no new checkpoint came between them, with fewer."""
    small = ("train.steps=200", "train.checkpoint={every_steps: 20}", "train.log_every_steps=100", "data.shares=2")
    train(tmp_path / "whole", *small, processes=2, devices=2)
    run_folder, begun = tmp_path / "run", []
    process = started(run_folder, *small, options=["--restarts", "5", *["--elastic"] * elastic])
    while len(begun) < 2:
        group, steps = children(process), saved_steps(run_folder / "checkpoints")
        if len(group) == 2 and steps and (not begun or group != begun[-1]):
            os.kill(group[1], signal.SIGKILL)
            begun.append(group)
        assert process.poll() is None
        time.sleep(0.01)
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, output
    assert "restart 1 of 5, with 2 processes" in output
    assert ("restart 2 of 5, with 1 process\n" if elastic else "restart 2 of 5, with 2 processes") in output
    assert len(re.findall(r"the run goes on with step \d+, [\d.]+ s after the failure", output)) >= 1
    a, b = content(run_folder), content(tmp_path / "whole")
    assert same(a, b) if not elastic else gap(a, b) < 1e-5


def test_different_configs_are_refused(tmp_path):
    """Else they train, each with its own seed or rate, and nobody notices. The place of the data may differ."""
    given = [written(tmp_path / name, "train.mesh.data=2", f"train.seed={seed}") for name, seed in (("a", 0), ("b", 7))]
    address = f"127.0.0.1:{free_port()}"
    options = ["--model-dir", str(tmp_path / "run"), "--coordinator", address, "--num-processes", "2", "--process-id"]
    group = [
        subprocess.Popen(
            [sys.executable, "-m", "sparrow.cli", "train", str(path), *options, str(number)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, path in enumerate(given)
    ]
    for process in group:
        output, _ = process.communicate(timeout=LIMIT)
        assert process.returncode in (2, 3), output
        assert "train.seed: is 0 in process 0 and 7 in process 1; make them equal" in output
        assert "Traceback" not in output
    assert not (tmp_path / "run" / "checkpoints").exists()


CAUSES = {
    "exception": "ZeroDivisionError: a mistake in this process",
    "short_data": "ended before that of process",
    "bad_read": "Input/output error",
    "full_disk": "the disk is full",
}


@pytest.mark.parametrize(
    ("fault", "victim"), [("exception", 0), ("exception", 1), ("short_data", 0), ("bad_read", 1), ("full_disk", 0)]
)
def test_a_fault_in_one_process_ends_all(folder, tmp_path, fault, victim):
    """With its cause, nothing half committed, and `--resume` goes on to the same bits."""
    run_folder = tmp_path / "run"
    path = written(tmp_path / "config", GROUPED, "train.mesh.data=2")
    program = Path(__file__).with_name("group_victim.py")
    arguments = [sys.executable, str(program), fault, str(victim), "train", str(path), "--model-dir", str(run_folder)]
    code = f"""
import sys
from sparrow.processes import supervise
def command(start):
    own = ["--coordinator", start.address, "--num-processes", "2", "--process-id", str(start.number), "--supervised"]
    return [*{arguments!r}, *own]
sys.exit(supervise(2, command, lambda line: print(line, file=sys.stderr)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1, done.stderr
    assert CAUSES[fault] in done.stderr, done.stderr
    checkpoints = run_folder / "checkpoints"
    assert not [entry.name for entry in checkpoints.iterdir() if not entry.name.isdecimal()]
    for step in saved_steps(checkpoints):
        content(run_folder, step)
    train(run_folder, GROUPED, processes=2, devices=2, options=["--resume"])
    assert same(content(run_folder), content(folder / "two"))
