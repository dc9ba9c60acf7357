"""Make runs fail in many ways, and check the guarantees afterwards.

    python -m benchmarks.soak [--minutes 60] [--seed 0] [--only failing,damaged,killed,reading,sigkill]

failing   a command in which the n-th file operation fails (EIO, ENOSPC, EACCES, ESTALE, EBUSY), or all from then on:
          eval, export, train --resume, a fresh train, report
damaged   a command on a run one of whose files is missing, empty, cut, flipped, longer, a folder or a link in a circle
killed    a run that is killed at the n-th file operation, again and again, and resumed each time
reading   readers of a run that saves each step and keeps one checkpoint
sigkill   a run that is killed at some moment, again and again, and resumed each time

No traceback; one line for a failure; a model that is loaded is one that was saved; a run that comes to its end is bit
for bit the undisturbed one; no checkpoint under a step's name is damaged by a kill; the best is never lost; files of
others are never touched. A broken guarantee raises, with its trial. The runs are tiny.
"""

import argparse
import random
import tempfile
import time
import warnings
from pathlib import Path

from benchmarks import faults

PARTS = {"failing": 12, "damaged": 12, "killed": 1, "reading": 1, "sigkill": 1}
"""The share of each kind of trial."""
OVERRIDES = ("train.steps=300", "train.checkpoint={every_steps: 3, keep: 2, best_by: {metric: auc, mode: max}}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--messages", type=int, default=0, help="number of the commands' last lines to show")
    options = parser.parse_args()
    faults.run_with_faults()
    from benchmarks.soak_trials import Trials
    from tests.runs import victim

    warnings.simplefilter("ignore")
    parts = [part for part in PARTS if not options.only or part in options.only.split(",")]
    began, shown = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name), random.Random(options.seed)
        trials = Trials(folder, rng)
        chain = None
        if "sigkill" in parts:
            process = victim.context().Process(
                target=victim.train, args=(OVERRIDES, folder / "undisturbed", folder / "cache")
            )
            process.start()
            process.join()
            assert process.exitcode == 0
            chain = victim.Chain(OVERRIDES, folder / "run", folder / "undisturbed", folder / "cache", options.seed)
        print(f"ready after {time.monotonic() - began:.0f} s; operations: {trials.operations}", flush=True)
        began = time.monotonic()

        def counts() -> str:
            made = ", ".join(f"{count} {kind}" for kind, count in sorted(trials.counts.items()))
            return f"{time.monotonic() - began:.0f} s: {made}" + (f"; {chain}" if chain is not None else "")

        while time.monotonic() - began < 60 * options.minutes:
            part = rng.choices(parts, [PARTS[part] for part in parts])[0]
            if part == "sigkill":
                assert chain is not None
                chain.one(chain.kills + 1)
            else:
                do = {"failing": trials.failing, "damaged": trials.damaged, "killed": trials.killed}
                do.get(part, trials.read_while_training)()
            if time.monotonic() - began - shown > 60:
                shown = time.monotonic() - began
                print(counts(), flush=True)
        for message, count in trials.messages.most_common(options.messages):
            print(f"{count} times {message}")
        print(f"{counts()}; exit codes {dict(sorted(trials.outcomes.items()))}: all guarantees held")


if __name__ == "__main__":
    main()
