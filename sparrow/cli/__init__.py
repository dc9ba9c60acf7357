"""The command line: ``sparrow COMMAND``, in this folder one file for commands of a kind.

A user's mistake gives one line on the standard error for each problem, and exit code 2; never a traceback.
"""

from sparrow.cli.entry import main
