"""Negatives: items that are drawn for a batch from a table of items, to train models that find the chosen item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.data.batch import Batch
from sparrow.data.block import concatenate
from sparrow.data.converter import Converter
from sparrow.data.errors import DataError
from sparrow.data.features import Feature
from sparrow.data.hashing import mix64
from sparrow.data.sources.base import BadRows, Reader, Rows, Source
from sparrow.data.values import element_type, is_list, is_text

ID = "id"
"""The key of a drawn item's id in its `Batch`."""


class NegativeSampler:
    """Draws of items with replacement: uniformly, or in proportion to their weights.

    The draw for a batch depends on the seed and the batch's number alone: restoring a position of a pipeline draws the
    same again.

    >>> from sparrow.data import IdFeature, Tables
    >>> items = Tables({"item": [3, 5, 8], "count": [0.0, 1.0, 0.0]})
    >>> features = [IdFeature("item", num_buckets=10, embedding_dim=4)]
    >>> sampler = NegativeSampler(items, features, id_column="item", weight_column="count", count=4)
    >>> sampler.draw(batch=0).ids["item"].tolist()
    [5, 5, 5, 5]
    """

    def __init__(
        self,
        items: Source,
        features: Sequence[Feature],
        *,
        id_column: str,
        count: int,
        weight_column: str | None = None,
        seed: int = 0,
        like: Mapping[str, Any] | None = None,
        bad_rows: BadRows = "error",
    ) -> None:
        """Read all items.

        Args:
          items: a row per item, with the columns that the features need.
          features: the features that describe an item.
          id_column: the column that identifies an item.
          count: the number of items to draw for a batch.
          weight_column: the column of weights; items are drawn in proportion to them; None: uniformly.
          seed: the seed of the draws.
          like: the Arrow types of the same columns in the examples. Where one side holds strings and the other numbers,
            the items are read as the examples are, because 17 and "17" have different hashes.
          bad_rows: the policy for malformed items: "error", or "skip" to leave them out.
        """
        fields.integer("count", count)
        self.count, self.seed = count, seed
        weights = [] if weight_column is None else [weight_column]
        converter = Converter(features, [], weights, [id_column])
        reader = items.open(converter.columns)
        if not reader.num_chunks:
            raise DataError("there are no items", reader.schemas[0][0])
        converter.check(reader)
        parts = [
            converter.convert(_alike(reader.read(chunk, bad_rows), like or {}), bad_rows)[0]
            for chunk in range(reader.num_chunks)
        ]
        rows = concatenate(parts).to_batch()
        self.fingerprint = f"{reader.fingerprint}/{count}/{weight_column}"
        self._limits = None if weight_column is None else _limits(rows.weights[weight_column], weight_column, reader)
        self._items = Batch(rows.ids, rows.numbers, rows.sequences, keys={ID: rows.keys[id_column]})
        if not len(self._items):
            raise DataError("no item can be used", reader.schemas[0][0])

    def draw(self, batch: int) -> Batch:
        """Return the negatives of the batch of this number."""
        key = mix64(mix64(np.array([self.seed], np.uint64)) ^ np.uint64(batch))
        drawn = mix64(np.arange(self.count, dtype=np.uint64) ^ key)
        if self._limits is None:
            return self._items.take((drawn % np.uint64(len(self._items))).astype(np.int64))
        chances = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53  # in [0, 1)
        return self._items.take(np.searchsorted(self._limits, chances, side="right"))


def _limits(weights: npt.NDArray[np.float32], column: str, reader: Reader) -> npt.NDArray[np.float64]:
    """Return the limits: item i is drawn by numbers from the previous limit up to its own."""
    sums = np.cumsum(weights, dtype=np.float64)
    if not sums.size or not sums[-1] > 0:
        raise DataError("all weights are 0: no item can be drawn", reader.schemas[0][0], column=column)
    limits: npt.NDArray[np.float64] = sums / sums[-1]
    return limits


def _alike(rows: Rows, like: Mapping[str, Any]) -> Rows:
    """Return the rows with strings and numbers where the examples have them."""
    table = rows.table
    for place, field in enumerate(table.schema):
        wanted = like.get(field.name)
        is_same = wanted is None or is_text(element_type(wanted)) == is_text(element_type(field.type))
        if wanted is not None and (is_list(wanted) != is_list(field.type) or (is_list(wanted) and not is_same)):
            raise DataError(f"holds {field.type}, the examples {wanted}; make them alike", rows.file, column=field.name)
        if is_same:
            continue
        column = table[place]
        column = column.cast(element_type(field.type)) if pa.types.is_dictionary(field.type) else column
        try:
            column = column.cast(pa.string() if is_text(element_type(wanted)) else element_type(wanted))
        except pa.ArrowInvalid as error:
            why = f"cannot be read as {element_type(wanted)}, which the examples hold: {error}"
            raise DataError(why, rows.file, column=field.name) from None
        table = table.set_column(place, field.name, column)
    return Rows(table, rows.file, rows.place, rows.skipped)
