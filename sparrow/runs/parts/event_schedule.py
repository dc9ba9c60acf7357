"""`EventSchedule`: what is due by event time: after the first step for which the watermark has passed a boundary."""

from __future__ import annotations

from sparrow.config import Data
from sparrow.feed import WATERMARK
from sparrow.runs.loop.progress import Progress


class EventSchedule:
    """A schedule by event time. It depends on the progress of a run alone, so that a resumed run repeats it.

    >>> schedule = EventSchedule(10, None)
    >>> [schedule.is_due(Progress(event_time=60.0 * minute)) for minute in (8, 9, 11, 12, 35)]
    [False, False, True, False, True]
    """

    def __init__(self, minutes: float | None, data: Data | None) -> None:
        """Take the minutes between two boundaries, which are multiples of them since 1970; None: nothing is due."""
        self._seconds = None if minutes is None else 60 * minutes
        self._ticks = 1 if data is None else data.ticks
        self._number: int | None = None

    def is_due(self, progress: Progress) -> bool:
        """Return whether a boundary was passed since the last call; not in the first one that knows the time."""
        if self._seconds is None or (time := watermark(progress, self._ticks)) is None:
            return False
        before, number = self._number, int(time // self._seconds)
        self._number = number if before is None else max(before, number)
        return before is not None and number > before


def watermark(progress: Progress, ticks: int) -> float | None:
    """Return the watermark in seconds since 1970: of a source that does not grow, the time of the newest example.

    ``ticks``: the units of the data's times in a second. None: not known.
    """
    stream = progress.position.get("stream")
    if stream is None:
        return progress.event_time
    return None if stream.get(WATERMARK) is None else float(stream[WATERMARK]) / ticks
