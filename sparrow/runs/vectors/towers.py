"""The vectors of one tower of a two-tower model, from rows that hold the columns of that tower alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data import Feature, Source
from sparrow.data.sources import Reader, Rows
from sparrow.embedding import Sequence
from sparrow.kernels import portable_attention
from sparrow.runs.evaluating.predict_files import predict_table, source_like
from sparrow.runs.step.program import Program, TrainState
from sparrow.tasks import TOWERS, is_matching, vector_column


def tower_names(program: Program) -> tuple[str, ...]:
    """Return the towers of a model; none unless it has two."""
    return tuple(TOWERS) if any(map(is_matching, program.config.tasks.values())) else ()


def tower_vectors(
    program: Program, state: TrainState, tower: str, data: Any, batch_size: int | None
) -> npt.NDArray[np.float32]:
    """Return the vectors of one tower, (rows, dim). Columns of the other tower are not needed."""
    needed = tower_features(program, state, tower)
    others = [feature for feature in program.assembly.features if feature.name not in needed]
    source = _Completed(source_like(program.config, data), others)
    column = predict_table(program, state, source, batch_size=batch_size)[vector_column(tower)].combine_chunks()
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(column), -1)


def tower_features(program: Program, state: TrainState, tower: str) -> set[str]:
    """Return the features that the vectors of a tower depend on."""
    inputs = program.assembly.inputs
    acts: dict[str, Any] = {name: jnp.zeros((2, dim)) for name, dim in inputs.acts.items()}
    numbers: dict[str, Any] = {name: jnp.zeros((2, dim)) for name, dim in inputs.numbers.items()}
    lengths = program.assembly.lengths
    for name, dim in inputs.sequences.items():
        held = Sequence(jnp.zeros((2, lengths[name], dim)), jnp.ones(2, jnp.int32))
        (acts if name in program.assembly.ids_of else numbers)[name] = held

    def vectors(acts: Any, numbers: Any) -> jax.Array:
        outputs = program.forward(state.optimizer.params, state.rest, acts, numbers)
        return jnp.asarray(outputs[TOWERS[tower]])

    with portable_attention():
        kept = jax.export.export(jax.jit(vectors))(acts, numbers).module_kept_var_idx
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path((acts, numbers))]
    names = {paths[index][1].key for index in kept}
    return {program.assembly.ids_of.get(name, name) for name in names}


@dataclasses.dataclass(frozen=True)
class _Completed(Source):
    """A source with columns of features that do not count, where it lacks them."""

    source: Source
    features: list[Feature]

    def column_names(self) -> list[str]:
        return list(dict.fromkeys([*self.source.column_names(), *_columns(self.features)]))

    def open(self, columns: Any) -> Reader:
        own = self.source.column_names()
        made = {name: feature for name, feature in _columns(self.features).items() if name not in own}
        return _CompletedReader(self.source.open([c for c in columns if c not in made]), list(columns), made)


class _CompletedReader(Reader):
    def __init__(self, inner: Reader, columns: list[str], made: dict[str, Feature]) -> None:
        self._inner, self._columns, self._made = inner, columns, made

    @property
    def num_chunks(self) -> int:
        return self._inner.num_chunks

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    @property
    def schemas(self) -> Any:
        def kind(name: str) -> Any:
            return _filler(self._made[name], 0).type

        return [
            (file, {name: kinds[name] if name in kinds else kind(name) for name in self._columns})
            for file, kinds in self._inner.schemas
        ]

    def read(self, chunk: int, bad_rows: Any) -> Rows:
        rows = self._inner.read(chunk, bad_rows)
        table = rows.table
        columns = {
            name: table[name] if name in table.column_names else _filler(self._made[name], table.num_rows)
            for name in self._columns
        }
        return dataclasses.replace(rows, table=pa.table(columns))


def _columns(features: list[Feature]) -> dict[str, Feature]:
    return {column: feature for feature in features for column in feature.columns}


def _filler(feature: Feature, rows: int) -> Any:
    """Return a column that a feature reads, of any content."""
    if feature.part == "numbers":
        one: Any = [0.0] * feature.width if feature.width > 1 else 0.0
        kind = pa.list_(pa.float64()) if feature.width > 1 else pa.float64()
        return pa.array([one] * rows, kind)
    # An empty list has no weights either; one missing id would lack its weight.
    has_lists = feature.sequence_length is not None or getattr(feature, "weight_column", None) is not None
    return pa.nulls(rows, pa.list_(pa.string()) if has_lists else pa.string())
