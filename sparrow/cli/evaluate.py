"""``sparrow eval``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sparrow.cli.command import JSON, OVERRIDES, STEP, arg, at_least_one, command
from sparrow.cli.group import GROUP
from sparrow.cli.inputs import PATHS, loaded
from sparrow.cli.output import Mistake, note, out


@command(
    "eval",
    arg("model_dir"),
    OVERRIDES,
    PATHS["eval_input_path"],
    STEP,
    JSON,
    arg("--export", metavar="FOLDER", help="show the metrics of an export of this run beside its own"),
    arg(
        "--importance",
        type=at_least_one,
        nargs="?",
        const=20_000,
        metavar="ROWS",
        help="show the growth of the loss when the values of a feature are permuted, on 20,000 rows unless given, and "
        "keep it for the report",
    ),
    *GROUP,
    modules=("sparrow.runs",),
)
def evaluate(options: argparse.Namespace) -> None:
    """Evaluate a trained model."""
    run = loaded(options)
    if options.eval_input_path is None and run.config.data.evaluate_rows is None:
        raise Mistake(
            f"{options.model_dir}: the run has no data to evaluate on; "
            "add data.evaluate to the config, or give --eval-input-path FILE"
        )
    if options.importance is not None:
        _importance(run, options)
        return
    evaluator = run.evaluator(options.eval_input_path)
    results = evaluator(run.state, note)
    if options.export is not None:
        _beside(results, run.evaluate(options.eval_input_path, export=options.export), options)
        return
    if options.json:
        out(json.dumps({name: value if value == value else None for name, value in results.items()}))
        for line in evaluator.undefined():
            note(line)
        return
    width = max(map(len, results))
    for name, value in results.items():
        why = f"  ({evaluator.reasons[name]})" if name in evaluator.reasons else ""
        out(f"{name:{width}}  {value:.6g}{why}")


def _beside(own: dict[str, float], exported: dict[str, float], options: argparse.Namespace) -> None:
    if options.json:
        out(json.dumps({"run": own, "export": exported}))
        return
    width = max(map(len, own))
    out(f"{'':{width}}  {'run':>10}  {'export':>10}  difference")
    for name, value in own.items():
        other = exported.get(name)
        more = f"{'-':>10}" if other is None else f"{other:10.6f}  {other - value:+.6f}"
        out(f"{name:{width}}  {value:10.6f}  {more}")


def _importance(run: Any, options: argparse.Namespace) -> None:
    found = run.importance(options.eval_input_path, rows=options.importance, log=note, save=True)
    if options.json:
        out(json.dumps(found))
        return
    width = max(map(len, found))
    for name, results in found.items():
        out(f"{name:{width}}  " + "  ".join(f"{result} {value:+.4g}" for result, value in results.items()))
