"""Serving: exported models, and the predictions of any model for files. Needs no model's code.

`load` opens an export::

    model = sparrow.serving.load("exported")
    model.signature                                             # inputs and outputs, in words
    model.predict({"user": [1, 2], "item": [30, 31]})           # {"click": array([0.12, 0.48])}
    model.vectors("item", items)                                # with two towers: for an index
    sparrow.serving.predict(model, "rows.parquet", "scores.parquet")
"""

from sparrow.serving.columns import arrow_column
from sparrow.serving.deltas import Delta, Version
from sparrow.serving.files import predict
from sparrow.serving.function import Function, KeptPrograms
from sparrow.serving.histories import Histories, States, states_of
from sparrow.serving.model import ExportedModel, Ranker, is_export, load
from sparrow.serving.parts import CUSTOM_CALLS, called

__all__ = [
    "ExportedModel",
    "Ranker",
    "Version",
    "load",
    "predict",
]


def __dir__() -> list[str]:
    return __all__
