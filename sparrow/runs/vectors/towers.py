"""The vectors of one tower of a two-tower model, from rows that hold the columns of that tower alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding import Sequence
from sparrow.kernels import portable_attention
from sparrow.runs.evaluating.predict_files import predict_table
from sparrow.runs.step.program import Program, TrainState
from sparrow.tasks import TOWERS, is_matching, vector_column


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
        held = Sequence(jnp.zeros((2, lengths[name], dim)), jnp.ones(2, jnp.int32))
        (acts if name in program.assembly.ids_of else numbers)[name] = held

    def vectors(acts: Any, numbers: Any) -> jax.Array:
        outputs = program.forward(state.optimizer.params, state.rest, acts, numbers)
        return jnp.asarray(outputs[TOWERS[tower]])

    with portable_attention():
        kept = jax.export.export(jax.jit(vectors))(acts, numbers).module_kept_var_idx
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path((acts, numbers))]
    names = {paths[index][1].key for index in kept}
    return {program.assembly.ids_of.get(name, name) for name in names}
