"""The vectors of a model's towers; the items of a catalog, tree or codes, and the best of them for rows of users."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from flax import nnx

from sparrow import retrieval
from sparrow.config import Config, ConfigError, catalog_items, item_column, item_features, need, user_column
from sparrow.data import DataError, Source, distinct_rows
from sparrow.embedding import Sequence as Padded
from sparrow.files import AnyPath, Remote
from sparrow.kernels import portable_attention
from sparrow.models import Tiger
from sparrow.registry import nearest
from sparrow.runs.evaluating.predict_files import predict_table, source_like
from sparrow.runs.step.program import Program, TrainState
from sparrow.runs.vectors.table_view import TableView
from sparrow.serving import ExportedModel, Ranker, load
from sparrow.tasks import TOWERS, is_matching, vector_column

CODES: Final = "codes"
"""The column of items' codes, as the importer of semantic ids names the task."""
QUERIES: Final = 1000
"""Users by which an approximate index is compared with exact search."""


def item_index(
    program: Program,
    state: TrainState,
    items: Any = None,
    *,
    id_column: str | None = None,
    attributes: Sequence[str] = (),
    batch_size: int | None = None,
) -> retrieval.Index:
    """Return the items that are recommended; the arguments are those of `Run.item_index`."""
    data = need(program.config.data, "data")
    if data.tree is not None:
        if items is not None or id_column is not None or attributes:
            raise ConfigError("the items of tdm are the leaves of data.tree, with all its columns; leave items out")
        return _tree_index(program, state, batch_size)
    if isinstance(nnx.merge(program.apply.evaluating, *program.fresh), Tiger):
        return _code_index(program, state, items, id_column, attributes)
    _check_towers(program)
    config = program.config
    own = need(item_column(config), "data", "item_column")
    source, key = catalog_items(config) if items is None else (source_like(config, items), id_column or own)
    names = item_features(config)
    read = [column for feature in program.assembly.features if feature.name in names for column in feature.columns]
    columns = [key if column == own else column for column in read]
    known = source.column_names()
    for name in attributes:
        if name not in known:
            raise ConfigError(f"the catalog has no column '{name}': {nearest(name, known)}")
    table = _rows(distinct_rows(source, [key, *columns, *attributes], key, data.bad_rows))
    if not table.num_rows:
        raise DataError("the catalog holds no items")
    renamed = table.rename_columns([own if name == key else name for name in table.column_names])
    vectors = tower_vectors(program, state, "item", renamed, batch_size)
    chosen = table.select(list(attributes)) if attributes else None
    ids = table[key].combine_chunks() if isinstance(table[key], pa.ChunkedArray) else table[key]
    ids = ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids
    return retrieval.ItemIndex(ids, vectors, attributes=chosen, item=own, user=user_column(config))


def with_approximate(
    program: Program, state: TrainState, index: retrieval.Index, kind: retrieval.Kind, recall: float = 0.95
) -> retrieval.ItemIndex:
    """Return the index with approximate search, judged by users of the data to train on."""
    if not isinstance(index, retrieval.ItemIndex):
        raise ConfigError("approximate search needs the vectors of two towers; trees and codes are searched by beam")
    data = need(program.config.data, "data")
    reader = data.train_events.open(data.train_events.column_names())
    some = reader.read(0, data.bad_rows).table.slice(0, QUERIES)
    queries = tower_vectors(program, state, "user", some, None)
    return dataclasses.replace(
        index, approximate=retrieval.build_approximate(index.vectors, kind, queries, recall=recall)
    )


def recommendations(
    program: Program,
    state: TrainState,
    index: retrieval.Index,
    users: Any,
    k: int,
    *,
    exclude_seen: bool,
    exclude: Sequence[Any] | None,
    allow: Any,
    where: retrieval.Where | None,
    ranker: str | AnyPath | ExportedModel | None,
    candidates: int,
    batch_size: int | None,
) -> Any:
    """Return a frame with the best items of each row of ``users``; the arguments are those of `Run.recommend`."""
    config = program.config
    if isinstance(users, list | tuple | range | np.ndarray):  # ids alone
        users = {need(user_column(config), "data", "user_column"): users}
    table = _rows(source_like(config, users))
    if exclude_seen:
        if index.user is None or index.user not in table.column_names:
            column = "data.user_column" if index.user is None else f"the column '{index.user}'"
            raise ConfigError(f"exclude_seen needs {column}, the user who has seen an item")
        seen = _seen(config, table[index.user], index.user, index.item)
        exclude = seen if exclude is None else [[*a, *(b or ())] for a, b in zip(seen, exclude, strict=True)]
    queries = table
    if isinstance(index, retrieval.ItemIndex):
        _check_towers(program)
        queries = tower_vectors(program, state, "user", table, batch_size)
        if queries.shape[1] != index.vectors.shape[1]:
            raise ConfigError("this model has several vectors per user, which recommend does not know; use vectors()")
    second = load(ranker) if isinstance(ranker, str | Path | Remote) else ranker
    rank = None if second is None else Ranker(second, index)
    given = {"exclude": exclude, "allow": allow, "where": where, "candidates": candidates}
    return _like(users, index.recommended(table, queries, k, rank, **given))


def _seen(config: Config, users: Any, user: str, item: str) -> list[list[Any]]:
    """Return the items that each user has in ``data.train``, also in rows that are held out, as the data has them."""
    data = need(config.data, "data")
    reader = data.train.open([user, item])
    wanted = pc.unique(users.combine_chunks() if isinstance(users, pa.ChunkedArray) else users)
    held: dict[Any, set[Any]] = {one: set() for one in wanted.to_pylist()}
    for chunk in range(reader.num_chunks):
        rows = reader.read(chunk, data.bad_rows).table
        owners = rows[user].cast(wanted.type)
        rows = rows.filter(pc.is_in(owners, value_set=wanted))
        for owner, own in zip(rows[user].cast(wanted.type).to_pylist(), rows[item].to_pylist(), strict=True):
            if own is not None:
                held[owner].update(own if isinstance(own, list) else [own])
    return [list(held[one]) for one in users.to_pylist()]


def _code_index(
    program: Program, state: TrainState, items: Any, id_column: str | None, attributes: Sequence[str]
) -> retrieval.CodeIndex:
    """Return the codes of a catalog's items, and the model that searches them."""
    if items is None:
        raise ConfigError(
            "a model of codes needs the items and their codes: give items, a file with the column 'codes' that sparrow "
            "predict wrote by a model of semantic ids"
        )
    data = need(program.config.data, "data")
    item = id_column or data.item_column or "item"
    source = source_like(program.config, items)
    for name in (item, CODES, *attributes):
        if name not in source.column_names():
            raise ConfigError(f"the items have no column '{name}': {nearest(name, source.column_names())}")
    table = _rows(source)
    model = nnx.merge(program.apply.evaluating, state.optimizer.params, state.rest)
    uses = {spec.name: spec.table_spec.name for spec in program.embedder.features}
    tables = [program.embedder.table(state.optimizer.embedding, uses[name]) for name in model.codes.names]

    @jax.jit
    def chances(query: jax.Array, known: list[jax.Array]) -> jax.Array:
        rows = [table[codes] for table, codes in zip(tables, known, strict=False)]
        return jax.nn.log_softmax(model.logits(query, rows))

    def decode(users: Any) -> Any:
        states = tower_vectors(program, state, "user", users, None)

        def padded(rows: Any, known: Any) -> Any:
            padding = (1 << max(len(rows) - 1, 0).bit_length()) - len(rows)  # few sizes, few programs
            query, known = (np.pad(each, ((0, padding), (0, 0))) for each in (states[rows], known))
            return np.asarray(chances(query, [known[:, layer] for layer in range(known.shape[1])]))[: len(rows)]

        return padded

    columns = {feature.name: feature.columns[0] for feature in program.assembly.features}
    inputs = [columns[program.assembly.ids_of[name]] for name in model.codes.names]
    chosen = table.select(list(attributes)) if attributes else None
    found = {"attributes": chosen, "decode": decode, "inputs": inputs, "user": data.user_column}
    return retrieval.CodeIndex.of(table, item, CODES, **found)


def _tree_index(program: Program, state: TrainState, batch_size: int | None) -> retrieval.TreeIndex:
    """Return the nodes of a config's tree, and the model that searches them."""

    def predict(rows: Any) -> dict[str, Any]:
        made = predict_table(program, state, rows, batch_size=batch_size)
        return {name: made[name].to_numpy() for name in program.config.tasks}

    read = list(dict.fromkeys(column for feature in program.assembly.features for column in feature.columns))
    return dataclasses.replace(
        tree_of(program.config), model=retrieval.RowModel(predict, read, list(program.config.tasks))
    )


def tree_of(config: Config) -> retrieval.TreeIndex:
    """Return the tree of a config, or raise `ConfigError` where it has none that names parents."""
    data = need(config.data, "data")
    section: Any = data.tree
    if section is None or section.parent_column is None:
        raise ConfigError("a search by beam needs data.tree with parent_column, the tree that the model was trained on")
    key = section.nodes_id_column or section.id_column
    table = _rows(section.nodes, data.bad_rows)
    table = table.rename_columns([section.id_column if name == key else name for name in table.column_names])
    options = {"where": "data.tree.nodes", "user": data.user_column}
    return retrieval.TreeIndex.of(table, section.id_column, section.parent_column, **options)


def tree_again(program: Program, state: TrainState, **options: Any) -> Any:
    """Return the tree of a config built again, from the rows that its model has learned for the leaves' ids."""
    data, tree = need(program.config.data, "data"), tree_of(program.config)
    section: Any = data.tree
    own = [f.name for f in data.features if f.name in section.features and f.columns == (section.id_column,)]
    uses = {feature.name: feature.table_use for feature in program.assembly.features}
    if not own or (use := uses[own[0]]) is None:
        raise ConfigError("none of data.tree.features looks the id of a node up in a table")
    leaves = pa.array(tree.is_leaf)
    ids, held = tree.ids.filter(leaves), tree.attributes
    others = [] if held is None else [name for name in held.column_names if name != retrieval.LEVEL]
    view = TableView(program, state, use.table)
    vectors = view.vectors(view.rows(ids.to_pylist(), own[0]))
    attributes = held.select(others).filter(leaves) if others else None
    return retrieval.build_tree(ids, vectors, item=tree.item, attributes=attributes, **options)


def _check_towers(program: Program) -> None:
    if not tower_names(program):
        raise ConfigError("recommend needs a model of two towers, of codes, or a tree of items")


def _rows(source: Source, bad_rows: Any = "error") -> Any:
    """Return all rows of a source as one table."""
    reader = source.open(source.column_names())
    tables = [reader.read(chunk, bad_rows).table for chunk in range(reader.num_chunks)]
    return pa.concat_tables(tables).combine_chunks()


def _like(given: Any, table: Any) -> Any:
    """Return a table as the kind of frame that was given; anything else gets Arrow."""
    kind = type(given).__module__.partition(".")[0]
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    return table


def tower_names(program: Program) -> tuple[str, ...]:
    """Return the towers of a model; none unless it has two."""
    return tuple(TOWERS) if any(map(is_matching, program.config.tasks.values())) else ()


def tower_vectors(
    program: Program, state: TrainState, tower: str, data: Any, batch_size: int | None
) -> npt.NDArray[np.float32]:
    """Return the vectors of one tower, (rows, dim). Columns of the other tower are not needed."""
    needed = tower_features(program, state, tower)
    table = predict_table(program, state, data, batch_size=batch_size, needed=needed)
    column = table[vector_column(tower)].combine_chunks()
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(column), -1)


def tower_features(program: Program, state: TrainState, tower: str) -> set[str]:
    """Return the features that the vectors of a tower depend on."""
    inputs = program.assembly.inputs
    acts: dict[str, Any] = {name: jnp.zeros((2, dim)) for name, dim in inputs.acts.items()}
    numbers: dict[str, Any] = {name: jnp.zeros((2, dim)) for name, dim in inputs.numbers.items()}
    lengths = program.assembly.lengths
    for name, dim in inputs.sequences.items():
        held = Padded(jnp.zeros((2, lengths[name], dim)), jnp.ones(2, jnp.int32))
        (acts if name in program.assembly.ids_of else numbers)[name] = held

    def vectors(acts: Any, numbers: Any) -> jax.Array:
        outputs = program.forward(state.optimizer.params, state.rest, acts, numbers)
        return jnp.asarray(outputs[TOWERS[tower]])

    with portable_attention():
        kept = jax.export.export(jax.jit(vectors))(acts, numbers).module_kept_var_idx
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path((acts, numbers))]
    names = {paths[index][1].key for index in kept}
    return {program.assembly.ids_of.get(name, name) for name in names}
