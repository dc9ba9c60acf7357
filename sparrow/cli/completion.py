"""``sparrow completion``: scripts that complete commands and options in a shell."""

from __future__ import annotations

import argparse

from sparrow.cli.command import arg, command
from sparrow.cli.output import out

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
    from sparrow.cli.parsing import make_parser

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
