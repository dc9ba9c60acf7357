"""Generate bad inputs and feed them to the package: each must soon give a result or one of the package's own errors.

    python -m benchmarks.generated [--inputs 1000000] [--minutes 30] [--seed 0] [--only configs,ids]

Inputs are drawn from `FAMILIES` in turn: configs (mappings, JSON, YAML, TorchEasyRec's text, overrides), command lines,
rows of Arrow tables, CSV and Parquet files, ids to look up, and the files that describe checkpoints and exports. Each
family counts its inputs: a file of rows counts its rows. An input is a function of the seed and its number, so that a
failure is shown with the numbers that make it again. Any other exception is reported.
"""

import argparse
import collections
import contextlib
import io
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from benchmarks.generated_data import CsvRows, Ids, ParquetRows, TableRows
from benchmarks.generated_text import CommandLines, Configs, ConfigTexts, Descriptions, Overrides

FAMILIES = (Configs, ConfigTexts, Overrides, CommandLines, TableRows, CsvRows, ParquetRows, Ids, Descriptions)
HANG_SECONDS = 60
SHOWN = 20


class Hang(BaseException):
    """Raised for an input that takes too long."""


class Generator:
    """Feeds inputs, and counts them by family.

    Attributes:
      inputs, refused: by family, the number of inputs, and of calls that ended in an error of the package.
      failures: by exception and place, the first input that gave it, and the number of such inputs.
    """

    def __init__(self, folder: Path, seed: int, only: tuple[str, ...] = ()) -> None:
        self.seed, self.number = seed, 0
        self.families = [family(folder) for family in FAMILIES if not only or family.name in only]
        self.inputs: collections.Counter[str] = collections.Counter()
        self.calls: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self.failures: dict[tuple[str, str], list] = {}

    def one(self) -> None:
        """Return the next input."""
        family = self.families[self.number % len(self.families)]
        rng = random.Random(f"{self.seed}/{family.name}/{self.number}")
        signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
        try:
            count, refused = family.feed(rng)
            self.inputs[family.name] += count
            self.refused[family.name] += refused
        except (Exception, Hang) as error:
            self.inputs[family.name] += 1
            self._note(family.name, error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.calls[family.name] += 1
        self.number += 1

    def _note(self, family: str, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "/sparrow/" in frame.filename] or frames
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        key = type(error).__name__, where
        if key not in self.failures:
            text = "".join(traceback.format_exception(error))[-1500:]
            self.failures[key] = [0, f"{family}, number {self.number}, seed {self.seed}:\n{text}"]
            if len(self.failures) <= SHOWN:
                print(self.failures[key][1], file=sys.stderr, flush=True)
        self.failures[key][0] += 1

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count} ({self.refused[name]} refused)" for name, count in self.inputs.items())
        bad = sum(count for count, _ in self.failures.values())
        return f"{sum(self.inputs.values())} inputs in {sum(self.calls.values())} calls: {counts}; failures: {bad}"


@contextlib.contextmanager
def hangs_raise():
    """Raise `Hang` for an input that takes longer than `HANG_SECONDS`."""

    def raise_it(*_):
        raise Hang(f"no end after {HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    began = shown = time.monotonic()
    with tempfile.TemporaryDirectory(dir=place) as name, hangs_raise():
        made = Generator(Path(name), options.seed, tuple(filter(None, options.only.split(","))))
        while sum(made.inputs.values()) < options.inputs and time.monotonic() - began < 60 * options.minutes:
            with contextlib.redirect_stdout(io.StringIO()):
                made.one()
            if time.monotonic() - shown > 60:
                shown = time.monotonic()
                print(f"{shown - began:.0f} s: {made}", flush=True)
    print(f"{time.monotonic() - began:.0f} s: {made}")
    for (kind, where), (count, _) in made.failures.items():
        print(f"{count} times {kind} at {where}")
    sys.exit(bool(made.failures))


if __name__ == "__main__":
    main()
