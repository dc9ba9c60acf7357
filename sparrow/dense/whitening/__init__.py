"""Whitening optimizers: quad and skew.

A gradient is multiplied from both sides by factors that are fitted, step by step, so that what comes out is
white: uncorrelated, and of the same size in every direction.
"""

from sparrow.dense.whitening.optimizers import Quad, Skew
from sparrow.dense.whitening.transform import WhiteningState
