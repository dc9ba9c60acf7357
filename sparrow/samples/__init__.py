"""Files that fit a config: rows with a signal, items, pairs and trees, to try a config without its data."""

from sparrow.samples.columns import Drawn, columns
from sparrow.samples.writing import write
