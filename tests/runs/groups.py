"""Runs of several processes, by the command line, and their checkpoints."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from sparrow.checkpoint import Saved, saved_steps
from sparrow.config import dumps
from tests.runs.cases import case

ROOT = Path(__file__).parents[2]
LIMIT = 600  # seconds
SMALL = (
    "train.steps=6",
    "train.batch_size=48",
    "train.tensorboard=false",
    "train.log_every_steps=2",
    "evaluate.batch_size=48",
    "data.train.impressions=600",
    "data.evaluate.impressions=130",  # no multiple of the devices: the last batch is filled up
    "train.checkpoint={every_steps: 2, keep: 10}",
    "train.table_optimizers=[{tables: [id_0], optimizer: {name: adam, learning_rate: 0.01}}]",
)


def environment(devices=None):
    """Processes with as many virtual devices; None: as ``train.mesh`` and the number of processes give."""
    held = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "NPROC")}
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ.get("XLA_FLAGS", ""))
    if devices is not None:
        flags += f" --xla_force_host_platform_device_count={devices}"
    cache = {"JAX_COMPILATION_CACHE_DIR": held["SPARROW_TEST_CACHE"]} if "SPARROW_TEST_CACHE" in held else {}
    return {**held, **cache, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}


def written(folder, *overrides):
    """A config file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(dumps(case(*SMALL, *overrides)))
    return path


def command(name, *arguments, processes=1, devices=1, prefix=()):
    """A command, and its environment, on ``devices`` devices in all."""
    options = ["--processes", str(processes)] if processes > 1 else []
    given = [*prefix, sys.executable, "-m", "sparrow.cli", name, *map(str, arguments), *options]
    return given, environment(devices if processes == 1 else None)


def run(name, *arguments, processes=1, devices=1):
    """Its exit code and output."""
    given, held = command(name, *arguments, processes=processes, devices=devices)
    done = subprocess.run(given, env=held, capture_output=True, text=True, timeout=LIMIT)
    return done.returncode, done.stdout + done.stderr


def train(folder, *overrides, processes=1, devices=1, options=(), code=0):
    """Train; the output."""
    path = written(folder.with_name(f"{folder.name}-config"), *overrides, f"train.mesh.data={devices}")
    found, output = run("train", path, "--model-dir", folder, *options, processes=processes, devices=devices)
    assert found == code, output[-4000:]
    return output


def content(folder, step=None):
    """All numbers of a checkpoint, by name: tables, slots, and every other array but counts of the feed."""
    checkpoints = folder / "checkpoints"
    saved = Saved(checkpoints / str(step or saved_steps(checkpoints)[0]))
    try:
        arrays = {name: array for name, array in saved.arrays().items() if not name.startswith("extras/")}
        for key in saved.tables:
            arrays[str(key)] = np.concatenate([block for _, block in saved.rows(key)])
    finally:
        saved.close()
    return arrays


def same(a, b):
    """Whether all bits are."""
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def gap(a, b):
    """The largest difference."""
    assert a.keys() == b.keys()
    return max(
        (float(np.abs(a[name].astype(np.float64) - b[name].astype(np.float64)).max()) for name in a if a[name].size),
        default=0.0,
    )
