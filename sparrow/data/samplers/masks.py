"""`Masks`: features of examples drawn at random read as if their columns were missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparrow.data.batch import Batch, Values, join, take
from sparrow.data.errors import Problems
from sparrow.data.features import Feature
from sparrow.data.samplers.base import Sampler, chances, drawn_bits

_STREAM: Final = 0x6D61736B  # apart from the draws of negatives


class Masks(Sampler):
    """Hides all of ``features`` in some examples, and in some drawn negatives.

    >>> from sparrow.data import IdFeature
    >>> item = IdFeature("item", num_buckets=9, embedding_dim=4, default=0)
    >>> masks = Masks([item], {"item": pa.int64()}, share=1.0)
    >>> masks.add(Batch(ids={"item": np.array([5, 7])}), 1).ids["item"].tolist()
    [0, 0]
    """

    def __init__(
        self,
        features: Sequence[Feature],
        kinds: Mapping[str, pa.DataType],
        *,
        share: float,
        negatives_share: float = 0.0,
        seed: int = 0,
        sampler: Sampler | None = None,
    ) -> None:
        """Convert a row of the features without values, once; ``kinds``: the types of their columns.

        ``share``: the chance of an example; ``negatives_share``: of a drawn item, or an example of a drawn node.
        ``sampler``: draws negatives first.
        """
        self.share, self.negatives_share, self.seed, self.sampler = share, negatives_share, seed, sampler
        self._missing: dict[tuple[str, str], Values] = {}
        for feature in (output for given in features for output in given.outputs):
            columns = {column: pa.nulls(1, kinds[column]) for column in feature.columns}
            problems = Problems(1)
            values = feature.convert(pa.RecordBatch.from_pydict(columns), problems)
            if problems.first is not None:
                raise ValueError(f"feature '{feature.name}' cannot be masked: {problems.first[2]}; give it a default")
            self._missing[feature.part, feature.name] = values
        names = ", ".join(name for _, name in self._missing)
        own = f"masks of {share} and {negatives_share} of {names}"
        self.fingerprint = own if sampler is None else f"{sampler.fingerprint}, {own}"

    def add(self, batch: Batch, number: int) -> Batch:
        """Return the batch with some values hidden; rows of padding stay."""
        if self.sampler is not None:
            batch = self.sampler.add(batch, number)
        drawn = batch.negatives
        if drawn is not None and self.negatives_share:
            drawn = self._hidden(drawn, number, self.negatives_share, _STREAM + 1)
        share: Any = self.share
        if self.sampler is not None and (negative := self.sampler.negative_rows(batch)) is not None:
            share = np.where(negative, self.negatives_share, self.share)
        return dataclasses.replace(self._hidden(batch, number, share, _STREAM), negatives=drawn)

    def _hidden(self, batch: Batch, number: int, share: Any, stream: int) -> Batch:
        hidden = chances(drawn_bits(self.seed, number, len(batch), stream=stream)) < share
        hidden[batch.examples :] = False
        parts: dict[str, Any] = {}
        for (part, name), missing in self._missing.items():
            held = parts.setdefault(part, dict(getattr(batch, part)))
            if name in held:
                places = np.where(hidden, len(hidden), np.arange(len(hidden)))
                held[name] = take(join([held[name], missing]), places)
        return dataclasses.replace(batch, **parts)
