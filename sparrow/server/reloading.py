"""`Reloading`: the model of a folder, replaced when a newer export takes its place."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparrow.files import AnyPath, Remote, at
from sparrow.server.reading import settle
from sparrow.serving import ExportedModel, load
from sparrow.serving.description import NAME

Identity = tuple[int, int, int, int] | None


class Reloading:
    """Looks for a newer export, in a thread of its own. One that cannot be loaded leaves the older model in use.

    It is tried again once its files have changed further, and have come to rest: an export may be copied file by file.
    """

    def __init__(
        self,
        folder: str | AnyPath,
        use: Callable[[ExportedModel], None],
        failed: Callable[[str], None],
        *,
        prepare: Callable[[ExportedModel], None],
        apply: Callable[[ExportedModel, Callable[[], None]], None],
        delta_failed: Callable[[str], None],
        every_seconds: float,
        **options: Any,
    ) -> None:
        """Load nothing yet.

        Args:
          folder: the export.
          use: receives each newer model.
          failed: receives the reason why a newer export cannot be used.
          prepare: compiles a model, before it is used.
          apply: runs the change of a delta while the model computes nothing.
          delta_failed: receives the reason why a delta cannot be used; no later one of the export is.
          every_seconds: the time between two looks at the folder.
          options: those of `sparrow.serving.load`.
        """
        self._folder, self._use, self._failed, self._prepare = at(folder), use, failed, prepare
        self._every, self._options = every_seconds, options
        self._apply, self._delta_failed = apply, delta_failed
        self._model: ExportedModel | None = None  # None: it follows no deltas
        self._seen: Identity = None
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def load(self) -> ExportedModel:
        """Return the model that the folder holds now, compiled."""
        self._seen = identity(self._folder)
        model = load(self._folder, **self._options)
        self._prepare(model)
        self._model = model
        return model

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="sparrow-reload", daemon=True)
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        """Whether the server stops, so that a model need not be compiled any further."""
        return self._wake.is_set()

    def stop(self) -> None:
        """End the thread. A model that is being loaded is dropped."""
        self._wake.set()
        if self._thread is not None:  # JAX must not be left in the middle of its work when the process ends
            self._thread.join()

    def _run(self) -> None:
        tried = last = None  # the files of an export that could not be loaded, and the files of the last look
        while not self._wake.wait(self._every):
            if identity(self._folder) in (self._seen, None):
                self._follow()
                continue
            found = contents(self._folder)
            if tried is None or (found != tried and found == last):
                tried = None if self._reload() else found
                settle()  # nothing holds the model before any more
            last = found

    def _follow(self) -> None:
        model = self._model
        try:
            while model is not None and not self.is_stopped and (delta := model.next_delta(self._folder)) is not None:
                self._apply(model, model.prepared(delta))
        except Exception as error:  # whatever it is, the version before goes on
            if identity(self._folder) != self._seen:  # a newer export, or none: not a fault of the delta
                return
            self._model = None
            assert model is not None
            stays = f"version {model.version} stays in use until there is a newer export"
            self._delta_failed(f"{str(error) or type(error).__name__}; {stays}")

    def _reload(self) -> bool:
        """Load the export, and return whether it is in use."""
        before, model_before = self._seen, self._model
        try:
            model = self.load()
        except Exception as error:  # whatever it is, the older model goes on
            self._seen, self._model = before, model_before
            self._failed(str(error) or type(error).__name__)
            return False
        if not self.is_stopped:
            self._use(model)
        return True


def identity(folder: AnyPath) -> Identity:
    """Return the file that describes an export; a newer export has another one. None: there is none now."""
    return _stamp(folder / NAME)


def contents(folder: AnyPath) -> frozenset[tuple[str, Identity]]:
    """Return all files of a folder, each as it is now."""
    if isinstance(folder, Remote):
        return frozenset((str(file), _stamp(file)) for file in folder.rglob())
    return frozenset(
        (path, _stamp(Path(path)))
        for inner, _, names in os.walk(folder)
        for path in (os.path.join(inner, name) for name in names)
    )


def _stamp(path: AnyPath) -> Identity:
    try:
        held = path.stat()
    except OSError:
        return None
    return held.st_dev, held.st_ino, held.st_mtime_ns, held.st_size
