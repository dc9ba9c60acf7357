"""Kills a run with SIGKILL again and again, resumes it each time, and compares the end with an undisturbed run.

    python -m benchmarks.soak [--kills 200] [--seed 0]

The run is tiny and saves every third step, so that many kills fall into a save. Every run that comes to its end is
compared with the undisturbed one: tables, slots, dense parameters, the average, random keys, metrics and the log, bit
for bit. What is different raises.
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.runs import victim

OVERRIDES = ("train.steps=300", "train.checkpoint={every_steps: 3, keep: 2, best_by: {metric: auc, mode: max}}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        undisturbed, cache = folder / "undisturbed", folder / "cache"
        process = victim.context().Process(target=victim.train, args=(OVERRIDES, undisturbed, cache))
        process.start()
        process.join()
        assert process.exitcode == 0
        began = time.monotonic()
        chain = victim.Chain(OVERRIDES, folder / "run", undisturbed, cache, options.seed)
        for kills in range(20, options.kills + 1, 20):
            while chain.kills < kills:
                chain.one(kills)
            print(f"{chain}  {time.monotonic() - began:.0f} s", flush=True)
        chain.go(options.kills)
        print(f"{chain}  {time.monotonic() - began:.0f} s: every run ended as the undisturbed one did, bit for bit")


if __name__ == "__main__":
    main()
