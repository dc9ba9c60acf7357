"""`QualityCounts`: the data of the charts of an evaluation, whatever the tasks predict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparrow.tasks.candidates import by_candidate
from sparrow.tasks.histograms import ScoreHistograms
from sparrow.tasks.rank_counts import RankCounts
from sparrow.tasks.task import Arrays, Task
from sparrow.tasks.value_counts import ValueCounts

States = dict[str, Any]


class QualityCounts:
    """Counts of fixed size for each task: of probabilities, numbers, or ranks. Other tasks have none."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._parts: dict[str, Any] = {
            "scores": ScoreHistograms(tasks),
            "values": ValueCounts(tasks),
            "ranks": RankCounts(tasks),
        }

    def init(self) -> States:
        """Nothing counted."""
        return {name: part.init() for name, part in self._parts.items()}

    def update(self, states: States, outputs: Arrays, columns: Arrays) -> States:
        """Return the states with one more batch; runs inside jitted functions."""
        outputs, columns = by_candidate(self._tasks, outputs, columns)
        return {name: part.update(states[name], outputs, columns) for name, part in self._parts.items()}

    def plain(self, states: States) -> dict[str, Any]:
        """Return the counts by task, for JSON."""
        made: dict[str, Any] = {}
        for name, part in self._parts.items():
            made |= part.plain(states[name])
        return made
