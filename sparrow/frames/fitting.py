"""`fit`: from a frame to a trained model in one line."""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from sparrow import runs
from sparrow.frames.guessing import guess


def fit(
    data: Any,
    target: str | Sequence[str] | None = None,
    model: str | Mapping[str, Any] | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    stream: TextIO | None = None,
    **options: Any,
) -> runs.Run:
    """Train a model on a frame, evaluate it, and return the run, with its best state.

    The features are inferred from the columns and shown; `guess` takes the same arguments and shows them without
    training. The run has a config as one from a file has, ``run.config``, and the same engine trains it.

    Args:
      data: a frame of pandas or Polars, an Arrow table, columns by name, the path of Parquet or text files, a source.
      target: the column to predict, or several of them; None: a log of choices, with ``user`` and ``item``:
        ``fit(log, user="user", item="item")``. `Run.recommend` then gives the items of each user.
      model: the name of a model, or a mapping with its name and options; None: "deepfm", for a log "dssm".
      folder: the folder of the run; None: a temporary one, which ends with the run; ``run.save`` keeps it.
      resume: whether to continue the run in that folder.
      overwrite: whether to replace the run in that folder.
      stream: the stream of the log; by default the standard output.
      **options: the other arguments of `guess`: evaluate, evaluate_by, features, user, item, groups, loss, weight,
        embedding_dim, epochs, batch_size, seed, overrides.
    """
    made = guess(data, target, model, **options)
    for line in made.lines():
        print(line, file=stream or sys.stdout)
    if folder is not None:
        return runs.train(made.config, folder, resume=resume, overwrite=overwrite, stream=stream)
    aside = Path(tempfile.mkdtemp(prefix="sparrow-"))
    try:
        run = runs.train(made.config, aside / "run", stream=stream)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    weakref.finalize(run, shutil.rmtree, aside, ignore_errors=True)
    return run
