"""Criteo's click logs as they are published: Kaggle's display advertising challenge and the terabyte logs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from sparrow import fields
from sparrow.data.errors import DataError
from sparrow.data.features import Feature, IdFeature, RawFeature
from sparrow.data.sources.base import Reader, Source, register_source
from sparrow.data.sources.text import Csv
from sparrow.files import AnyPath, at

COUNTS = tuple(f"count_{i}" for i in range(1, 14))
CATEGORIES = tuple(f"category_{i}" for i in range(1, 27))


@register_source("criteo")
@dataclasses.dataclass(frozen=True)
class Criteo(Source):
    """Tab-separated lines of a label, 13 counts and 26 categories in hexadecimal.

    Columns: label, count_1 to count_13, category_1 to category_26.

    Attributes:
      path: the folder of train.txt and test.txt (Kaggle) or of day_0 to day_23 (terabyte), each plain or
        with .gz, or one such file.
      part: "train", or "test" (Kaggle's, which has no labels).
      days: the days of the terabyte logs; None: all that exist.
      chunk_bytes: the bytes to convert at a time, and the unit of shuffling.
    """

    path: str
    part: Literal["train", "test"] = "train"
    days: tuple[int, ...] | None = None
    chunk_bytes: int = 8 * 2**20

    def __post_init__(self) -> None:
        fields.check(self, "source 'criteo': ")
        if self.part == "test" and self.days is not None:
            raise ValueError("source 'criteo': days belong to the terabyte logs, which have no part 'test'")

    def column_names(self) -> list[str]:
        return [*([] if self.part == "test" else ["label"]), *COUNTS, *CATEGORIES]

    def open(self, columns: Sequence[str]) -> Reader:
        names = tuple(self.column_names())
        return Csv(self._files(), names, "\t", quote=None, chunk_bytes=self.chunk_bytes).open(columns)

    def _files(self) -> str | tuple[str, ...]:
        folder = at(self.path)
        if not folder.is_dir():
            return self.path
        if self.days is not None:
            return tuple(str(_published(folder / f"day_{day}") or folder / f"day_{day}") for day in self.days)
        kaggle = _published(folder / f"{self.part}.txt")
        if kaggle is not None:
            return str(kaggle)
        days = [str(file) for day in range(24) if (file := _published(folder / f"day_{day}")) is not None]
        if days and self.part == "train":
            return tuple(days)
        raise DataError(
            f"the folder holds neither {self.part}.txt nor day_0; name the folder of Criteo's files", self.path
        )

    @staticmethod
    def features(hash_bucket_size: int = 100_000, embedding_dim: int = 16) -> list[Feature]:
        """Return the usual features: the counts' logarithms, and the categories hashed."""
        counts: list[Feature] = [RawFeature(name, log=True) for name in COUNTS]
        return counts + [
            IdFeature(name, hash_bucket_size=hash_bucket_size, embedding_dim=embedding_dim) for name in CATEGORIES
        ]


def _published(file: AnyPath) -> AnyPath | None:
    """Return the file, or its published archive; None where there is neither."""
    return next((found for found in (file, file.with_name(f"{file.name}.gz")) if found.is_file()), None)
