"""``sparrow eval``."""

from __future__ import annotations

import argparse
import json

from sparrow.cli.command import Command, add_json, add_overrides, add_step
from sparrow.cli.given_config import add_path
from sparrow.cli.group import add_group
from sparrow.cli.output import Mistake, note, out
from sparrow.cli.saved import loaded


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("model_dir")
    add_overrides(parser)
    add_path(parser, "eval_input_path")
    add_step(parser)
    add_json(parser)
    add_group(parser)


def run(options: argparse.Namespace) -> None:
    """Evaluate a saved model on its data for evaluation."""
    run = loaded(options)
    if options.eval_input_path is None and run.config.data.evaluate_rows is None:
        raise Mistake(
            f"{options.model_dir}: the run has no data to evaluate on; "
            "add data.evaluate to the config, or give --eval-input-path FILE"
        )
    evaluator = run.evaluator(options.eval_input_path)
    results = evaluator(run.state, note)
    if options.json:
        out(json.dumps({name: value if value == value else None for name, value in results.items()}))
        for line in evaluator.undefined():
            note(line)
        return
    width = max(map(len, results))
    for name, value in results.items():
        why = f"  ({evaluator.reasons[name]})" if name in evaluator.reasons else ""
        out(f"{name:{width}}  {value:.6g}{why}")


COMMAND = Command("eval", "Evaluate a trained model.", arguments, run, compiles=True, modules=("sparrow.runs",))
