"""The command line: ``sparrow COMMAND``, one file of this folder for each command.

A user's mistake gives one line on the standard error for each problem, and exit code 2; never a traceback.
"""

from sparrow.cli.entry import main
