"""Exports: a trained model as StableHLO and safetensors. `sparrow.serving` opens them, without the model's code."""

from sparrow.exports.exporting import export, give_rows
from sparrow.exports.folder import refuse
from sparrow.exports.timed import TimedExports

__all__ = [
    "export",
]


def __dir__() -> list[str]:
    return __all__
