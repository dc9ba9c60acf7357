"""The parser of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sparrow.cli import completion, configs, plan, serve, train, trained
from sparrow.cli.group import GROUP_HELP
from sparrow.versions import __version__

COMMANDS = (
    configs.init,
    train.train,
    train.tune,
    trained.evaluate,
    trained.predict,
    trained.recommend,
    trained.export,
    serve.serve,
    plan.report,
    plan.compare,
    plan.plan,
    plan.feed,
    configs.sample,
    trained.tree,
    configs.import_config,
    configs.vocab,
    completion.completion,
)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options. Overrides may appear anywhere; argparse by itself takes adjacent ones only."""
    parser = make_parser()
    if any("\0" in text for text in arguments or ()):
        parser.error("an argument holds a zero byte")
    options, others = parser.parse_known_args(arguments)
    if others and (not hasattr(options, "overrides") or any(text.startswith("-") for text in others)):
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    if others:
        options.overrides = [*options.overrides, *others]
    return options


class Parser(argparse.ArgumentParser):
    """A parser that answers an unknown command with the nearest one."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            from sparrow.registry import nearest

            raise argparse.ArgumentError(action, f"unknown '{value}': {nearest(str(value), map(str, action.choices))}")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(prog="sparrow", description="Trains recommendation models from a config.")
    parser.add_argument("--version", action="version", version=f"sparrow {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        added = commands.add_parser(command.name, help=command.text, description=command.text)
        added.set_defaults(command=command)
        added.add_argument("--quiet", action="store_true", help="write only results and errors")
        added.add_argument(
            "--import", dest="imports", action="append", metavar="FILE", help="Python file with parts of your own"
        )
        grouped = any(argument.of_group for argument in command.arguments)
        group = added.add_argument_group("several processes", GROUP_HELP) if grouped else added
        for argument in command.arguments:
            (group if argument.of_group else added).add_argument(*argument.flags, **argument.options)
    return parser
