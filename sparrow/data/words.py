"""`Words`: the file that gives the ids of a feature their rows, such as a vocabulary or a tokenizer."""

from __future__ import annotations

import abc
from typing import ClassVar

from sparrow.files import AnyPath, at


class Words(abc.ABC):
    """The content of a file that decides which row an id has. Runs and exports keep copies of it.

    Attributes:
      where: the name in errors: a feature, or a file.
      suffix: the end of a copy's name.
    """

    where: str
    suffix: ClassVar[str] = ".txt"

    @property
    @abc.abstractmethod
    def content(self) -> bytes:
        """The content of a file with these words. Equal words have equal contents."""

    def save(self, path: str | AnyPath) -> None:
        """Write the file."""
        at(path).write_bytes(self.content)
