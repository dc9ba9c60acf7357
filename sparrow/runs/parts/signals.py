"""`Signals`: Ctrl-C and SIGTERM while training: noted, and handled between two steps."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sparrow.feed import WaitInterrupted
from sparrow.runs.errors import Interrupted
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.together import Batches, Together


class Signals(Part):
    """Requests to stop the run, after which the state is saved. The second Ctrl-C stops it at once.

    Attributes:
      received: the signal that this process received.
    """

    def __init__(self, batches: Batches, *, listens: bool) -> None:
        """Take the batches, which may be waited for when a signal arrives; ``listens``: whether to handle signals."""
        self.received: signal.Signals | None = None
        self._listens, self._requests = listens, batches.requests if isinstance(batches, Together) else None
        if self._requests is None:
            batches.waits.interrupted = lambda: self.received is not None
        else:
            self._requests.wants_stop = lambda: int(self.received or 0)

    @property
    def asked(self) -> signal.Signals | None:
        """The signal that ends the run: of this process, or the one that all processes agree on."""
        if self._requests is None:
            return self.received
        return signal.Signals(self._requests.stop) if self._requests.stop else None

    def begin(self, loop: Loop, stack: contextlib.ExitStack) -> None:
        if self._listens:
            stack.enter_context(self._listening())

    def after_step(self, loop: Loop) -> None:
        if self.asked is not None:
            raise Interrupted(self.asked, loop.steps)

    after_epoch = end = after_step

    def failed(self, loop: Loop, error: BaseException) -> BaseException:
        """End the run where a batch is no longer waited for."""
        return Interrupted(self.asked, loop.steps) if isinstance(error, WaitInterrupted) and self.asked else error

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
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
