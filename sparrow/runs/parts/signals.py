"""Ctrl-C and SIGTERM while training: noted, and handled between two steps."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class StopRequest:
    """A request to stop the run. The second Ctrl-C stops it at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals inside the block. Outside the main thread Python allows no handlers: nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # An ignored signal stays ignored, as under nohup.
        numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> Any:
        if self.received is not None and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt
        if self.received is None:
            # Not print: the signal may have arrived in the middle of one.
            os.write(2, b"stopping after this step; Ctrl-C ends at once\n")
            self.received = signal.Signals(number)
