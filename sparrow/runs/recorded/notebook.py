"""Progress in a notebook: one display that is updated in place, and lines below it."""

from __future__ import annotations

import importlib
import sys
import time
from html import escape
from typing import Any, Final

INTERVAL: Final = 0.2
"""Seconds between two updates of the display."""


def is_notebook() -> bool:
    """Return whether this is the kernel of a notebook."""
    if "IPython" not in sys.modules:  # a notebook has always imported it
        return False
    shell: Any = importlib.import_module("IPython").get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """The progress of a run as an HTML bar; the interface of the bar on a terminal."""

    def __init__(self, total: int | None, done: int) -> None:
        display: Any = importlib.import_module("IPython.display")
        self._html, self._total, self._done, self._values = display.HTML, total, done, ""
        self._shown_at = self._began = time.monotonic()
        self._first = done
        self._display = display.display(self._html(self.html()), display_id=True)

    def advance(self) -> None:
        self._done += 1
        self._update()

    def show(self, values: str) -> None:
        self._values = values
        self._update(now=True)

    def line(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        self._update(now=True)

    def _update(self, now: bool = False) -> None:
        if now or time.monotonic() - self._shown_at >= INTERVAL:
            self._shown_at = time.monotonic()
            self._display.update(self._html(self.html()))

    def html(self) -> str:
        steps = f"{self._done:,}" if self._total is None else f"{self._done:,} of {self._total:,}"
        left = ""
        if self._total is not None and self._done > self._first:
            seconds = (time.monotonic() - self._began) / (self._done - self._first) * (self._total - self._done)
            left = f" · {max(seconds, 0):.0f} s left" if seconds >= 1 else ""
        bar = f'<progress value="{self._done}" max="{self._total or self._done or 1}"></progress>'
        return f"<div>{bar} {steps} steps{left} <small>{escape(self._values)}</small></div>"
