"""`Config`: all that a training run needs to be told."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sparrow.config.data import Data
from sparrow.config.model import Model
from sparrow.config.section import Section
from sparrow.config.tasks import Task
from sparrow.config.train import Evaluate, Name, Train


class Config(Section):
    """A whole config.

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
    sparrow.config.errors.ConfigError: tasks.click.losses[0].name: unknown loss 'binary_crossentropy':
        did you mean 'binary_cross_entropy'? ...
    """

    train: Train
    """How the model is trained."""
    tasks: Annotated[dict[Name, Task], Field(min_length=1)]
    """What the model is to learn, by name."""
    data: Data | None = None
    """Where examples come from; a run needs it, a loop of one's own may not."""
    model: Model | None = None
    """What is trained; a run needs it, a loop of one's own may not."""
    evaluate: Evaluate = Evaluate()
    """How the model is evaluated."""
    model_dir: Name | None = None
    """The folder of checkpoints, logs and results."""
