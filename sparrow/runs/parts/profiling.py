"""`Profile`: a trace of some steps of a run, for the viewers of XLA's profiles: Perfetto, XProf, TensorBoard."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jax

from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.staging import Taken

PROFILE: Final = "profile"
"""The folder of the trace in that of the run."""
FIRST: Final = 5
"""Steps before the trace: they compile, and fill the caches."""


class Profile(Part):
    """Traces ``steps`` steps of a run, after the first few; of a shorter run, as many as it has."""

    def __init__(self, folder: Path, steps: int) -> None:
        """Take the folder for the trace, which is made."""
        self.folder, self.steps = folder, steps
        self._made = 0
        self._is_tracing = self._is_over = False

    def begin(self, loop: Loop, stack: contextlib.ExitStack) -> None:
        """Write the trace after an error, too."""
        stack.callback(lambda: self._finish(loop))

    def take(self, loop: Loop, call: Sequence[Taken]) -> None:
        if self._made >= FIRST and not self._is_over and not self._is_tracing:
            loop.settle()
            jax.profiler.start_trace(self.folder, create_perfetto_trace=True)
            self._is_tracing = True
        elif self._is_tracing and self._made >= FIRST + self.steps:
            self.end(loop)
        self._made += len(call)

    def end(self, loop: Loop) -> None:
        if self._is_tracing:
            loop.settle()
        self._finish(loop)

    def _finish(self, loop: Loop) -> None:
        if not self._is_over and not self._is_tracing:
            loop.log.line(f"profile: nothing was traced, because the run has no more than {FIRST} steps")
        self._is_over = True
        if not self._is_tracing:
            return
        self._is_tracing = False
        jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        trace = max(self.folder.rglob("perfetto_trace.json.gz"), key=lambda path: path.stat().st_mtime)
        viewers = f"open {trace} with https://ui.perfetto.dev, or {self.folder} with xprof or TensorBoard"
        loop.log.line(f"profile: {viewers}")
