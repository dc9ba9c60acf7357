"""`Function`: one exported function, from rows to its outputs; `KeptPrograms`: a limit on its compiled programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.data import Batch, Feature, check_same_lengths
from sparrow.embedding import FeatureSpec, Packer, Ragged, Stack, row_step, size_class
from sparrow.serving.description import STATE, Description, FunctionEntry
from sparrow.serving.lookup import KnownIds, Places, PlainLookups, Table, activations, flat, width_of
from sparrow.serving.reading import Reading


class KeptPrograms:
    """A jitted function's programs, all dropped when one more than the limit is needed.

    >>> import jax, jax.numpy as jnp
    >>> double = jax.jit(lambda x: 2 * x)
    >>> kept = KeptPrograms(double, most=2)
    >>> for size in (1, 2, 1, 3):
    ...     print(kept.is_new(size), double(jnp.ones(size)).shape, double._cache_size())
    True (1,) 1
    True (2,) 2
    False (1,) 2
    True (3,) 1
    """

    def __init__(self, function: Any, most: int) -> None:
        """Keep programs of ``function``, which `jax.jit` made."""
        self._function, self._most = function, most
        self._known: set[Hashable] = set()

    def is_new(self, shapes: Hashable) -> bool:
        """Return whether a program for ``shapes`` must be compiled; call this before the function."""
        if shapes in self._known:
            return False
        if len(self._known) >= self._most:
            self._function.clear_cache()
            self._known.clear()
        self._known.add(shapes)
        return True


KEPT: Final = 64
"""Programs that stay in memory, one per number of rows."""

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


class Prepared(NamedTuple):
    """A batch as the function takes it: its inputs, with rows of zeros up to a size that was compiled before.

    Attributes:
      inputs: (rows, width) float32, as `sparrow.serving.lookup.Places` describes.
      size: the rows that count.
    """

    inputs: Array
    size: int


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
        tables: Mapping[str, Table],
        known: Mapping[str, KnownIds],
        parameters: Mapping[str, jax.Array],
        program: Any,
    ) -> None:
        self.entry: FunctionEntry = description.functions[name]
        self._ids_of = {lookup: description.lookups[lookup].feature for lookup in self.entry.lookups}
        read = {*self._ids_of.values(), *self.entry.numbers}
        self.features = tuple(feature for feature in features if feature.name in read)
        own = self.entry.lengths
        self._lengths = {f.name: own.get(f.name, f.sequence_length) for f in self.features}
        self._grouped = {f.name for f in self.features if f.name in own and f.sequence_length is None}
        pooling = {feature.name: feature.element_pooling for feature in self.features}
        alike = {group: [n for n in names if n in read] for group, names in description.same_lengths.items()}
        self._alike = [(group, names) for group, names in alike.items() if len(names) > 1]
        self._specs = {lookup: specs[lookup] for lookup in self.entry.lookups}
        self._sizes_of: dict[str, str] = {}  # of lookups whose sequences have bags as elements
        for lookup, feature in self._ids_of.items():
            if (of_elements := pooling[feature]) is not None:
                combiner, self._sizes_of[lookup] = of_elements
                self._specs[lookup] = dataclasses.replace(specs[lookup], combiner=combiner)  # type: ignore[arg-type]
        self._tables = {lookup: tables[spec.table_spec.name] for lookup, spec in self._specs.items()}
        self._known = {
            lookup: known[spec.table_spec.name] for lookup, spec in self._specs.items() if spec.table_spec.name in known
        }
        self._parameters = {key: parameters[key] for key in self.entry.parameters}
        self._fill = description.independent_rows
        dims = {feature.name: feature.width for feature in self.features}
        self._places = Places.of(
            {
                lookup: width_of(self._lengths[self._ids_of[lookup]], spec.table_spec.embedding_dim)
                for lookup, spec in self._specs.items()
            },
            {name: width_of(self._lengths[name], dims[name]) for name in self.entry.numbers}
            | ({STATE: self.entry.state} if self.entry.state else {}),
        )
        self._stacks = {spec.table_spec.name: self._tables[lookup] for lookup, spec in self._specs.items()}
        self._packers: dict[tuple[str, ...], Packer] = {}
        self._plain = PlainLookups(
            {
                lookup: table
                for lookup, table in self._tables.items()
                if lookup not in self._known and self._lengths[self._ids_of[lookup]] is None
            },
            self._ids_of,
            self._places.acts,
        )
        self._call = self._places.function(program)
        self._kept = KeptPrograms(self._call, KEPT)
        kinds = {column: held.ids for column, held in self.entry.inputs.items() if held.ids is not None}
        self._reading = Reading(self.features, kinds)

    @property
    def columns(self) -> list[str]:
        return self._reading.columns

    def change(self, known: Mapping[str, KnownIds], parameters: Mapping[str, jax.Array]) -> None:
        """Use other parameters, and other ids of dynamic tables, by table."""
        self._parameters = {key: parameters[key] for key in self.entry.parameters}
        self._known = {lookup: known[self._specs[lookup].table_spec.name] for lookup in self._known}

    def read(self, rows: Any) -> Batch:
        return self._reading.batch(rows)

    def read_together(self, parts: Sequence[Mapping[str, list[Any]]]) -> Batch | None:
        """Return one batch from columns of several requests; None: their types differ, so each is read alone."""
        return self._reading.together(parts)

    def prepare(self, batch: Batch, states: Array | None = None, offsets: Array | None = None) -> Prepared:
        """Look a batch up, on the host.

        Args:
          batch: the rows.
          states: (examples, width), for a function that takes states.
          offsets: (examples + 1,), for one that takes candidates of one row each: those of each state in ``batch``.
        """
        check_same_lengths(self._alike, batch)
        size = len(batch) if states is None else len(states)
        inputs = self._places.empty(self.size_for(size))
        made = self._plain.fill(batch.ids, inputs)
        for lookup, found in self._looked_up([lookup for lookup in self._places.acts if lookup not in made], batch):
            place = self._places.acts[lookup]
            inputs[:size, place] = self._by_state(self._ids_of[lookup], found, offsets)
        for name, place in self._places.numbers.items():
            inputs[:size, place] = states if name == STATE else self._by_state(name, self._number(name, batch), offsets)
        return Prepared(inputs, size)

    def _by_state(self, feature: str, found: Array, offsets: Array | None) -> Array:
        """Return the rows of candidates as sequences, one for each state."""
        length = self._lengths[feature]
        if feature not in self._grouped or offsets is None or length is None:
            return found
        return flat(found, offsets, length)

    def size_for(self, rows: int) -> int:
        """Return the number of rows that the function is compiled for, to compute ``rows`` rows.

        Rounding up leaves a few of all the sizes that a service sees: one an octave up to 256 rows, then four.
        """
        if not self._fill or not rows:
            return rows
        return max(8, 1 << (rows - 1).bit_length()) if rows <= 256 else size_class(rows)

    def compile(self, rows: int, is_stopped: Callable[[], bool]) -> None:
        """Compile the function for all numbers of rows up to ``rows``; for a model that mixes rows, for none."""
        sizes = sorted({self.size_for(count) for count in range(1, rows + 1)}) if self._fill else []
        for size in sizes:
            if not is_stopped():
                self.compute(Prepared(self._places.empty(size), size))

    def _looked_up(self, lookups: Sequence[str], batch: Batch) -> Iterator[tuple[str, Array]]:
        """Yield the activations of some lookups: ids are packed as they are in training, and looked up here."""
        if not lookups:
            return
        given: dict[str, Any] = {}
        starts: dict[str, Array] = {}
        for lookup in lookups:
            ids = _part(batch.ids, self._ids_of[lookup])
            given[lookup] = ids = self._known[lookup].rows_of(lookup, ids) if lookup in self._known else ids
            if lookup in self._sizes_of:
                sizes = _part(batch.sequences, self._sizes_of[lookup])
                counts = sizes.values[:, 0].astype(np.int64)
                ends = np.zeros(size_class(len(counts)) + 1, np.int64)  # of as many elements as other batches have
                ends[1 : len(counts) + 1] = np.cumsum(counts)
                ends[len(counts) + 1 :] = ends[len(counts)]
                given[lookup], starts[lookup] = Ragged(ids.values, ends), sizes.offsets
        packed = self._packer(tuple(lookups)).pack(given)
        starts |= packed.offsets
        orders = {lookup: (own, self._lengths[self._ids_of[lookup]] or 0) for lookup, own in starts.items()}
        yield from activations(packed, self._stacks, orders)

    def _packer(self, lookups: tuple[str, ...]) -> Packer:
        """Return the packer of some lookups. Each table is a stack, because each is an array of its own."""
        if lookups not in self._packers:
            specs = [self._specs[lookup] for lookup in lookups]
            tables = {spec.table_spec.name: spec.table_spec for spec in specs}
            stacks = [Stack(name, (table,), row_step(table)) for name, table in tables.items()]
            self._packers[lookups] = Packer(specs, stacks)
        return self._packers[lookups]

    def _number(self, name: str, batch: Batch) -> Array:
        length = None if name in self._grouped else self._lengths[name]
        if length is None:
            array: Array = _part(batch.numbers, name)
            return array
        held = _part(batch.sequences, name)
        return flat(held.values, held.offsets, length)

    def compute(self, prepared: Prepared) -> Arrays:
        if not prepared.size:  # StableHLO's sizes begin at 1
            return {
                name: np.zeros((0, *(int(size) for size in output.shape[1:])), output.dtype)
                for name, output in self.entry.outputs.items()
            }
        self._kept.is_new(len(prepared.inputs))
        made = self._call(self._parameters, prepared.inputs)
        return {name: np.asarray(made[name])[: prepared.size] for name in self.entry.outputs}

    def __call__(self, rows: Any, batch_size: int) -> Arrays:
        """Return the outputs for any number of rows, ``batch_size`` of them at a time."""
        return self.run(self.read(rows), batch_size)

    def run(self, batch: Batch, batch_size: int) -> Arrays:
        """Return the outputs for a batch, ``batch_size`` rows of it at a time."""
        if len(batch) <= batch_size:
            return self.compute(self.prepare(batch))
        starts = range(0, len(batch), batch_size)
        parts = [self.compute(self.prepare(batch.cut(start, min(start + batch_size, len(batch))))) for start in starts]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _part(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise ValueError(f"the batch lacks the feature '{name}'; read it with this export's features")
    return values[name]
