"""Runs on a mesh: the numbers of one device, stopped and resumed, and clear refusals."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def on_devices(count, *arguments, threads=None):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    environment |= {} if threads is None else {"NPROC": str(threads)}
    program = [sys.executable, Path(__file__).with_name("on_devices.py"), *map(str, arguments)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return on_devices(4, "numbers", "refusals", tmp_path_factory.mktemp("mesh"))


def test_a_mesh_trains_to_the_numbers_of_one_device(found):
    """Also where the last batch of the evaluation cannot be split evenly."""
    numbers = found["numbers"]
    assert numbers["devices"] == 4
    assert numbers["gap"] < 1e-6
    assert numbers["loss"][0] == pytest.approx(numbers["loss"][1], rel=1e-6)
    assert numbers["auc"][0] == pytest.approx(numbers["auc"][1], abs=1e-6)
    assert numbers["programs"] == 0, "a program was compiled again"
    rows, gap = numbers["predictions"]
    assert rows == 29
    assert gap < 1e-6


def test_several_steps_of_a_call_have_the_bits_of_single_ones(found):
    assert found["numbers"]["calls"]


def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(found):
    numbers = found["numbers"]
    assert numbers["stopped"]
    assert numbers["resumed"]
    assert numbers["sizes"]


@pytest.mark.slow
def test_tables_in_chosen_and_in_given_places(tmp_path):
    found = on_devices(4, "placed", tmp_path)["placed"]
    assert found.pop("unknown").startswith("train.mesh: placement names an unknown table 'id_9'")
    for name, one in found.items():
        assert one["gap"] < 1e-6, name
        assert one["moved"] < 1e-6, name
        assert one["resumed"], name
        assert one["kept"], name
        assert one["loaded"] == 0, name
        assert one["copies"], name
        assert one["line"] == (name == "auto")


@pytest.mark.slow
def test_sequences_on_a_mesh(tmp_path):
    found = on_devices(4, "sequences", tmp_path)["sequences"]
    assert found["gap"] < 1e-5
    assert found["loss"][0] == pytest.approx(found["loss"][1], rel=1e-5)
    assert found["predictions"] < 1e-5


@pytest.mark.slow
def test_sequences_of_bags_on_a_mesh(tmp_path):
    found = on_devices(4, "bags", tmp_path)["bags"]
    assert found["gap"] < 1e-5
    assert found["loss"][0] == pytest.approx(found["loss"][1], rel=1e-5)


@pytest.mark.slow
def test_a_stale_pipeline_on_a_mesh(tmp_path):
    found = on_devices(4, "stale", tmp_path)["stale"]
    assert found["gap"] < 1e-5
    assert found["resumed"]
    assert found["exact"] > 1e-3


@pytest.mark.slow
def test_rows_of_the_next_batch_travel_beside_a_step_and_nothing_changes(tmp_path):
    found = on_devices(4, "patch", tmp_path)["patch"]
    assert found.pop("steps") == 200
    assert "cannot be used with train.pipeline: patch" in found.pop("calls")
    assert all(found.values()), found


@pytest.mark.slow
def test_negatives_that_the_devices_cannot_share_evenly(tmp_path):
    assert on_devices(4, "negatives", tmp_path)["negatives"] < 1e-5


@pytest.mark.slow
def test_dynamic_tables_on_a_mesh(tmp_path):
    found = on_devices(4, "dynamic", tmp_path)["dynamic"]
    assert found["resumed"]
    assert found["calls"]
    assert found["moved"] < 0.02  # each device had a row of its own for unknown ids
    assert found["ids"]
    assert found["used"] > 20


@pytest.mark.slow
def test_dynamic_tables_on_a_mesh_in_every_way_to_make_steps(tmp_path):
    for way, found in on_devices(4, "composed", tmp_path)["composed"].items():
        assert found["resumed"], way
        assert found["ids"], way
        assert found["skipped"][0] == found["skipped"][1] > 0, way
        assert found["gap"] < 1e-3, way  # float16


@pytest.mark.slow
def test_tables_in_the_memory_of_the_host(tmp_path):
    """As on GPUs: each device has a cache. Stopped, resumed, and with several steps of a call."""
    found = on_devices(4, "apart", tmp_path, threads=16)["apart"]
    assert set(found.pop("apart")) == {True}
    assert all(found.values()), found


def test_refusals(found):
    refused = found["refusals"]
    assert refused["many"].startswith("train.mesh.data: 16 devices are asked for, and there are 4;")
    assert "train.batch_size: 63 examples cannot be split evenly over the 2 devices" in refused["batch"]
    assert "evaluate.batch_size: 65 examples cannot be split evenly over the 2 devices" in refused["batch"]
    assert "train.mesh.rows: unknown field" in refused["axis"]
    assert refused["none"] == "train.mesh.data: must be at least 1, got 0"
    assert "train.mesh.exchange_dtype" in refused["dtype"]
    assert refused["taken"] == "bfloat16"


@pytest.mark.slow
def test_a_run_moves_to_other_devices(tmp_path):
    found = on_devices(4, "moved", tmp_path)["moved"]
    for count in ("1", "2"):
        gap, told = found[count]
        assert gap < 1e-6, count
        assert told, count
    assert "cannot be split evenly over the 3 devices" in found["3"]
    assert found["served"] < 1e-6
