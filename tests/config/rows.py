"""Files of rows that fit a config: the columns of its features, labels, weights and keys, and its tables of items."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data.computed import registry as computed
from sparrow.data.features import registry

ROWS = 96


def write_rows(config, folder, rows=ROWS, seed=0):
    """Write the examples of a config, and its items where negatives are drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = columns_of(config, rows, np.random.default_rng(seed))
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return columns


def same_predictions(trained, served):
    """Check that an exported model predicts, for the same rows, the numbers of the checkpoint that it was made from."""
    expected, found = (pq.read_table(path).to_pydict() for path in (trained, served))
    both = expected.keys() & found.keys()
    assert len(both) == len(expected)
    for name in both:
        one, other = (_flat(column[name]) for column in (found, expected))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=name)


def _flat(column):
    """Return a column of predictions; of lists of several lengths, their numbers."""
    lengths = {len(row) for row in column if isinstance(row, list)}
    return column if len(lengths) < 2 else [number for row in column for number in row]


def columns_of(config, rows, rng):
    """The columns that a config reads."""
    lengths = rng.integers(0, 5, rows)  # one for all sequences, some of them empty
    columns = {}
    for feature in config.data.features:
        for column, values in MAKERS[registry.name_of(feature)](feature, rng, lengths).items():
            columns.setdefault(column, values)
    made = {label.name: label.source_column for label in config.data.labels}
    several = config_candidates(config)
    for task in config.tasks.values():
        for label in filter(None, (task.label, task.task_space_label)):
            column = made.get(label, label)
            # A request without candidates has one, of the default id.
            values = [rng.integers(0, 8, max(n, 1)).tolist() for n in lengths] if several else rng.integers(0, 2, rows)
            columns.setdefault(column, values)
        if task.sample_weight:
            columns.setdefault(task.sample_weight, rng.uniform(0.5, 1.5, rows))
        for key in (key for loss in task.losses for key in loss.key_columns):
            columns.setdefault(key, rng.integers(0, 8, rows))
    return columns


def config_candidates(config):
    """Return whether an example of a config has several candidates."""
    group = config.model.architecture.candidate_group
    features = {feature.name: feature for feature in config.data.features}
    return any(features[name].sequence_length for name in config.model.groups.get(group, ()))


def write_items(config, path, rows=20, seed=0):
    """Write the table of items that negatives are drawn from: id, weight, and attributes joined by a delimiter."""
    items = config.data.negatives.items
    made = columns_of(config, rows, np.random.default_rng(seed))
    attributes = [[str(made[name][row]) for name in items.into] for row in range(rows)]
    table = {"id": np.arange(rows), "weight": np.ones(rows), "attrs": [items.separator.join(row) for row in attributes]}
    pq.write_table(pa.table(table), path)


def _entries(feature, rng, count):
    if feature.vocabulary is not None:
        return [str(feature.words.words[i]) for i in rng.integers(0, len(feature.words), count)]
    return rng.integers(0, min(feature.num_rows, 20), count).tolist()


def _id(feature, rng, lengths):
    if feature.compute is not None:
        return _computed(feature.compute, rng, len(lengths))
    values = _entries(feature, rng, len(lengths))
    if feature.weight_separator is not None:
        values = [f"{value}{feature.weight_separator}0.5" for value in values]
    return {feature.id_column: values}


def _raw(feature, rng, lengths):
    if feature.compute is not None:
        return _computed(feature.compute, rng, len(lengths))
    shape = len(lengths) if feature.dim == 1 else (len(lengths), feature.dim)
    return {feature.columns[0]: rng.uniform(0, 1, shape).astype(np.float32).tolist()}


def _combo(feature, rng, lengths):
    return {column: rng.integers(0, 9, len(lengths)).tolist() for column in feature.cross}


def _each(record, rng, lengths):
    """The columns of one that is computed element by element: sequences, and columns that are none."""
    ends = np.cumsum(lengths)
    made = {}
    for column, values in _computed(record.compute_each, rng, max(int(ends[-1]), len(lengths))).items():
        parts = [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        joined = [record.separator.join(map(str, part)) for part in parts]
        made[column] = joined if column in record.sequences else values[: len(lengths)]
    return made


def _sequence(feature, rng, lengths):
    if feature.compute is not None:
        return _each(feature.compute, rng, lengths)
    rows = [_entries(feature, rng, length) for length in lengths]
    return {feature.id_column: [feature.separator.join(map(str, row)) for row in rows]}


def _raw_sequence(feature, rng, lengths):
    if feature.compute is not None:
        return _each(feature.compute, rng, lengths)

    def element():
        return (feature.value_separator or "").join(f"{x:.3f}" for x in rng.uniform(0, 1, feature.dim))

    return {feature.columns[0]: [feature.separator.join(element() for _ in range(length)) for length in lengths]}


def _computed(record, rng, rows):
    """The columns of a computed one: keys and numbers from 0 to 9, maps of these, words."""
    made = {}
    for field, given in zip(FIELDS_OF[computed.name_of(record)], record.inputs, strict=False):
        if not isinstance(given, str):
            made |= _computed(given, rng, rows)
            continue
        keys = rng.integers(0, 9, (rows, 2))
        made[given] = [FORMS[field](a, b, record) for a, b in keys.tolist()]
    return made


FIELDS_OF = {
    "lookup": ("map", "number"),
    "match": ("nested", "number", "number"),
    "expr": ("number",) * 5,
    "combine": ("word",),
    "bool_mask": ("words", "marks"),
    "overlap": ("words", "words"),
    "kv_dot_product": ("pairs", "pairs"),
    "edit_distance": ("text", "text"),
    "bucketize": ("number",),
    "constant": (),
}
FORMS = {
    "number": lambda a, b, record: a,
    "map": lambda a, b, record: f"{a}:{b}{record.map_separator}{b}:{a}",
    "nested": lambda a, b, record: f"{a}^{b}:{a},{a}:{b}|{b}^{a}:{b}",
    "word": lambda a, b, record: f"w{a}" if record.values else a,
    "marks": lambda a, b, record: f"{a > b}{record.separator}{a <= b}",
    "words": lambda a, b, record: f"w{a}{record.separator}w{b}",
    "pairs": lambda a, b, record: f"w{a}:{b}{record.separator}w{b}:{a}",
    "text": lambda a, b, record: f"text {a} {b}",
}


def _tokenize(feature, rng, lengths):
    return {feature.columns[0]: [" ".join("ab"[i % 2] for i in range(length + 1)) for length in lengths]}


def write_pairs(config, path, rows=40, seed=0):
    """Write pairs of users and items, for a sampler by user."""
    rng = np.random.default_rng(seed)
    pairs = {"userid": rng.integers(0, 20, rows), "itemid": rng.integers(0, 20, rows), "weight": np.ones(rows)}
    pq.write_table(pa.table(pairs), path)


def write_tree(config, nodes, edges):
    """Write a tree of 1 + 2 + 4 + 8 nodes, whose leaves are 7 to 14, and the ancestors of each leaf."""
    into = config.data.tree.nodes.into
    count = 15
    made = columns_of(config, count, np.random.default_rng(0)) | {
        "tree_level": [(node + 1).bit_length() - 1 for node in range(count)],
        config.data.tree.id_column: list(range(count)),
    }
    attributes = [
        config.data.tree.nodes.separator.join(str(made[name][node]) for name in into) for node in range(count)
    ]
    table = {"id": np.arange(count), "weight": np.ones(count), "attrs": attributes}
    pq.write_table(pa.table(table), nodes)
    pairs = []
    for leaf in range(7, count):
        node = leaf
        while node:
            node = (node - 1) // 2
            pairs.append((leaf, node))
    leaves, ancestors = zip(*pairs, strict=True)
    pq.write_table(pa.table({"src_id": leaves, "dst_id": ancestors, "weight": [1.0] * len(pairs)}), edges)


MAKERS = {
    "id": _id,
    "raw": _raw,
    "combo": _combo,
    "sequence": _sequence,
    "raw_sequence": _raw_sequence,
    "tokenize": _tokenize,
}
