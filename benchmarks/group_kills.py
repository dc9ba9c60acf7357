"""Kills of one process of several, at random moments: the run continues to the bits of one that was never stopped.

    python benchmarks/group_kills.py --kills 20 --seed 1

Each round starts 2 processes with ``--resume``, waits a random time, and sends SIGKILL to one of them, in any phase:
while they import, join, compile, train, save or evaluate; half of the kills come after a checkpoint. All must
end within 30 seconds. At the end the run is completed, and its last checkpoint is compared with that of a run that
nobody killed. A run that completes before the last kill is compared, too, and begins anew.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from sparrow.checkpoint import saved_steps
from tests.runs.groups import command, content, same, train, written
from tests.runs.test_processes import children

LIMIT = 30.0
STEPS = 8000
OVERRIDES = (
    f"train.steps={STEPS}",
    "train.log_every_steps=400",
    "train.checkpoint={every_steps: 25}",
    "evaluate.every_steps=400",
    "train.mesh.data=2",
)


def kill_once(folder: pathlib.Path, config: pathlib.Path, rng: random.Random, longest: float) -> tuple[str, float]:
    """Start the run, kill one process at a random moment; return the phase, and the seconds until all had ended."""
    given, held = command("train", config, "--model-dir", folder, "--resume", processes=2)
    process = subprocess.Popen(given, env=held, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    before = saved_steps(folder / "checkpoints")[:1]
    if rng.random() < 0.5:  # while it trains, saves and evaluates
        while process.poll() is None and saved_steps(folder / "checkpoints")[:1] == before:
            time.sleep(0.02)
        end = time.monotonic() + rng.uniform(0.0, 2.0)
    else:  # at any moment from the start
        end = time.monotonic() + rng.uniform(0.5, longest)
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.02)
    group = children(process)
    if process.poll() is not None or not group:
        output, _ = process.communicate()
        return f"ended before ({process.returncode})", 0.0
    began = time.monotonic()
    os.kill(rng.choice(group), signal.SIGKILL)
    output, _ = process.communicate()
    steps = [line.split()[2] for line in output.splitlines() if line.startswith("save")]
    return f"after the checkpoint of step {steps[-1]}" if steps else "before a checkpoint", time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=20.0, help="seconds from the start to a kill, at most")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        os.environ["SPARROW_TEST_CACHE"] = str(folder / "cache")
        train(folder / "whole", *OVERRIDES, processes=2, devices=2)
        config = written(folder / "config", *OVERRIDES)
        whole = content(folder / "whole")
        slowest, killed, equal = 0.0, 0, True
        while killed < options.kills:
            phase, seconds = kill_once(folder / "run", config, rng, options.longest)
            slowest, killed = max(slowest, seconds), killed + (seconds > 0)
            at = saved_steps(folder / "run" / "checkpoints")[:1]
            print(f"kill {killed}: {phase}, all ended after {seconds:.1f} s, newest checkpoint {at}", flush=True)
            if seconds == 0.0 and at == [STEPS]:
                equal &= same(content(folder / "run"), whole)  # the run is complete
                shutil.rmtree(folder / "run")
        train(folder / "run", *OVERRIDES, processes=2, devices=2, options=["--resume"])
        equal &= same(content(folder / "run"), whole)
        print(f"{killed} kills, all ended within {slowest:.1f} s, bits of a run that was never stopped: {equal}")
        sys.exit(not equal or slowest > LIMIT)


if __name__ == "__main__":
    main()
