"""Checkpoints of tables on a mesh: the bytes of one device, restored on any number of devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparrow.processes.supervising import free_port

ROOT = Path(__file__).parents[2]


def on_devices(count, *arguments):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    program = [sys.executable, Path(__file__).with_name("on_devices.py"), *map(str, arguments)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_three_devices_to_one_and_back(tmp_path):
    """A table with all its slots, in blocks; the files are those of one device."""
    assert on_devices(1, "save", tmp_path / "one") == on_devices(3, "save", tmp_path / "three")
    assert on_devices(1, "load", tmp_path / "three") == {"different": True, "same": True}
    assert on_devices(3, "load", tmp_path / "one") == {"different": True, "same": True}


@pytest.mark.slow
def test_a_chain_of_three_devices_on_one_and_back(tmp_path):
    """Each device gives the rows that it changed; the chain restores to the same bits on any number of devices."""
    made = [on_devices(count, "chain", tmp_path / str(count)) for count in (1, 3)]
    assert made[0]["rows"] == made[1]["rows"]
    assert 3 < made[0]["rows"] < 36
    for count, own in zip((1, 3), made, strict=True):
        assert on_devices(4 - count, "restored", tmp_path / str(count))["digest"] == own["digest"]


def test_no_more_than_a_block_is_held(tmp_path):
    found = on_devices(2, "largest", tmp_path)
    assert found["largest"] <= 1024 < found["table"] / 4
    assert found["blocks"] > 40


@pytest.mark.slow
@pytest.mark.parametrize("before", [1, 2, 3])
def test_plain_orbax_checkpoints_move_to_other_devices(tmp_path, before):
    """Arrays on 1 and 2 devices have one shape, and their rows another order: Orbax refuses by a name that says how."""
    on_devices(before, "orbax-save", tmp_path / "saved")
    for after in (1, 2, 3):
        found = on_devices(after, "orbax-load", tmp_path / "saved")
        refusal = found.pop("orbax")
        assert found == {"different": True, "same": True, "others": [[3.0, 3.0], 0, 0]}, after
        hint = "for others use sparrow checkpoint restore_orbax" if 1 not in (before, after) else "embedding.layout"
        assert (hint in refusal) == (before != after), refusal


def in_processes(count, devices, *arguments):
    """As `on_devices`, in several processes of as many devices each."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    address = f"127.0.0.1:{free_port()}"
    program = [sys.executable, Path(__file__).with_name("on_devices.py"), *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    group = [
        subprocess.Popen([*program, f"{address}/{count}/{number}"], env=environment, **pipes) for number in range(count)
    ]
    try:
        outputs = [process.communicate(timeout=300) for process in group]
    finally:
        for process in group:
            process.kill()
    for process, (_, errors) in zip(group, outputs, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return json.loads(outputs[0][0].splitlines()[-1])


@pytest.mark.slow
def test_every_topology_to_every_other(tmp_path):
    """1, 1x8, 2x2 and 1x3: the same files, and the same rows from each of them."""
    topologies = {"1": (1, 1), "1x8": (1, 8), "2x2": (2, 2), "1x3": (1, 3)}

    def run(name, *arguments):
        processes, devices = topologies[name]
        return on_devices(devices, *arguments) if processes == 1 else in_processes(processes, devices, *arguments)

    files = {name: run(name, "save", tmp_path / name) for name in topologies}
    assert all(of_one == files["1"] for of_one in files.values())
    for name in topologies:
        found = run(name, "load", *(tmp_path / other for other in topologies))
        assert found == {other: {"different": True, "same": True} for other in topologies}, name


@pytest.mark.slow
@pytest.mark.parametrize("before", [1, 2, 3, 8])
def test_every_number_of_devices_to_every_other(tmp_path, before):
    files = on_devices(before, "save", tmp_path / str(before))
    assert files == on_devices(1, "save", tmp_path / "again")
    for after in (1, 2, 3, 8):
        assert on_devices(after, "load", tmp_path / str(before)) == {"different": True, "same": True}, after
