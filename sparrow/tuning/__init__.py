"""Tuning: a search over fields of a config, with Optuna. ``sparrow tune`` is the command line of it."""

from sparrow.tuning.space import Searched, searched
from sparrow.tuning.study import Tuned, tune
