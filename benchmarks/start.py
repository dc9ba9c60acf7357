"""Start-up time of the command line: medians of five cold and five warm starts.

python benchmarks/start.py [--folder build/start] [--runs 5]

Cold starts find no compiled programs of JAX in the cache; native kernels are built, as after an installation. Each
start is a process of its own. The first step is the first line of the log that `sparrow train` writes about a step,
with ``train.log_every_steps=1``, on the config of `make demo`. Processor time counts both cores.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROWS = 200_000
LIMITS = {
    "first line of train": (1.0, 1.0),
    "first step of train": (6.0, 3.0),
    "plan": (5.0, 5.0),
    "--help": (0.3, 0.3),
}
"""Seconds that each may take, cold and warm."""


class Seen(NamedTuple):
    """Seconds since the process began, and its processor time."""

    wall: float
    processor: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "start")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    folder = options.folder.resolve()
    for name, rows, start in (("train", ROWS, 0), ("evaluate", ROWS // 8, 100_000)):
        if not (folder / name / "train.txt").exists():
            sys.path.insert(0, str(ROOT / "examples"))
            from criteo import generate

            generate(folder / name / "train.txt", rows, start)
    paths = [f"data.{part}.path={folder / part}" for part in ("train", "evaluate")]
    config = [str(ROOT / "examples" / "deepfm_criteo.yaml"), *paths]
    steps = ["train.epochs=null", "train.steps=100", "train.log_every_steps=1", "evaluate.steps=1"]
    train = ["train", *config, *steps, "--model-dir", str(folder / "model"), "--overwrite"]
    commands: tuple[tuple[list[str], dict[str, str | None]], ...] = (
        (train, {"first line of train": "", "first step of train": r"^train +step 1/"}),
        (["plan", *config], {"plan": None}),
        (["--help"], {"--help": None}),
    )
    for arguments, marks in commands:  # builds kernels that are missing, writes byte code, fills the page cache
        print(f"before the first start: sparrow {arguments[0]}", flush=True)
        started(folder, arguments, marks)
    found: dict[str, dict[str, list[Seen]]] = {name: {"cold": [], "warm": []} for name in LIMITS}
    for number in range(options.runs):
        for arguments, marks in commands:  # a cold start leaves the programs that the warm one after it loads
            for kind in ("cold", "warm"):
                if kind == "cold":
                    forget(folder)
                for name, seen in started(folder, arguments, marks).items():
                    found[name][kind].append(seen)
                    times = f"{seen.wall:6.2f} s, {seen.processor:6.2f} s of processor time"
                    print(f"{number + 1}/{options.runs} {kind} {name:20}{times}", flush=True)
    print(f"\n{table(found)}\n\nload average at the end: {os.getloadavg()[0]:.1f}")


def forget(folder: Path) -> None:
    """Remove the programs that JAX keeps."""
    for programs in (folder / "cache").glob("programs-*"):
        shutil.rmtree(programs)


def started(folder: Path, arguments: list[str], marks: dict[str, str | None]) -> dict[str, Seen]:
    """Run a command, and return the time of the first line that matches each pattern; None: of its end.

    A command whose lines have all come is stopped: its end is of no interest.
    """
    environment = {**os.environ, "SPARROW_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has the byte code of all modules
    command = [sys.executable, "-m", "sparrow.cli", *arguments]
    began, found = time.perf_counter(), dict[str, Seen]()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        lines = []
        for line in process.stdout or ():
            lines.append(line)
            for name, pattern in marks.items():
                if pattern is not None and name not in found and re.search(pattern, line):
                    found[name] = Seen(time.perf_counter() - began, processor_time(process.pid))
            if len(found) == len(marks):
                process.kill()
                break
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and len(found) < len(marks):
        raise SystemExit(f"{' '.join(command)} failed:\n{''.join(lines)}")
    at_end = Seen(time.perf_counter() - began, used.ru_utime + used.ru_stime)
    return found | {name: at_end for name, pattern in marks.items() if pattern is None}


def processor_time(pid: int) -> float:
    """Return the processor time of a running process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(found: dict[str, dict[str, list[Seen]]]) -> str:
    """Return the medians as a table of Markdown."""
    lines = [
        "| | cold: wall | processor | limit | warm: wall | processor | limit |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, kinds in found.items():
        cells = []
        for kind, limit in zip(("cold", "warm"), LIMITS[name], strict=True):
            for part in Seen._fields:
                cells.append(f"{statistics.median(getattr(seen, part) for seen in kinds[kind]):.2f} s")
            cells.append(f"{limit:g} s")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
