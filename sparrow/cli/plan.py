"""``sparrow plan``, ``feed``, ``report`` and ``compare``: a config before it is trained, and runs as they are read."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from sparrow.cli.command import JSON, above_zero, arg, at_least_one, command, seconds
from sparrow.cli.inputs import CONFIG, given_config
from sparrow.cli.output import Mistake, note, out


@command(
    "plan",
    *CONFIG,
    JSON,
    arg("--devices", type=at_least_one, metavar="N", help="devices; by default those of train.mesh"),
    arg("--processes", type=at_least_one, default=1, metavar="P", help="processes that share them"),
    arg("--link", type=above_zero, default=50.0, help="GB/s between devices of a process; 50 unless given"),
    arg("--network", type=above_zero, default=12.5, help="GB/s of a process to others; 12.5 unless given"),
    arg("--memory", type=above_zero, help="GB/s of a device's memory; by default as measured here"),
    arg("--latency", type=above_zero, default=50.0, help="microseconds of a collective; 50 unless given"),
    arg("--save", metavar="FILE", help="write the config with this placement of its tables, for as many devices"),
    modules=("sparrow.planning",),
)
def plan(options: argparse.Namespace) -> None:
    """Predict the memory and speed of a config, without training."""
    from sparrow import planning

    loaded = given_config(options)
    made, many = planning.plan(loaded), None
    devices = options.devices or (loaded.train.mesh.data if loaded.train.mesh is not None else 1)
    if devices > 1 or options.processes > 1:
        memory = None if options.memory is None else options.memory * 1e9
        links = planning.Links(options.link * 1e9, options.network * 1e9, options.latency * 1e-6, memory)
        many = planning.spread(loaded, made, max(devices, options.processes), options.processes, links)
    if options.save is not None:
        _save(loaded, many, options.save)
    if options.json:
        out(json.dumps(made.to_dict() | ({} if many is None else {"spread": many.to_dict()}), indent=1))
        return
    planning.show(made)
    if many is not None:
        planning.show_spread(many)


def _save(loaded: Any, many: Any, path: str) -> None:
    from sparrow import config
    from sparrow.errors import ConfigError

    if many is None:
        raise ConfigError("--save writes the placement of tables on several devices; give --devices")
    fields = config.plain(loaded, defaults=False)
    mesh = {**(fields["train"].get("mesh") or {}), "data": many.devices, "placement": many.placement}
    fields["train"] = {**fields["train"], "mesh": mesh}
    Path(path).write_text(config.dumps(config.from_mapping(fields)), encoding="utf-8")


@command(
    "feed",
    *CONFIG,
    arg("--seconds", type=seconds, default=10.0, help="to measure, at most; 10 unless given"),
    JSON,
    modules=("sparrow.runs",),
)
def feed(options: argparse.Namespace) -> None:
    """Time the way from files to the device alone, and name its slowest stage."""
    from sparrow import runs

    times = runs.time_feed(given_config(options), options.seconds)
    out(json.dumps(times.to_dict(), indent=1) if options.json else "\n".join(times.lines()))


_RUNS = arg("runs", nargs="+", metavar="RUN", help="the folder of a run, finished or not")


@command(
    "report",
    _RUNS,
    arg("--output", metavar="FILE", help="by default RUN/report.html; for several runs, report.html"),
)
def report(options: argparse.Namespace) -> None:
    """Write the report of a run, or of several compared, as one HTML file."""
    from sparrow.reports import unshared, write_report

    for line in unshared(options.runs):
        note(f"sparrow: {line}")
    out(str(write_report(options.runs, options.output)))


@command(
    "compare",
    _RUNS,
    arg("--by", metavar="NUMBER", help="the number to sort by, such as auc; by default the given order"),
    JSON,
)
def compare(options: argparse.Namespace) -> None:
    """Show the last numbers of runs, and the fields of their configs that differ."""
    from sparrow import reports

    compared = reports.compare(options.runs)
    if options.by is not None:
        if options.by not in compared.numbers:
            raise Mistake(f"--by: the runs have no number '{options.by}'; they have {', '.join(compared.numbers)}")
        compared = compared.sorted_by(options.by)
    out(json.dumps(compared.to_dict(), indent=1) if options.json else compared.text())
