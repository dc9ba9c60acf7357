"""Several candidates of an example: the sequences that hold them, and the labels, which are lists then."""

from __future__ import annotations

from sparrow.config.sections.config import Config
from sparrow.config.sections.tasks import Task
from sparrow.data import CandidateLabel, CheckedLabel, Feature, Label


def candidate_sequence(config: Config) -> Feature | None:
    """Return a sequence that holds an element for each candidate of an example; None: an example is one candidate."""
    if config.model is None or config.data is None:
        return None
    group = config.model.architecture.candidate_group
    names = () if group is None else config.model.groups.get(group, ())
    found = [feature for feature in config.data.features if feature.name in names and feature.sequence_length]
    return found[0] if found else None


def read_labels(task: Task) -> list[str]:
    """Return the labels of a task; some losses read none, as those of two towers: a row's item is the one chosen."""
    label = [task.label] if any(loss.reads_label for loss in task.losses) else []
    return [*label, *([task.task_space_label] if task.task_space_label else [])]


def label_of(config: Config, label: Label) -> Label:
    """Return the label as the data holds it: a list, where an example has several candidates."""
    sequence = candidate_sequence(config)
    if sequence is None:
        return label
    return CandidateLabel(
        label.name,
        label.column,
        label.at_least,
        label.bitmask,
        max_length=sequence.sequence_length or 0,
        keep=getattr(sequence, "keep", "last"),
        separator=getattr(sequence, "separator", None),
        checks=label.checks if isinstance(label, CheckedLabel) else (),
    )


def label_lengths(config: Config) -> list[tuple[str, tuple[str, ...]]]:
    """Return the labels whose lengths must be those of the candidates, by group, after a sequence of candidates."""
    sequence = candidate_sequence(config)
    if sequence is None or config.model is None:
        return []
    labels = [name for task in config.tasks.values() for name in read_labels(task)]
    return [(str(config.model.architecture.candidate_group), (sequence.name, *dict.fromkeys(labels)))]
