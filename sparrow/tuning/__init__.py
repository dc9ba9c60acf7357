"""Tuning: a search over fields of a config, with Optuna. ``sparrow tune`` is the command line of it."""

from sparrow.tuning.study import Searched, Tuned, searched, tune
