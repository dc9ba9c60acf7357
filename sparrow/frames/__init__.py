"""Frames: from a table to a config and a trained model, without a file.

`fit` trains a model on a frame; `guess` gives the config that it would train, to look at, change and save;
`first_config` is that config for a file as text, with the reason for each guess. All of them read columns alike.
"""

from sparrow.frames.columns import Reading, read_column
from sparrow.frames.first import first_config
from sparrow.frames.guessing import Guess, fit, guess
