"""`Function`: one exported function, from rows to its outputs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.data import Batch, Converter, Feature, Tables, check_same_lengths
from sparrow.embedding import FeatureSpec, size_class, to_bags
from sparrow.serving.description import Description, FunctionEntry
from sparrow.serving.ids import KnownIds
from sparrow.serving.kept_programs import KeptPrograms
from sparrow.serving.lookup import flat, ordered, pooled
from sparrow.serving.untyped import with_types

KEPT: Final = 64
"""Programs that stay in memory, one per number of rows; batches that are filled up need four per doubling."""

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


class Prepared(NamedTuple):
    """A batch as the function takes it: activations and numbers, filled up to a size that was compiled before."""

    acts: Arrays
    numbers: Arrays
    size: int  # rows that count


class Function:
    """Calls one function of an export. It reads the features, rows of tables and parameters that it needs, no others.

    Attributes:
      entry: its part of the description.
      features: the features that it reads.
    """

    def __init__(
        self,
        description: Description,
        name: str,
        features: Sequence[Feature],
        specs: Mapping[str, FeatureSpec],
        tables: Mapping[str, Array],
        known: Mapping[str, KnownIds],
        parameters: Mapping[str, jax.Array],
        program: Any,
    ) -> None:
        self.entry: FunctionEntry = description.functions[name]
        self._ids_of = {lookup: description.lookups[lookup].feature for lookup in self.entry.lookups}
        read = {*self._ids_of.values(), *self.entry.numbers}
        self.features = tuple(feature for feature in features if feature.name in read)
        self._lengths = {feature.name: feature.sequence_length for feature in self.features}
        alike = {group: [n for n in names if n in read] for group, names in description.same_lengths.items()}
        self._alike = [(group, names) for group, names in alike.items() if len(names) > 1]
        self._specs = {lookup: specs[lookup] for lookup in self.entry.lookups}
        self._tables = {lookup: tables[spec.table_spec.name] for lookup, spec in self._specs.items()}
        self._known = {
            lookup: known[spec.table_spec.name] for lookup, spec in self._specs.items() if spec.table_spec.name in known
        }
        self._parameters = {key: parameters[key] for key in self.entry.parameters}
        self._fill = description.independent_rows
        self._call = program
        self._kept = KeptPrograms(program, KEPT)

    @functools.cached_property
    def _converter(self) -> Converter:
        return Converter(self.features, (), (), ())

    def read(self, rows: Any) -> Batch:
        """Return a batch from an Arrow table, a record batch, or columns by name; a `Batch` is returned unchanged."""
        if isinstance(rows, Batch):
            return rows
        if not (isinstance(rows, Mapping) or type(rows).__module__.startswith("pyarrow")):
            raise TypeError(
                f"rows must be an Arrow table, columns by name, or a sparrow.data.Batch, got {type(rows).__name__}"
            )
        table = with_types(Tables(rows).table, self.features)
        reader = Tables(table, max(table.num_rows, 1)).open(self._converter.columns)
        self._converter.check(reader)
        return self._converter.convert(reader.read(0, "error"), "error")[0].to_batch()

    def prepare(self, batch: Batch) -> Prepared:
        """Look a batch up, on the host."""
        check_same_lengths(self._alike, batch)
        acts = {lookup: self._activation(lookup, batch) for lookup in self._specs}
        numbers = {name: self._number(name, batch) for name in self.entry.numbers}
        size = len(next(iter({**acts, **numbers}.values())))
        # A function is compiled for each number of rows: rounding up leaves a few of all the sizes that a service sees.
        filled = size_class(size) if self._fill and size else size
        return Prepared(_filled(acts, filled), _filled(numbers, filled), size)

    def _rows(self, lookup: str, batch: Batch) -> Any:
        """Return the rows that a lookup reads."""
        given = _part(batch.ids, self._ids_of[lookup])
        return self._known[lookup].rows_of(lookup, given) if lookup in self._known else given

    def _activation(self, lookup: str, batch: Batch) -> Array:
        spec, table, feature = self._specs[lookup], self._tables[lookup], self._ids_of[lookup]
        ids, length = self._rows(lookup, batch), self._lengths[feature]
        return pooled(table, to_bags(spec, ids)) if length is None else ordered(table, spec, ids, length)

    def _number(self, name: str, batch: Batch) -> Array:
        length = self._lengths[name]
        if length is None:
            array: Array = _part(batch.numbers, name)
            return array
        held = _part(batch.sequences, name)
        return flat(held.values, held.offsets, length)

    def compute(self, prepared: Prepared) -> Arrays:
        """Return the outputs by name."""
        if not prepared.size:  # StableHLO's sizes begin at 1
            return {
                name: np.zeros((0, *(int(size) for size in output.shape[1:])), output.dtype)
                for name, output in self.entry.outputs.items()
            }
        self._kept.is_new(len(next(iter({**prepared.acts, **prepared.numbers}.values()))))
        made = jax.device_get(self._call(self._parameters, prepared.acts, prepared.numbers))
        return {name: np.asarray(made[name])[: prepared.size] for name in self.entry.outputs}

    def __call__(self, rows: Any, batch_size: int) -> Arrays:
        """Return the outputs for any number of rows, ``batch_size`` of them at a time."""
        batch = self.read(rows)
        starts = range(0, max(len(batch), 1), batch_size)
        parts = [self.compute(self.prepare(batch.cut(start, min(start + batch_size, len(batch))))) for start in starts]
        return parts[0] if len(parts) == 1 else {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def _part(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise ValueError(f"the batch lacks the feature '{name}'; read it with this export's features")
    return values[name]


def _filled(arrays: Arrays, size: int) -> Arrays:
    return {name: np.pad(array, ((0, size - len(array)), (0, 0))) for name, array in arrays.items()}
