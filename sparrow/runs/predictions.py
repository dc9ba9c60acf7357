"""What a model's outputs say about a task: the prediction that metrics judge and that users get.

===============================================  ==================================================================
first loss of the task                           prediction
===============================================  ==================================================================
binary_cross_entropy, binary_focal               sigmoid of the logits: the probability of a yes
jrc                                              softmax of the two logits, its second entry: the same
softmax_cross_entropy                            softmax of the logits: a probability per class
l2, and one's own                                the output as it is; one's own loss may have ``prediction(output)``
bpr with a session_name                          sigmoid of the logits, which keeps their order
in_batch_softmax, sampled_softmax, other bpr     inner products of the query with its item and with the others
===============================================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp

from sparrow import losses
from sparrow.config import Task
from sparrow.config.building.objective import NEGATIVE_IDS, POSITIVE_IDS

PREFIX: Final = "prediction"
VECTORS: Final = ("query", "item")
"""What two towers give beside their score."""

Arrays = Mapping[str, Any]
_MATCHING = (losses.InBatchSoftmax, losses.SampledSoftmax)


def is_matching(task: Task) -> bool:
    """Whether the task is learnt by two towers, whose outputs are vectors."""
    loss = task.losses[0]
    return isinstance(loss, _MATCHING) or (isinstance(loss, losses.BPR) and loss.session_name is None)


def predicted(name: str, task: Task, outputs: Arrays) -> jax.Array:
    """The prediction for each example: (batch,), or (batch, classes). For two towers, the score of its own item.

    >>> task = Task(label="clicked", losses=["binary_cross_entropy"])
    >>> predicted("click", task, {"logits": jnp.zeros(2)}).tolist()
    [0.5, 0.5]
    """
    if is_matching(task):
        query = outputs["query"]
        return jnp.einsum("bd,bd->b", query, outputs["item"][: query.shape[0]])
    loss, output = task.losses[0], outputs[name if name in outputs else "logits"]
    if isinstance(loss, losses.BinaryCrossEntropy | losses.BinaryFocal | losses.BPR):
        return jax.nn.sigmoid(output)
    if isinstance(loss, losses.JRC):
        return jax.nn.softmax(output, axis=-1)[:, 1]
    if isinstance(loss, losses.SoftmaxCrossEntropy):
        return jax.nn.softmax(output, axis=-1)
    own = getattr(loss, "prediction", None)
    prediction: jax.Array = output if own is None else own(output)
    return prediction


def columns_of(tasks: Mapping[str, Task]) -> dict[str, str]:
    """The name of each task's prediction in files: ``prediction``, or ``prediction_<task>`` where there are several."""
    return {name: PREFIX if len(tasks) == 1 else f"{PREFIX}_{name}" for name in tasks}


def predictions(tasks: Mapping[str, Task], outputs: Arrays) -> dict[str, jax.Array]:
    """All that a user gets, by column: the prediction of each task and, of two towers, their vectors."""
    made = {}
    for name, column in columns_of(tasks).items():
        made[column] = predicted(name, tasks[name], outputs)
        if is_matching(tasks[name]):
            made |= {vector: outputs[vector][: outputs["query"].shape[0]] for vector in VECTORS}
    return made


def meaning(task: Task) -> str:
    """What the numbers of `predicted` are, in words."""
    if is_matching(task):
        return "score: the inner product of query and item"
    if isinstance(task.losses[0], losses.BinaryCrossEntropy | losses.BinaryFocal | losses.JRC):
        return "probability"
    if isinstance(task.losses[0], losses.SoftmaxCrossEntropy):
        return "probability of each class"
    return "value"


def judged(name: str, task: Task, outputs: Arrays, columns: Arrays) -> tuple[jax.Array, jax.Array]:
    """Predictions and labels as metrics take them.

    For two towers these are lists: the scores of all candidates of a query, and which of them it chose.

    >>> task = Task(label="clicked", losses=["in_batch_softmax"])
    >>> scores, chosen = judged("match", task, {"query": jnp.eye(2), "item": jnp.eye(2)}, {})
    >>> scores.tolist(), chosen.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    """
    if not is_matching(task):
        return predicted(name, task, outputs), columns[task.label]
    query, item = outputs["query"], outputs["item"]
    if "negatives" not in outputs:
        return query @ item.T, jnp.arange(len(query))
    others = query @ outputs["negatives"].T
    if POSITIVE_IDS in columns:  # what a query chose is none of its negatives
        others = jnp.where(columns[POSITIVE_IDS][:, None] == columns[NEGATIVE_IDS], -jnp.inf, others)
    scores = jnp.concatenate([predicted(name, task, outputs)[:, None], others], axis=1)
    return scores, jnp.zeros(len(query), jnp.int32)
