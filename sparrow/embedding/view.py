"""Tables as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from sparrow.embedding.specs import FeatureSpec, TableSpec

HEAD = ("table", "rows", "dim", "dtype", "optimizer", "features")


def tables_html(title: str, tables: Mapping[str, TableSpec], features: Iterable[FeatureSpec]) -> str:
    """Return one line for each table: its size, its rule and its features."""
    by_table: dict[str, list[str]] = {name: [] for name in tables}
    for feature in features:
        by_table[feature.table_spec.name].append(feature.name)
    lines = [
        (name, f"{t.vocabulary_size:,}", f"{t.embedding_dim}", t.dtype, t.optimizer.name, ", ".join(by_table[name]))
        for name, t in tables.items()
    ]
    head = "".join(f"<th>{name}</th>" for name in HEAD)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    return f"<p><b>{escape(title)}</b></p><table><tr>{head}</tr>{body}</table>"
