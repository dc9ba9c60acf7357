"""A trace of some steps of a run, for the viewers of XLA's profiles: Perfetto, XProf, TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import jax

PROFILE: Final = "profile"
"""The folder of the trace in that of the run."""
FIRST: Final = 5
"""Steps before the trace: they compile, and fill the caches."""


class Profile:
    """Traces ``steps`` steps of a run, after the first few; of a shorter run, as many as it has."""

    def __init__(self, folder: Path, steps: int, log: Callable[[str], None]) -> None:
        """Take the folder for the trace, which is made."""
        self.folder, self.steps, self._log = folder, steps, log
        self._made = 0
        self._is_tracing = self._is_over = False

    def before(self, steps: int, settle: Callable[[], None]) -> None:
        """Begin or end the trace where it is due, before the next ``steps``; ``settle`` waits for earlier ones."""
        if self._made >= FIRST and not self._is_over and not self._is_tracing:
            settle()
            jax.profiler.start_trace(self.folder, create_perfetto_trace=True)
            self._is_tracing = True
        elif self._is_tracing and self._made >= FIRST + self.steps:
            self.end(settle)
        self._made += steps

    def end(self, settle: Callable[[], None]) -> None:
        """Write the trace, if one has begun."""
        if not self._is_over and not self._is_tracing:
            self._log(f"profile: nothing was traced, because the run has no more than {FIRST} steps")
        self._is_over = True
        if not self._is_tracing:
            return
        settle()
        self._is_tracing = False
        jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        trace = max(self.folder.rglob("perfetto_trace.json.gz"), key=lambda path: path.stat().st_mtime)
        self._log(f"profile: open {trace} with https://ui.perfetto.dev, or {self.folder} with xprof or TensorBoard")
