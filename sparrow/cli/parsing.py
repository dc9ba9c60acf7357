"""The parser of all commands, and ``sparrow completion``: scripts that complete them in a shell."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence

from sparrow.cli import configs, plan, serve, train, trained
from sparrow.cli.command import Command, arg, command
from sparrow.cli.group import GROUP_HELP
from sparrow.cli.output import out
from sparrow.versions import __version__

BASH = """\
_sparrow() {
    local word="${COMP_WORDS[COMP_CWORD]}" words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="%(commands)s --help --version"
    else
        case "${COMP_WORDS[1]}" in
%(cases)s
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [ "$COMP_CWORD" -gt 1 ] && [ "${word#-}" = "$word" ]; then
        COMPREPLY+=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _sparrow sparrow
"""

ZSH = """\
#compdef sparrow
autoload -Uz bashcompinit && bashcompinit
"""


@command("completion", arg("shell", choices=("bash", "zsh")))
def completion(options: argparse.Namespace) -> None:
    """Write a script of completions: source <(sparrow completion bash), or zsh."""
    out((ZSH if options.shell == "zsh" else "") + _script(make_parser()), end="")


def _script(parser: argparse.ArgumentParser) -> str:
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices
    cases = "\n".join(
        f'            {name}) words="{" ".join(_words(command))}" ;;' for name, command in commands.items()
    )
    return BASH % {"commands": " ".join(commands), "cases": cases}


def _words(command: argparse.ArgumentParser) -> list[str]:
    """Return the options of a command, and the values of the arguments that have a few."""
    shown = [action for action in command._actions if action.help != argparse.SUPPRESS]
    options = [option for action in shown for option in action.option_strings if option.startswith("--")]
    return options + [str(choice) for action in shown if not action.option_strings for choice in action.choices or ()]


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
    completion,
)


COMMON = (
    arg("--quiet", action="store_true", help="write only results and errors"),
    arg("--import", dest="imports", action="append", metavar="FILE", help="Python file with parts of your own"),
)
"""The options of every command."""


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options. Overrides may appear anywhere; argparse by itself takes adjacent ones only."""
    parser = make_parser()
    if any("\0" in text for text in arguments or ()):
        parser.error("an argument holds a zero byte")
    options, others = parser.parse_known_args(arguments)
    if others and (not hasattr(options, "overrides") or any(text.startswith("-") for text in others)):
        parser.error(_unknown(next((text for text in others if text.startswith("-")), others[0]), options.command))
    if others:
        options.overrides = [*options.overrides, *others]
    return options


def _unknown(text: str, command: Command) -> str:
    """Return the sentence for an argument that the command does not have."""
    flags = [flag for argument in (*COMMON, *command.arguments) for flag in argument.flags if flag.startswith("-")]
    name = text.partition("=")[0]
    if name in flags:
        return f"write {name} after the command: sparrow {command.name} {name}"
    if not name.startswith("-"):
        return f"unexpected argument '{text}'"
    close = difflib.get_close_matches(name, flags, n=1)
    return f"{command.name} has no option {name}" + (f": did you mean {close[0]}?" if close else "")


class Parser(argparse.ArgumentParser):
    """A parser that answers an unknown command with the nearest one, and a wrong value with what it must be."""

    def _get_value(self, action: argparse.Action, arg_string: str) -> object:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            if not isinstance(error.__context__, ValueError):
                raise
            name = "integer" if action.type is int else getattr(action.type, "__name__", "value")
            raise argparse.ArgumentError(action, f"'{arg_string}' is not a valid {name}") from None

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            from sparrow.registry import nearest

            raise argparse.ArgumentError(action, f"unknown '{value}': {nearest(str(value), map(str, action.choices))}")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(prog="sparrow", description="Trains recommendation models from a config.")
    parser.add_argument("--version", action="version", version=f"sparrow {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for one in COMMANDS:
        added = commands.add_parser(one.name, help=one.text, description=one.text)
        added.set_defaults(command=one)
        grouped = any(argument.of_group for argument in one.arguments)
        group = added.add_argument_group("several processes", GROUP_HELP) if grouped else added
        for argument in (*COMMON, *one.arguments):
            (group if argument.of_group else added).add_argument(*argument.flags, **argument.options)
    return parser
