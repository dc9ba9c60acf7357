"""Pipelines of tests."""

from sparrow.data import Converter
from sparrow.feed import Batching, Pipeline


def pipeline_of(source, features, labels=(), weights=(), keys=(), prepare=None, negatives=None, **batching):
    """Return the pipeline of some columns; ``batching``: the fields of `Batching`."""
    converter = Converter(features, labels, weights, keys)
    return Pipeline(source, converter, Batching(**batching), prepare=prepare, negatives=negatives)
