"""`export`: a trained model as files that predict without its code."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sparrow import fields
from sparrow.config import Assembly, need
from sparrow.embedding import Sequence
from sparrow.exports.contents import (
    TABLE_DTYPES,
    Parameters,
    TableDtype,
    described_features,
    described_inputs,
    described_outputs,
    exported_ids,
    live_ids,
    smaller,
    streamed_tables,
    table_dtype,
    used_rows,
)
from sparrow.exports.folder import whole
from sparrow.exports.functions import Arguments, Arrays, Exported, Function, exported, rows_are_independent
from sparrow.exports.states import state_functions
from sparrow.files import AnyPath, at, streamed
from sparrow.models import registry as models
from sparrow.retrieval import Index, write_index
from sparrow.runs import Program, TrainState
from sparrow.runs.evaluating.predict_files import prediction_batch_size, used_in_evaluation
from sparrow.serving.description import (
    IDS,
    INDEX,
    NAME,
    PARAMETERS,
    PREDICT,
    PROGRAM,
    STATE,
    TABLES,
    Description,
    FunctionEntry,
    LookupEntry,
    TableEntry,
)
from sparrow.serving.tensors import Fingerprint, fingerprint, write
from sparrow.tasks import TOWERS, is_matching, predictions, vector_column
from sparrow.versions import versions


@dataclasses.dataclass(frozen=True)
class Programs:
    """The functions of an export: the same for each state of a program.

    Attributes:
      made: the functions, by name.
      lengths: the most elements of each sequence, by the name of the function.
      independent_rows: whether a row's prediction depends on that row alone.
    """

    made: dict[str, Exported]
    lengths: dict[str, dict[str, int]]
    independent_rows: bool


def traced(program: Program, parameters: Parameters, states: bool = False) -> Programs:
    """Return the functions of an export, and trace each of them for that."""
    arguments = Arguments(
        parameters=jax.eval_shape(lambda: parameters.arrays),
        acts={spec.name: flat_width(program.assembly, spec.name) for spec in program.assembly.specs},
        numbers={
            feature.name: flat_width(program.assembly, feature.name)
            for feature in program.assembly.features
            if not feature.is_sparse
        },
    )
    functions = _functions(program, parameters)
    of_states = state_functions(program, parameters, arguments) if states else {}
    made = {name: exported(function, arguments) for name, function in functions.items()}
    made |= {name: exported(each.function, each.arguments) for name, each in of_states.items()}
    lengths = {name: dict(each.lengths) for name, each in of_states.items()}
    return Programs(made, lengths, rows_are_independent(functions[PREDICT], arguments, parameters.arrays))


def export(
    program: Program,
    state: TrainState,
    folder: str | AnyPath,
    *,
    ema: bool | None = None,
    overwrite: bool = False,
    index: Index | None = None,
    tables: TableDtype | None = None,
    all_rows: bool = False,
    states: bool = False,
    programs: Programs | None = None,
    newest_event: float | None = None,
) -> Description:
    """Write a trained model as StableHLO, safetensors and a description; `sparrow.serving.load` opens it.

    The folder appears when all of it is written. `sparrow.runs.load` gives ``program, state``. Tables are
    written in blocks, so that memory holds no second copy of one.

    Args:
      program: the trained program.
      state: its state.
      folder: the folder to write.
      ema: whether to take the average of the dense parameters; None: as evaluation does.
      overwrite: whether to replace an existing export.
      index: items to recommend, from `sparrow.runs.Run.item_index`.
      tables: the dtype of the tables in the export: "float16", "int8" or "int4"; None: the dtype of training.
      all_rows: whether dynamic tables are written with rows that have no id yet, for deltas to come.
      states: whether to write functions that keep a user's history as a state, for `ExportedModel.histories`. A model
        whose states depend on more than the history is refused by name.
      programs: the functions of `traced`, for another state of this program; None: they are traced.
      newest_event: as of `Description`.
    """
    if tables is not None:
        fields.choice("export: tables", tables, TABLE_DTYPES)
    optimizer = used_in_evaluation(program.config, state.optimizer, ema)
    with whole(at(folder), overwrite) as partial:
        parameters = Parameters({"params": optimizer.params, "rest": state.rest})
        programs = programs or traced(program, parameters, states)
        made, lengths = programs.made, programs.lengths
        features = described_features(program.assembly.features, partial)
        if index is not None:
            write_index(index, partial / INDEX)
        files = {
            path.relative_to(partial).as_posix(): _fingerprint(path) for path in partial.rglob("*") if path.is_file()
        }
        for name, function in made.items():
            files[_file(name)] = _written(partial / _file(name), function.artifact)
        taken = {name for each in made.values() for name in each.arguments.parameters}  # others are for training
        kept = {name: np.asarray(own, order="C") for name, own in parameters.arrays.items() if name in taken}
        files[PARAMETERS] = write(partial / PARAMETERS, streamed(kept))
        ids = live_ids(program.embedder, optimizer.embedding)
        used = used_rows(program.embedder, {} if all_rows else ids)
        own = streamed_tables(program.embedder, optimizer.embedding, used)
        files[TABLES] = write(partial / TABLES, [smaller(table, tables) for table in own])
        if ids:
            files[IDS] = write(partial / IDS, streamed(exported_ids(program.embedder, ids)))
        description = Description(
            model=models.name_of(need(program.config.model, "model").architecture),
            step=int(state.optimizer.step),
            ema=optimizer is not state.optimizer,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            versions=versions(),
            platforms=[
                p for p in made[PREDICT].platforms if all(p in function.platforms for function in made.values())
            ],
            batch_size=prediction_batch_size(program.config),
            independent_rows=programs.independent_rows,
            tasks={name: {"label": task.label, "output": name} for name, task in program.config.tasks.items()},
            functions={name: _entry(program, name, function, lengths.get(name, {})) for name, function in made.items()},
            features=features,
            tables={
                name: TableEntry(
                    used[name],
                    table.embedding_dim,
                    table.dtype if tables is None else table_dtype(tables, table.embedding_dim),
                    table.combiner,
                )
                for name, table in program.embedder.tables.items()
            },
            lookups={
                spec.name: LookupEntry(
                    program.assembly.ids_of[spec.name], spec.table_spec.name, spec.invalid_ids, spec.combiner
                )
                for spec in program.embedder.features
            },
            same_lengths={group: list(names) for group, names in program.assembly.alike},
            files=dict(sorted(files.items())),
            newest_event=newest_event,
        )
        _written(partial / NAME, description.to_json().encode())
    return description


def give_rows(program: Program, state: TrainState) -> None:
    """Give this process's rows to the first process, which calls `export`."""
    embedder, embedding = program.embedder, state.optimizer.embedding
    for table in streamed_tables(embedder, embedding, used_rows(embedder, live_ids(embedder, embedding))):
        for _ in table.blocks:
            pass


def _functions(program: Program, parameters: Parameters) -> dict[str, Function]:
    """Return the function that predicts and, for two towers, one function for each."""
    tasks = program.config.tasks

    def predict(arrays: Arrays, acts: Arrays, numbers: Arrays) -> Arrays:
        tree = parameters.tree(arrays)
        given = in_order(program.assembly, acts), in_order(program.assembly, numbers)
        return predictions(tasks, program.forward(tree["params"], tree["rest"], *given))

    def tower(name: str) -> Function:
        column = vector_column(name)
        return lambda arrays, acts, numbers: {column: predict(arrays, acts, numbers)[column]}

    functions: dict[str, Function] = {PREDICT: predict}
    if any(is_matching(task) for task in tasks.values()):
        functions |= {name: tower(name) for name in TOWERS}
    return functions


def flat_width(assembly: Assembly, name: str) -> int:
    """Return the width of one argument: of a sequence, that of `Sequence.flat`."""
    inputs = assembly.inputs
    if name in assembly.lengths:
        return assembly.lengths[name] * inputs.sequences[name] + 1
    return inputs.acts[name] if name in inputs.acts else inputs.numbers[name]


def in_order(assembly: Assembly, given: Arrays) -> dict[str, Any]:
    """Return the arguments with sequences as the model takes them."""
    dims = assembly.inputs.sequences
    return {name: Sequence.of_flat(array, dims[name]) if name in dims else array for name, array in given.items()}


def _entry(program: Program, name: str, made: Exported, lengths: dict[str, int]) -> FunctionEntry:
    arguments = made.arguments
    read = {*(program.assembly.ids_of[lookup] for lookup in arguments.acts), *arguments.numbers}
    return FunctionEntry(
        file=_file(name),
        inputs=described_inputs([f for f in program.assembly.features if f.name in read], program.id_kinds),
        outputs=described_outputs(program.config.tasks, made),
        parameters=list(arguments.parameters),
        lookups=list(arguments.acts),
        numbers=[number for number in arguments.numbers if number != STATE],
        lengths={feature: length for feature, length in lengths.items() if feature in read},
        state=arguments.numbers.get(STATE, 0),
    )


def _file(function: str) -> str:
    return f"{function}{PROGRAM}"


def _written(path: Path, data: bytes) -> Fingerprint:
    path.write_bytes(data)
    return _fingerprint(path)


def _fingerprint(path: Path) -> Fingerprint:
    with path.open("rb") as file:
        return fingerprint(file)
