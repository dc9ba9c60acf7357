"""The elements of sequences as rows of their own, so that whatever reads rows reads elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.errors import Problems
from sparrow.data.values import flatten, plain, with_one_entry


class Elements(NamedTuple):
    """The elements of a batch's sequences.

    Attributes:
      batch: an Arrow record batch with a row for each element.
      rows: the row that each element is in.
      offsets: (rows + 1,) where the elements of each row begin.
    """

    batch: Any
    rows: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


def elements_of(
    columns: Any,
    names: Sequence[str],
    sequences: Sequence[str],
    separator: str | None,
    problems: Problems,
    *,
    is_filled: bool = False,
) -> Elements | None:
    """Return the elements of the columns ``sequences``; the other ones of ``names`` are repeated for each element.

    None where their lengths differ: these rows are added to the problems. ``is_filled``: a row without elements has a
    missing one.
    """
    flats = {name: flatten(plain(columns.column(name)), separator) for name in sequences}
    if is_filled:
        flats = {name: with_one_entry(flat)[0] for name, flat in flats.items()}
    ends = {
        name: np.arange(len(flat.entries) + 1) if flat.offsets is None else flat.offsets for name, flat in flats.items()
    }
    first, offsets = sequences[0], ends[sequences[0]]
    lengths = np.diff(offsets)
    for name, own in ends.items():
        counts = np.diff(own)
        if (differ := np.flatnonzero(counts != lengths)).size:
            problems.add(
                name,
                differ,
                lambda i, counts=counts, differ=differ: (  # type: ignore[misc]
                    f"sequences must have one length, got {lengths[differ[i]]} of '{first}' and {counts[differ[i]]}"
                ),
            )
            return None
    rows = np.repeat(np.arange(columns.num_rows), lengths)
    arrays = [flats[name].entries if name in flats else columns.column(name).take(pa.array(rows)) for name in names]
    return Elements(pa.RecordBatch.from_arrays(arrays, list(names)), rows, offsets)
