"""The configs in examples/ run as written, on small generated data of their layouts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparrow import config
from tests.conftest import AS_USERS

EXAMPLES = Path(__file__).parent.parent / "examples"


CONFIGS = sorted(path for path in EXAMPLES.glob("*.yaml") if path.name != "own_parts.yaml")  # in test_contributing


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_config_loads(path):
    loaded = config.load(path)
    assert config.loads(config.dumps(loaded)) == loaded
    config.assemble(loaded)


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (["criteo.py", "{folder}", "--rows", "8000", "train.batch_size=1024"], "the best possible is"),
        pytest.param(
            ["sessions.py", "dssm.yaml", "{folder}", "--rows", "4000", "train.epochs=1"],
            "recall_at_10",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["sessions.py", "sasrec.yaml", "{folder}", "--rows", "8000", "train.epochs=1"],
            "catalog_recall_at_20",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["sessions.py", "mmoe.yaml", "{folder}", "--rows", "4000", "train.epochs=1"],
            "buy/auc",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["deepfm", "dssm", "sasrec", "mmoe"],
)
def test_example_runs(arguments, result, tmp_path):
    script, *rest = [argument.format(folder=tmp_path) for argument in arguments]
    path = os.pathsep.join(filter(None, [str(EXAMPLES.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *rest],
        capture_output=True,
        text=True,
        env={**AS_USERS, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert result in done.stdout.splitlines()[-1]
    assert list(tmp_path.glob("*/checkpoints/*"))
