"""`Config`: the complete description of a training run."""

from __future__ import annotations

from typing import Annotated

from sparrow.config.loading.section import Section
from sparrow.config.sections.data import Data
from sparrow.config.sections.model import Model
from sparrow.config.sections.tasks import Task
from sparrow.config.sections.train import Evaluate, Export, Name, Train
from sparrow.registry import NOT_EMPTY


class Config(Section):
    """A complete config.

    >>> config = Config(
    ...     train={
    ...         "sparse_optimizer": {"name": "rowwise_adagrad", "learning_rate": 0.05},
    ...         "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
    ...         "batch_size": 1024,
    ...         "epochs": 1,
    ...     },
    ...     tasks={"click": {"label": "clicked", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}},
    ... )
    >>> config.train.sparse_optimizer.eps
    1e-08
    >>> Config(train=config.train, tasks={"click": {"label": "clicked", "losses": ["binary_crossentropy"]}})
    Traceback (most recent call last):
    sparrow.errors.ConfigError: tasks.click.losses[0].name: unknown loss 'binary_crossentropy':
        did you mean 'binary_cross_entropy'? ...
    """

    train: Train
    """How the model is trained."""
    tasks: Annotated[dict[Name, Task], NOT_EMPTY]
    """The tasks that the model learns, by name."""
    data: Data | None = None
    """Where examples come from; a run needs it, a loop of your own may not."""
    model: Model | None = None
    """The model; required for a run, optional for a loop of your own."""
    evaluate: Evaluate = Evaluate()
    """How the model is evaluated."""
    export: Export | None = None
    """Export the model while it trains, for a server that follows it."""
    model_dir: Name | None = None
    """The folder of checkpoints, logs and results."""

    def _check(self) -> None:
        windows = self.evaluate.windows
        if windows is not None and windows.seconds is not None and (self.data is None or not self.data.time_column):
            raise ValueError("evaluate.windows.seconds needs data.time_column, the column of the time")
        saved = {"train.checkpoint": self.train.checkpoint, "train.checkpoint.deltas": self.train.checkpoint.deltas}
        for name, section in {**saved, "export": self.export}.items():
            by_event_time = getattr(section, "every_event_minutes", None) is not None
            if by_event_time and (self.data is None or not self.data.time_column):
                raise ValueError(f"{name}.every_event_minutes needs data.time_column, the column of the time")
        if self.evaluate.use_ema and self.train.ema is None:
            raise ValueError("evaluate.use_ema is true, but train.ema keeps no average; set it, for example to 0.999")
        self._check_negatives()
        self._check_pareto()
        towers = getattr(self.model.architecture, "task_towers", None) if self.model else None
        if towers is not None and {tower.task for tower in towers} != set(self.tasks):
            of_model = ", ".join(tower.task for tower in towers)
            raise ValueError(
                f"the task_towers of the model are {of_model}, the tasks are {', '.join(self.tasks)}; make them equal"
            )

    def _check_pareto(self) -> None:
        floors = {name: task.pareto_min_loss_weight for name, task in self.tasks.items()}
        if self.train.pareto_loss_weights and len(floors) < 2:
            raise ValueError("train.pareto_loss_weights weighs tasks against each other, and there is one; remove it")
        if sum(floors.values()) >= 1:
            raise ValueError(
                f"the pareto_min_loss_weight of all tasks must have a sum below 1, got {sum(floors.values()):g}"
            )
        if any(floors.values()) and not self.train.pareto_loss_weights:
            raise ValueError("pareto_min_loss_weight has no effect without train.pareto_loss_weights; set it to true")

    def _check_negatives(self) -> None:
        if self.data is None or self.model is None:
            return
        wanted = getattr(self.model.architecture, "negatives", None)
        drawn = self.data.negatives is not None
        read = {output for task in self.tasks.values() for loss in task.losses for output in loss.outputs}
        if drawn and wanted == "in_batch":
            raise ValueError("data.negatives is not used by model.architecture.negatives 'in_batch'; set 'sampled'")
        if not drawn and (wanted == "sampled" or "negatives" in read):
            raise ValueError("sampled negatives need data.negatives, the source that they are drawn from")
