"""A run as HTML, for notebooks: its numbers, its tables and its curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.reports import inline, run_charts, size

if TYPE_CHECKING:
    from sparrow.runs.run import Run


def run_html(run: Run) -> str:
    """Return the view of a run."""
    tables = run.embedder.tables.values()
    rows = sum(table.vocabulary_size for table in tables)
    held = sum(table.vocabulary_size * table.embedding_dim for table in tables)
    facts = {name: f"{value:.6g}" for name, value in run.results.items()}
    facts["tables"] = f"{len(run.tables)} of {rows:,} rows, {size(4 * held)}"
    if run.examples_per_second == run.examples_per_second:
        facts["speed"] = f"{run.examples_per_second:,.0f} examples a second"
    if run.folder is not None:
        facts["folder"] = str(run.folder)
    if run.note:
        facts["note"] = run.note
    return inline(repr(run), facts, [] if run.folder is None else run_charts(run.folder))
