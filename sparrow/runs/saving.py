"""A trained model in one file: tables and slots by name, dense parameters, everything else that training needs.

The file is NumPy's ``.npz``: named arrays, and a JSON text under ``about``. It is written beside its final name and
then renamed, so that a model folder holds a whole model or none.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.config import Config, ConfigError, dumps, loads
from sparrow.data import DataError
from sparrow.runs.program import Program, TrainState

NAME: Final = "model.npz"
CONFIG_NAME: Final = "config.yaml"
VERSION: Final = 1


def save(folder: Path, program: Program, state: TrainState, position: Mapping[str, Any]) -> Path:
    """Writes the model, and its config beside it for people to read. Gives the file's path."""
    arrays = _to_arrays(program, state)
    text = dumps(program.config)
    about = {
        "version": VERSION,
        "step": int(state.optimizer.step),
        "config": text,
        "position": dict(position),
        # NumPy's format does not know bfloat16 and the like: they are kept as raw bytes.
        "dtypes": {name: array.dtype.name for name, array in arrays.items()},
    }
    raw = {name: _raw(array) for name, array in arrays.items()}
    path, partial = folder / NAME, folder / f".{NAME}.partial"
    with partial.open("wb") as file:
        np.savez(file, allow_pickle=False, about=np.array(json.dumps(about)), **raw)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    (folder / CONFIG_NAME).write_text(text, encoding="utf-8")
    return path


def saved_config(folder: str | Path) -> Config:
    """The config of a saved model."""
    with _opened(folder) as file:
        return loads(_about(folder, file)["config"], source=str(Path(folder) / NAME))


def load(folder: str | Path, config: Config | None = None) -> tuple[Program, TrainState]:
    """A saved model. ``config`` stands in for its own, such as to read other data; tables and model must agree."""
    with _opened(folder) as file:
        about = _about(folder, file)
        config = config or loads(about["config"], source=str(Path(folder) / NAME))
        program = Program.of(config)
        try:
            state = _from_arrays(program, file, about["dtypes"])
        except (KeyError, ValueError) as error:
            raise ConfigError(f"does not fit the model saved in {folder}: {_sentence(error)}") from None
    return program, state


def _opened(folder: str | Path) -> Any:
    path = Path(folder) / NAME
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError("there is no saved model; train one into this folder first", str(path)) from None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"is not a saved model, or was cut off: {error}", str(path)) from None


def _about(folder: str | Path, file: Any) -> dict[str, Any]:
    path = str(Path(folder) / NAME)
    if "about" not in file:
        raise DataError("is not a saved model", path)
    about: dict[str, Any] = json.loads(str(file["about"]))
    if about["version"] != VERSION:
        raise DataError(f"was saved in form {about['version']}, and this version reads form {VERSION}", path)
    return about


def _to_arrays(program: Program, state: TrainState) -> dict[str, np.ndarray[Any, Any]]:
    embedder, embedding = program.embedder, state.optimizer.embedding
    arrays: dict[str, Any] = {}
    for table in embedder.tables:
        arrays[f"tables/{table}"] = embedder.table(embedding, table)
        arrays |= {f"slots/{table}/{slot}": array for slot, array in embedder.slots(embedding, table).items()}
    arrays |= dict(_named(_without_tables(state)))
    return {name: np.asarray(_plain(array)) for name, array in arrays.items()}


def _from_arrays(program: Program, file: Any, dtypes: Mapping[str, str]) -> TrainState:
    def read(name: str) -> Any:
        array = file[name]
        return array.view(jnp.dtype(dtypes[name])) if array.dtype.kind == "V" else array

    fresh = program.init()
    embedder, embedding = program.embedder, fresh.optimizer.embedding
    for table in embedder.tables:
        embedding = embedder.with_table(embedding, table, read(f"tables/{table}"))
        slots = {slot: read(f"slots/{table}/{slot}") for slot in embedder.slots(embedding, table)}
        embedding = embedder.with_slots(embedding, table, slots)
    others = _without_tables(fresh)
    leaves = [_like(name, read(name), leaf) for name, leaf in _named(others)]
    step, seed, optimizer, rest = jax.tree.unflatten(jax.tree.structure(others), leaves)
    embedding = dataclasses.replace(embedding, step=step, seed=seed)
    return TrainState(dataclasses.replace(optimizer, embedding=embedding), rest, fresh.metrics)


def _without_tables(state: TrainState) -> Any:
    """What is saved by its place in the state. The metrics of training are not: they start anew."""
    embedding = state.optimizer.embedding
    optimizer: Any = dataclasses.replace(state.optimizer, embedding=None)  # type: ignore[arg-type]
    return embedding.step, embedding.seed, optimizer, state.rest


def _named(tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [("state/" + jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def _is_key(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.prng_key))


def _plain(array: Any) -> Any:
    return jax.random.key_data(array) if _is_key(array) else array


def _raw(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array if array.dtype.kind in "biufc" else array.view(f"V{array.dtype.itemsize}")


def _like(name: str, array: Any, leaf: Any) -> Any:
    """The array as the state holds it; one of another shape is refused."""
    expected = _plain(leaf).shape
    if array.shape != expected:
        raise ValueError(f"{name} has the shape {array.shape}, the config's model needs {expected}")
    value = jnp.asarray(array)
    return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else value


def _sentence(error: KeyError | ValueError) -> str:
    return f"it lacks {error.args[0]}" if isinstance(error, KeyError) else str(error)
