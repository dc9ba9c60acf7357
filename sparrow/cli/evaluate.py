"""``sparrow eval``."""

from __future__ import annotations

import argparse
import json

from sparrow.cli.command import Command, add_json, add_overrides, add_step
from sparrow.cli.given_config import OURS, add_path
from sparrow.cli.group import add_group
from sparrow.cli.output import note, out
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
    from sparrow import runs

    if options.eval_input_path is not None:
        options.overrides = [*options.overrides, f"{OURS['eval_input_path']}={json.dumps(options.eval_input_path)}"]
    program, state = loaded(options)
    results = runs.Evaluator(program)(state, note)
    if options.json:
        out(json.dumps({name: value if value == value else None for name, value in results.items()}))
        return
    width = max(map(len, results))
    for name, value in results.items():
        out(f"{name:{width}}  {value:.6g}")


COMMAND = Command("eval", "Evaluate a trained model.", arguments, run, compiles=True)
