"""Importance of features by permutation: the loss after the values of one feature were dealt to other rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparrow import config as configs
from sparrow.config import Config
from sparrow.errors import ConfigError
from sparrow.files import AnyPath, replace_file
from sparrow.reports import IMPORTANCE
from sparrow.runs.evaluating.evaluation import Evaluator
from sparrow.runs.step.program import Program, TrainState

ROWS: Final = 20_000


def importance(
    program: Program,
    state: TrainState,
    evaluator_of: Callable[[Any], Evaluator],
    data: Any,
    *,
    rows: int,
    seed: int,
    log: Callable[[str], None],
) -> dict[str, dict[str, float]]:
    """Return, by feature, how much each result grows when the feature's columns are permuted among the rows.

    Features that read the same columns go together, joined by " + ". A loss that grows is a feature that the model
    uses; one that hardly changes could be left out. The feature's effect through others that resemble it is not seen.

    ``evaluator_of`` returns the evaluation on rows; the other arguments are those of `Run.importance`. Features are
    dealt by one permutation.
    """
    table = _rows(program.config, data, rows)
    evaluator = evaluator_of(table)
    order = np.random.default_rng(seed).permutation(table.num_rows)

    def results(given: pa.Table) -> dict[str, float]:
        evaluator.pipeline = evaluator.opened(configs.evaluated_on(program.config, given))
        return evaluator(state)

    before = evaluator(state)
    found: dict[str, dict[str, float]] = {}
    for columns, names in _by_columns(program).items():
        permuted = table
        for column in columns:
            at = permuted.column_names.index(column)
            permuted = permuted.set_column(at, column, permuted.column(column).take(pa.array(order)))
        after = results(permuted)
        name = " + ".join(names)
        found[name] = {result: after[result] - before[result] for result in before}
        log(f"{name}: loss {found[name]['loss']:+.4g}")
    return dict(sorted(found.items(), key=lambda item: -item[1]["loss"]))


def write_importance(folder: AnyPath, found: dict[str, dict[str, float]], step: int) -> None:
    """Keep the importance of features in the folder of a run, for its report."""
    content = {"step": step, "time": time.time(), "features": found}
    replace_file(folder / IMPORTANCE, json.dumps(content, indent=1).encode(), durable=False)


def _by_columns(program: Program) -> dict[tuple[str, ...], list[str]]:
    found: dict[tuple[str, ...], list[str]] = {}
    for feature in program.assembly.features:
        if feature.columns:
            found.setdefault(tuple(sorted(feature.columns)), []).append(feature.name)
    return found


def _rows(own: Config, data: Any, rows: int) -> pa.Table:
    config = own if data is None else configs.evaluated_on(own, data)
    source = configs.need(config.data, "data").evaluate_rows
    if source is None:
        raise ConfigError("the config has no data.evaluate to permute; give the data, such as 'test.parquet'")
    reader = source.open(source.column_names())
    parts: list[pa.Table] = []
    for chunk in range(reader.num_chunks):
        parts.append(reader.read(chunk, "skip").table)
        if sum(part.num_rows for part in parts) >= rows:
            break
    table: pa.Table = pa.concat_tables(parts, promote_options="permissive").slice(0, rows)
    if table.num_rows < 2:
        raise ConfigError("the data to evaluate on has fewer than two rows, so there is nothing to permute")
    return table
