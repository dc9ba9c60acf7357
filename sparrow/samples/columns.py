"""The columns that a config reads, drawn at random: those of its features, labels, weights and keys."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.config import Config, need
from sparrow.data import AUTO, computed
from sparrow.data.features import registry
from sparrow.errors import ConfigError

KINDS: Final = 8
"""Kinds of rows. Labels depend on the kind, and so do most values of every column: a model can learn it."""
_FAITHFUL: Final = 0.85
"""The share of values that follow the kind of their row; the others are of any kind."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Values for the columns of rows.

    >>> drawn = Drawn(np.arange(6) % KINDS, np.random.default_rng(0))
    >>> bool((drawn.below("item", 50) < 50).all()), len(drawn.elements("seen", 9, np.array([2, 0, 1, 0, 0, 3])))
    (True, 6)

    Attributes:
      kinds: (rows,) the kind of each row.
      rng: the source of all randomness.
    """

    kinds: npt.NDArray[np.int64]
    rng: np.random.Generator

    @classmethod
    def of(cls, rows: int, seed: int) -> Drawn:
        """Return rows of random kinds."""
        rng = np.random.default_rng(seed)
        return cls(rng.integers(0, KINDS, rows), rng)

    @property
    def rows(self) -> int:
        return len(self.kinds)

    def below(self, column: str, count: int) -> npt.NDArray[np.int64]:
        """(rows,) integers from 0 to ``count`` - 1."""
        return self._below(column, count, self.kinds)

    def elements(self, column: str, count: int, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the same for each element of sequences, one sequence after the other."""
        return self._below(column, count, np.repeat(self.kinds, lengths))

    def numbers(self, column: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Numbers from 0 to 1; the first axis of ``shape`` is that of the rows."""
        center = self._below(column, 1000, self.kinds) / 1000
        center = center.reshape(-1, *[1] * (len(shape) - 1))
        return np.asarray(0.8 * center + 0.2 * self.rng.uniform(0, 1, shape))

    def positive(self) -> npt.NDArray[np.bool_]:
        """(rows,) what the labels follow: the kind's parity, wrong in one row of twenty."""
        return np.asarray((self.kinds % 2 == 1) ^ (self.rng.uniform(0, 1, self.rows) < 0.05))

    def _below(self, column: str, count: int, kinds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        kinds = np.where(self.rng.uniform(0, 1, len(kinds)) < _FAITHFUL, kinds, self.rng.integers(0, KINDS, len(kinds)))
        of_kind = np.array([zlib.crc32(f"{column}/{kind}".encode()) for kind in range(KINDS)], np.int64)
        # Two values of each kind and column, so that there are more ids than kinds.
        return np.asarray((of_kind[kinds] + self.rng.integers(0, 2, len(kinds))) % max(count, 1))


Columns = dict[str, list[Any]]
_VALUES: Final = 1000
"""The most ids of a column."""
_LONGEST: Final = 5
"""Sequences have fewer elements than this."""
TOKENS: Final = "abcdefghijklmnop"
"""The words of texts."""


def columns(config: Config, drawn: Drawn) -> Columns:
    """Return the columns of ``config``, one value per row."""
    data, candidates = need(config.data, "data"), has_candidates(config)
    # All sequences of a row have one length: features of one history go together. Some are empty, but for candidates.
    lengths = drawn.rng.integers(1 if candidates else 0, _LONGEST, drawn.rows)
    made = of_features(data.features, drawn, lengths)
    positive = drawn.positive()
    sources = {label.name: label for label in data.labels}
    for task in config.tasks.values():
        for name in filter(None, (task.label, task.task_space_label)):
            label = sources.get(name)
            column = name if label is None else label.source_column
            made.setdefault(column, _label(label, positive, lengths if candidates else None))
        if task.sample_weight:
            made.setdefault(task.sample_weight, drawn.rng.uniform(0.5, 1.5, drawn.rows).tolist())
        keys = [key for loss in task.losses for key in loss.key_columns]
        keys += [use.group_by for use in (*task.metrics, *task.train_metrics) if use.group_by]
        for key in keys:
            made.setdefault(key, drawn.rng.integers(0, 8, drawn.rows).tolist())
    if data.cost is not None:
        made.setdefault(data.cost.column, drawn.rng.integers(1, _LONGEST, drawn.rows).tolist())
    if data.negatives is not None and (user := data.negatives.user_column) is not None:
        made.setdefault(user, drawn.below(user, 20).tolist())
    return made


def of_features(features: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> Columns:
    """Return the columns of features; of one that several read, the first decides."""
    made: Columns = {}
    for feature in features:
        kind = registry.name_of(feature)
        if kind not in _MAKERS:
            raise ConfigError(f"feature '{feature.name}': the kind '{kind}' is not sampled")
        compute = None if kind == "tokenize" else getattr(feature, "compute", None)
        own = _MAKERS[kind](feature, drawn, lengths) if compute is None else _of_computed(compute, drawn, lengths)
        for column, values in own.items():
            made.setdefault(column, values)
    return made


def has_candidates(config: Config) -> bool:
    """Return whether an example has several candidates, each with its label."""
    group = getattr(need(config.model, "model").architecture, "candidate_group", None)
    members = need(config.model, "model").groups.get(group or "", ())
    return any(feature.sequence_length for feature in need(config.data, "data").features if feature.name in members)


def _label(label: Any, positive: npt.NDArray[np.bool_], lengths: npt.NDArray[np.int64] | None) -> list[Any]:
    """Return values that the label makes 1 or 0 of; for candidates, one for each."""
    high, low = 1, 0
    if label is not None and label.at_least is not None:
        high, low = label.at_least, label.at_least - 1
    if lengths is not None:
        high = 7  # the bits of three actions
    elif label is not None and label.bitmask is not None:
        high = label.bitmask
    values: list[Any] = np.where(positive, high, low).tolist()
    return values if lengths is None else [[value] * n for value, n in zip(values, lengths.tolist(), strict=True)]


def _entries(feature: Any, drawn: Drawn, column: str, lengths: npt.NDArray[np.int64]) -> list[Any]:
    if feature.vocabulary == AUTO:
        return [f"w{i}" for i in drawn.elements(column, _VALUES, lengths)]
    if feature.vocabulary is not None:
        words = feature.words.words
        return [str(words[i]) for i in drawn.elements(column, len(words), lengths)]
    return list(drawn.elements(column, min(feature.num_rows, _VALUES), lengths).tolist())


def _parts(values: list[Any], lengths: npt.NDArray[np.int64], separator: str | None) -> list[Any]:
    """Return the sequences of rows: strings with a separator, or lists without."""
    ends = np.cumsum(lengths)
    rows = [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return rows if separator is None else [separator.join(map(str, row)) for row in rows]


def _id(feature: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> Columns:
    values = _entries(feature, drawn, feature.id_column, np.ones(drawn.rows, np.int64))
    if feature.weight_separator is not None:
        values = [f"{value}{feature.weight_separator}0.5" for value in values]
    return {feature.id_column: values}


def _raw(feature: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> Columns:
    column = feature.columns[0]
    if feature.dim == 1:
        return {column: drawn.numbers(column, (drawn.rows,)).tolist()}
    values = drawn.numbers(column, (drawn.rows, feature.dim)).round(4).tolist()
    return {column: values if feature.separator is None else [feature.separator.join(map(str, row)) for row in values]}


def _sequence(feature: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> Columns:
    values = _entries(feature, drawn, feature.id_column, lengths)
    return {feature.id_column: _parts(values, lengths, feature.separator)}


def _raw_sequence(feature: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> Columns:
    numbers = drawn.rng.uniform(0, 1, (int(lengths.sum()), feature.dim)).round(3)
    if feature.separator is None:
        values = numbers[:, 0].tolist() if feature.dim == 1 else numbers.tolist()
    else:
        values = [(feature.value_separator or "").join(map(str, row)) for row in numbers.tolist()]
    return {feature.columns[0]: _parts(values, lengths, feature.separator)}


def _bag_sequence(feature: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> Columns:
    """Return the columns of elements, each of which has a row of its own first; ids come in pairs."""
    element, made = feature.element, {}
    for rows, is_sequence in ((Drawn(np.repeat(drawn.kinds, lengths), drawn.rng), True), (drawn, False)):
        pairs = [of_features([element], rows, np.ones(rows.rows, np.int64)) for _ in range(2)]
        for column, values in pairs[0].items():
            if is_sequence != (feature.sequences is None or column in feature.sequences):
                continue
            if getattr(element, "separator", None) is not None and element.compute is None:
                values = [f"{a}{element.separator}{b}" for a, b in zip(values, pairs[1][column], strict=True)]
            made[column] = _parts(values, lengths, feature.separator) if is_sequence else values
    return made


def _tokenize(feature: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> Columns:
    column, ends = feature.columns[0], np.cumsum(lengths + 1)
    tokens = [TOKENS[i] for i in drawn.elements(column, len(TOKENS), lengths + 1)]
    return {column: [" ".join(tokens[end - 1 - length : end]) for end, length in zip(ends, lengths, strict=True)]}


_MAKERS: Final[dict[str, Callable[[Any, Drawn, npt.NDArray[np.int64]], Columns]]] = {
    "id": _id,
    "raw": _raw,
    "combo": lambda feature, drawn, lengths: {column: drawn.below(column, 9).tolist() for column in feature.cross},
    "sequence": _sequence,
    "raw_sequence": _raw_sequence,
    "bag_sequence": _bag_sequence,
    "tokenize": _tokenize,
}
"""The columns of a feature, by the name of its kind."""


_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "lookup": ("map", "number"),
    "match": ("nested", "number", "number"),
    "expr": ("number",) * 16,
    "combine": ("word",),
    "bool_mask": ("words", "marks"),
    "overlap": ("words", "words"),
    "kv_dot_product": ("pairs", "pairs"),
    "edit_distance": ("text", "text"),
    "bucketize": ("number",),
    "constant": (),
}
"""By the name of a computed column: the contents of its inputs, in their order."""
_FORMS: Final[dict[str, Callable[[int, int, Any], Any]]] = {
    "number": lambda a, b, record: a,
    "map": lambda a, b, record: f"{a}:{b}{record.map_separator}{b}:{a}",
    "nested": lambda a, b, record: f"{a}^{b}:{a},{a}:{b}|{b}^{a}:{b}",
    "word": lambda a, b, record: f"w{a}" if record.values else a,
    "marks": lambda a, b, record: f"{a > b}{record.separator}{a <= b}",
    "words": lambda a, b, record: f"w{a}{record.separator}w{b}",
    "pairs": lambda a, b, record: f"w{a}:{b}{record.separator}w{b}:{a}",
    "text": lambda a, b, record: f"text {a} {b}",
}


def _of_computed(record: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> Columns:
    """Return the columns that a computed one reads: of one by elements sequences, and columns that are none."""
    ones, made = np.ones(drawn.rows, np.int64), Columns()
    if not isinstance(record, computed.Each):
        return _inputs(record, drawn, ones)
    for column, values in _inputs(record.compute_each, drawn, lengths).items():
        if column in record.sequences:
            made[column] = _parts(values, lengths, record.separator)
    for column, values in _inputs(record.compute_each, drawn, ones).items():
        made.setdefault(column, values)
    return made


def _inputs(record: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> Columns:
    made: Columns = {}
    name = computed.registry.name_of(record)
    if name not in _FIELDS:
        raise ConfigError(f"the computed column '{name}' is not sampled; give the feature a column of its own")
    for field, given in zip(_FIELDS[name], record.inputs, strict=False):
        if not isinstance(given, str):
            made |= _inputs(given, drawn, lengths)
            continue
        first, second = (drawn.elements(f"{given}/{i}", 9, lengths).tolist() for i in range(2))
        made[given] = [_FORMS[field](a, b, record) for a, b in zip(first, second, strict=True)]
    return made
