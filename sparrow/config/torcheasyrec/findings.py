"""`Findings`: the problems of an import, and the outcome of every field."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from sparrow.errors import ConfigError, Path, Problem, dotted

Place = tuple[Path, int]
"""A field: its path in the file, and its line; 0: it comes from the command line."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one field of a file.

    Attributes:
      path: its place in the file.
      line: its line; 0: it comes from the command line.
      value: its value, as the file has it.
      text: the part of the config that it sets; or why it has no effect; or the problem.
      is_note: whether it is accepted without effect.
    """

    path: Path
    line: int
    value: str
    text: str
    is_note: bool = False

    def __str__(self) -> str:
        """Return one line of a report."""
        place = f"line {self.line}" if self.line else "command line"
        return f"{place}: {dotted(self.path)}: {self.value}: {self.text}"


class Findings:
    """Everything that an import learns of a file besides the config."""

    def __init__(self, source: str | None = None) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self._given: dict[Place, str] = {}
        self._set: dict[Place, dict[str, None]] = {}
        self._notes: dict[Place, str] = {}
        self._differences: dict[Place, str] = {}
        self._part = ""

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep the problems of a block of code, which ends at its first one, instead of raising them."""
        try:
            yield
        except ConfigError as error:
            self.problems += error.problems

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Name the part of the config that the fields read in this block of code set."""
        before, self._part = self._part, name
        try:
            yield
        finally:
            self._part = before

    def give(self, place: Place, value: str) -> None:
        """Take a field of the file, with its value; one of several is joined to the others."""
        self._given[place] = f"{self._given[place]}, {value}" if place in self._given else value

    def use(self, place: Place) -> None:
        """Take it that the field sets the current part of the config."""
        if self._part:
            self._set.setdefault(place, {})[self._part] = None

    def note(self, place: Place, text: str) -> None:
        """Take it that the field is accepted without effect."""
        self._notes[place] = text

    def differ(self, place: Place, text: str) -> None:
        """Take it that the field sets something whose numbers are not TorchEasyRec's."""
        self._differences[place] = text

    def refuse_unread(self) -> None:
        """Add a problem for each field that nothing read: nothing is skipped in silence."""
        refused = {(problem.path, problem.line) for problem in self.problems}
        for place in self._given:
            if place not in self._set and place not in self._notes and place not in refused:
                self.problems.append(Problem(place[0], "has no effect in this config; remove it", place[1]))

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of every field, in the order of the file."""
        refused = {(problem.path, problem.line): problem.message for problem in self.problems}
        made = []
        for place, value in sorted(self._given.items(), key=lambda item: item[0][1]):
            path, line = place
            if place in refused:
                text = f"refused: {refused[place]}"
            elif place in self._notes:
                text = f"no effect: {self._notes[place]}"
            else:
                text = f"sets {', '.join(self._set.get(place, ())) or 'nothing, because of the problems above'}"
                if place in self._differences:
                    text += f"; differs: {self._differences[place]}"
            made.append(Outcome(path, line, value, text, place in self._notes))
        return made

    def raise_problems(self) -> None:
        """Raise `ConfigError` with all problems, by line, where there are any."""
        if self.problems:
            ordered = sorted(dict.fromkeys(self.problems), key=lambda problem: problem.line or 0)
            unlined = [dataclasses.replace(problem, line=problem.line or None) for problem in ordered]
            raise ConfigError(unlined, self.source)
