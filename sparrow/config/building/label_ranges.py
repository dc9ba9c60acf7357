"""The labels that the losses of a config can work with."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sparrow.config.sections.config import Config
from sparrow.config.sections.tasks import Task
from sparrow.data import CheckedLabel, Label, LabelCheck
from sparrow.losses import Loss, registry


def checked_label(config: Config, label: Label, others: Mapping[str, Label]) -> Label:
    """Return the label with the checks that the losses of its tasks need. ``others``: derived labels, by name."""
    checks = [
        check
        for name, task in config.tasks.items()
        for loss in task.losses
        if task.label == label.name and (check := _check(config, name, task, loss, others)) is not None
    ]
    return CheckedLabel(**vars(label), checks=tuple(dict.fromkeys(checks))) if checks else label


def _check(config: Config, name: str, task: Task, loss: Loss, others: Mapping[str, Label]) -> LabelCheck | None:
    if loss.label_kind not in ("binary", "class"):
        return None
    is_class = loss.label_kind == "class"
    classes = loss.num_classes or _classes_of(config, name)
    without_space = task.task_space_label is None or task.out_task_space_weight != 0
    return LabelCheck(
        user=f"{registry.name_of(loss)} of the task '{name}'",
        most=1.0 if not is_class else classes - 1 if classes is not None else math.inf,
        integers=is_class,
        weight=task.sample_weight,
        space=None if without_space else others.get(task.task_space_label or "", Label(task.task_space_label or "")),
    )


def _classes_of(config: Config, task: str) -> int | None:
    """Return the number of logits that the model has for a task; None where its options do not give it."""
    architecture = None if config.model is None else config.model.architecture
    towers = getattr(architecture, "task_towers", ())
    described = next((tower for tower in towers if tower.task == task), architecture)
    number = getattr(described, "num_classes", None)
    return number if isinstance(number, int) and number > 1 else None
