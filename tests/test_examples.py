"""The examples run as written, with few steps, and learn something even so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import AS_USERS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("name", "options", "auc"),
    [
        ("plain_loop.py", ["--steps", "40", "--precision", "bfloat16"], 0.65),
        ("custom_rule.py", ["--steps", "40"], 0.65),
        ("click_model.py", ["--steps", "60"], 0.65),
        ("linen_model.py", ["--steps", "60"], 0.65),
        ("custom_model.py", ["{folder}", "--steps", "40"], 0.65),
        ("sharded.py", ["--steps", "60"], 0.6),
    ],
)
def test_example(name, options, auc, tmp_path):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(ROOT / "examples" / name), *(option.format(folder=tmp_path) for option in options)]
    result = subprocess.run(command, capture_output=True, text=True, env={**AS_USERS, "PYTHONPATH": path})
    assert result.returncode == 0, result.stderr
    reached = [float(number) for number in re.findall(r"AUC (\d\.\d+)", result.stdout)]
    assert reached
    assert min(reached) > auc, result.stdout
