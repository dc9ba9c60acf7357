"""Models of histories on meshes, in a process of its own with two devices."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_two_devices_give_the_numbers_of_one():
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags}
    command = [sys.executable, "-m", "tests.models.on_mesh"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["equal", "Auto", "equal", "Explicit"], done.stderr[-2000:]
