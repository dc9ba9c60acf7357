"""Exact search among rows: the largest dot products of each query, without a matrix of all scores."""

from sparrow.kernels.search.exact import best_rows
from sparrow.kernels.search.on_device import Excluded, RowsOnDevice
