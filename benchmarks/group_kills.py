"""Kill one of several processes at random moments: the run restarts by itself, and ends with the same bits.

    python benchmarks/group_kills.py --kills 50 --seed 1

One command with ``--processes 2 --restarts`` trains; SIGKILL (or, now and then, SIGSTOP) goes to one of its processes
in any phase: while they import, join, compile, train, save or evaluate; half of the kills come after a new checkpoint.
Nobody helps. All processes of a start must have ended within 30 seconds of the kill, and the last checkpoint must have
the bits of a run that was never stopped. A run that completes before the last kill is compared, and another begins.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from sparrow.checkpoint import saved_steps
from tests.runs.groups import command, content, same, train, written
from tests.runs.test_processes import children

LIMIT = 30.0
STEPS = 4000
OVERRIDES = (
    f"train.steps={STEPS}",
    "train.log_every_steps=400",
    "train.checkpoint={every_steps: 25}",
    "evaluate.every_steps=400",
    "train.mesh.data=2",
)


class Run:
    """One command that trains and comes back, and its lines."""

    def __init__(self, folder: pathlib.Path, config: pathlib.Path) -> None:
        self.folder = folder
        given, held = command("train", config, "--model-dir", folder, "--restarts", 1000, processes=2)
        self.process = subprocess.Popen(given, env=held, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=lambda: self.lines.extend(iter(self.process.stdout.readline, "")))
        self._reader.start()

    def is_over(self) -> bool:
        return self.process.poll() is not None

    def wait(self) -> int:
        code = self.process.wait()
        self._reader.join()
        return code

    def newest(self) -> list[int]:
        return saved_steps(self.folder / "checkpoints")[:1]

    def kill(self, rng: random.Random, longest: float) -> tuple[str, float] | None:
        """Kill one process at a random moment; return the phase, and the seconds until all had ended, or None."""
        before = self.newest()
        if rng.random() < 0.5:  # while it trains, saves and evaluates
            while not self.is_over() and self.newest() == before:
                time.sleep(0.02)
            end = time.monotonic() + rng.uniform(0.0, 2.0)
        else:  # at any moment from the start
            end = time.monotonic() + rng.uniform(0.5, longest)
        while time.monotonic() < end and not self.is_over():
            time.sleep(0.02)
        if self.is_over() or not (group := children(self.process)):
            return None
        number = signal.SIGSTOP if rng.random() < 0.1 else signal.SIGKILL
        began = time.monotonic()
        os.kill(rng.choice(group), number)
        while not self.is_over() and any(os.path.exists(f"/proc/{pid}") for pid in group):
            time.sleep(0.02)
        at = self.newest()
        return f"{number.name} after the checkpoint of step {at[0] if at else 0}", time.monotonic() - began


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
        config, whole = written(folder / "config", *OVERRIDES), content(folder / "whole")
        slowest, killed, equal, back, steps = 0.0, 0, True, [], []
        while killed < options.kills:
            run = Run(folder / "run", config)
            while killed < options.kills and not run.is_over():
                if (kill := run.kill(rng, options.longest)) is not None:
                    killed, slowest = killed + 1, max(slowest, kill[1])
                    print(f"kill {killed}: {kill[0]}, all ended after {kill[1]:.1f} s", flush=True)
            if run.wait():
                sys.exit("the run did not come back:\n" + "".join(run.lines[-40:]))
            equal &= same(content(run.folder), whole)
            back += [
                float(found[1]) for line in run.lines if (found := re.search(r"([\d.]+) s after the failure", line))
            ]
            steps += [int(found[1]) for line in run.lines if (found := re.match(r"(\d+) steps and .* are lost", line))]
            shutil.rmtree(run.folder)
        back.sort()
        print(
            f"{killed} kills, all ended within {slowest:.1f} s, trained again after {back[len(back) // 2]:.1f} s "
            f"(median; at most {back[-1]:.1f}), {sum(steps)} steps lost, bits of a run that was never stopped: {equal}"
        )
        sys.exit(not equal or slowest > LIMIT)


if __name__ == "__main__":
    main()
