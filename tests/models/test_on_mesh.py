"""Models of histories on meshes, in a process of its own with two devices."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_two_devices_give_the_numbers_of_one():
    done = subprocess.run([sys.executable, "-m", "tests.models.on_mesh"], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["equal", "Auto", "equal", "Explicit"], done.stderr[-2000:]
