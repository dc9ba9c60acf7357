"""Recommendations of TDM: the tree of its config, searched by beam with the model's own scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.config import Config, ConfigError, need
from sparrow.retrieval import ROW, Found, ItemTree, Where, passing
from sparrow.runs.evaluating.predict_files import predict_table
from sparrow.runs.step.program import Program, TrainState

WIDTH: Final = 4
"""Nodes of a level that are followed, for each item that is wanted."""
TOGETHER: Final = 256
"""Users whose nodes are scored together."""


class Nodes(NamedTuple):
    """The nodes of a config's tree.

    Attributes:
      table: a row per node.
      tree: the nodes by place.
      ids: the ids of all nodes.
      item: the column of the item's id in the examples.
      feature: the feature that looks a node's id up in a table; None: there is none.
    """

    table: Any
    tree: ItemTree
    ids: Any
    item: str
    feature: str | None

    @property
    def leaves(self) -> Any:
        """The rows of the items, without the column of parents."""
        return self.table.filter(pa.array(self.tree.is_leaf))


def nodes_of(config: Config) -> Nodes:
    """Return the tree of a config, or raise `ConfigError` where it has none that names parents."""
    data = need(config.data, "data")
    section: Any = data.tree
    if section is None or section.parent_column is None:
        raise ConfigError("a search by beam needs data.tree with parent_column, the tree that the model was trained on")
    source = section.nodes
    reader = source.open(source.column_names())
    table = pa.concat_tables([reader.read(chunk, data.bad_rows).table for chunk in range(reader.num_chunks)])
    table = table.combine_chunks()
    key = section.nodes_id_column or section.id_column
    ids = table[key].combine_chunks()
    tree = ItemTree.of(ids, table[section.parent_column].combine_chunks(), "data.tree.nodes")
    table = table.drop([section.parent_column]).rename_columns(
        [section.id_column if name == key else name for name in table.column_names if name != section.parent_column]
    )
    own = [f.name for f in data.features if f.name in section.features and f.columns == (section.id_column,)]
    return Nodes(table, tree, ids, section.id_column, own[0] if own else None)


def searched(
    program: Program,
    state: TrainState,
    users: Any,
    k: int,
    *,
    exclude: Sequence[Any] | None,
    allow: Any,
    where: Where | None,
    batch_size: int | None,
) -> Any:
    """Return the ``k`` best items of each row of ``users`` as `sparrow.retrieval.ItemIndex.recommended` does."""
    nodes = nodes_of(program.config)
    task, user = next(iter(program.config.tasks)), need(program.config.data, "data").user_column
    keys = users.select([user]) if user in users.column_names else pa.table({ROW: np.arange(users.num_rows)})
    allowed = np.ones((1, len(nodes.ids)), np.bool_)
    if allow is not None:
        allowed &= pc.is_in(nodes.ids, value_set=pa.array(allow, nodes.ids.type)).to_numpy(zero_copy_only=False)
    if where:
        allowed &= passing(nodes.table, where)
    given = [name for name in users.column_names if name not in nodes.table.column_names]
    made = []
    for start in range(0, users.num_rows, TOGETHER):
        some = users.select(given).slice(start, TOGETHER)
        own = allowed
        if exclude is not None:
            own = np.repeat(allowed, some.num_rows, axis=0)
            for row, left_out in enumerate(exclude[start : start + some.num_rows]):
                places = pc.index_in(pa.array(left_out or [], nodes.ids.type), value_set=nodes.ids).drop_null()
                own[row, places.to_numpy()] = False

        def score(queries: Any, places: Any, some: Any = some) -> Any:
            rows = some.take(pa.array(queries))
            for name in nodes.table.column_names:
                rows = rows.append_column(name, nodes.table[name].take(pa.array(places)))
            predicted = predict_table(program, state, rows, batch_size=batch_size)[task]
            return predicted.to_numpy().astype(np.float32)

        made.append(nodes.tree.beam(some.num_rows, score, k, WIDTH * k, own))
    rows, scores = (np.concatenate(part) for part in zip(*made, strict=True))
    return Found(rows, scores, nodes.ids, nodes.item).table(keys)
