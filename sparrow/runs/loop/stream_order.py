"""`StreamOrder`: the order of the entries of a stream, which the first of several processes decides.

Entries are short messages with a number each. The others acknowledge every `EACH` of them, and the first process then
removes what all have read, so that a run that never ends keeps few of them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparrow import processes
from sparrow.config import Config, ConfigError
from sparrow.data import AUTO, Growing
from sparrow.feed import Pipeline

EACH: Final = 64
_NUMBERS: Final = itertools.count()  # all processes open the same streams in the same order


class StreamOrder:
    """The entries, as `sparrow.data.Order` has them.

    Attributes:
      is_first: whether this process decides the order.
    """

    def __init__(self, wants_stop: Callable[[], int]) -> None:
        """Begin. ``wants_stop``: returns the number of the signal that this process received, or 0."""
        self.is_first = processes.is_first()
        self._name, self._wants_stop = f"sparrow/stream/{next(_NUMBERS)}", wants_stop
        self._at = self._removed = 0
        self._asked = False  # this process has published its wish to stop
        self._acknowledged = dict.fromkeys(range(1, processes.count()), 0)

    def put(self, entry: Mapping[str, Any]) -> None:
        """Give the next entry to the others, and remove those that all have read."""
        processes.publish(f"{self._name}/{self._at}", json.dumps(entry))
        self._at += 1
        if self._at % EACH:
            return
        for number, count in self._acknowledged.items():
            while processes.found(self._receipt(number, count + EACH)) is not None:
                processes.withdraw(self._receipt(number, count + EACH))
                self._acknowledged[number] = count = count + EACH
        for entry_number in range(self._removed, min(self._acknowledged.values())):
            processes.withdraw(f"{self._name}/{entry_number}")
            self._removed = entry_number + 1

    def get(self) -> dict[str, Any] | None:
        """Return the next entry; None: it is not there yet."""
        text = processes.found(f"{self._name}/{self._at}")
        if text is None:
            if not self._asked and self._wants_stop():
                self._asked = True
                processes.publish(f"{self._name}/stop/{processes.index()}", "")
            return None
        self._at += 1
        if not self._at % EACH:
            processes.publish(self._receipt(processes.index(), self._at), "")
        entry: dict[str, Any] = json.loads(text)
        return entry

    def is_stopped(self) -> bool:
        """Return whether some process received a signal to end."""
        others = (processes.found(f"{self._name}/stop/{number}") for number in self._acknowledged)
        return bool(self._wants_stop()) or any(text is not None for text in others)

    def _receipt(self, number: int, count: int) -> str:
        return f"{self._name}/read/{number}/{count}"


def refuse_own_words(config: Config) -> None:
    """Refuse vocabularies that each process would build from the first rows of a stream that it sees."""
    data = config.data
    if data is None or processes.count() == 1 or not isinstance(data.train, Growing):
        return
    for place, feature in enumerate(data.features):
        if getattr(feature, "vocabulary", None) == AUTO and "words" not in vars(feature):
            why = "auto would differ between processes that follow one stream; list the words, or use dynamic"
            raise ConfigError(why, at=("data", "features", place, "vocabulary"))


def agree_on_stream(pipeline: Pipeline[Any], wants_stop: Callable[[], int]) -> None:
    """Let all processes read the entries of a source that grows in one order. They call this together."""
    if pipeline.stream is not None and processes.count() > 1:
        pipeline.agree(StreamOrder(wants_stop))
