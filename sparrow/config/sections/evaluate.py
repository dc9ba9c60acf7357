"""The section ``evaluate`` of a config, with ``evaluate.catalog``: ranks among all items, for two towers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from sparrow.config.loading.section import Section, SourceRecord
from sparrow.config.sections.train import Count, Name, NotNegative


class EarlyStopping(Section):
    """End training early after evaluations without improvement."""

    metric: Name
    """The metric to watch, by its name in the results, such as auc; or loss."""
    mode: Literal["max", "min"]
    """Whether more is better, or less."""
    patience: Count = 1
    """Evaluations in a row without improvement after which training ends."""
    min_change: NotNegative = 0.0
    """The smallest improvement that counts."""


class Windows(Section):
    """Windows of training data whose batches are judged before they are trained on: by time, or by steps."""

    seconds: Annotated[float, Field(gt=0)] | None = None
    """The length of a window in seconds of data.time_column, such as 3600."""
    steps: Count | None = None
    """The length of a window in optimizer steps."""

    @model_validator(mode="after")
    def _check(self) -> Windows:
        if (self.seconds is None) == (self.steps is None):
            raise ValueError("give either seconds, of data.time_column, or steps")
        return self


class Evaluate(Section):
    """How the model is evaluated. The last step is always evaluated, where there is data for it."""

    every_steps: Count | None = None
    """Optimizer steps between two evaluations."""
    every_epochs: Count | None = None
    """Epochs between two evaluations, instead of steps."""
    early_stopping: EarlyStopping | None = None
    """When to end training early."""
    steps: Count | None = None
    """Batches to evaluate on. Default: all."""
    batch_size: Count | None = None
    """Examples in a batch. Default: train.batch_size."""
    use_ema: bool | None = None
    """Whether to evaluate the average of the dense parameters. Default: where train.ema keeps one."""
    windows: Windows | None = None
    """Judge each batch of training before it is trained on, from the same lookup, and log each window of batches."""
    log_every_steps: Count | None = None
    """Batches between two progress lines of an evaluation. Default: no such lines."""
    catalog: Catalog | bool = True
    """Ranks among all items, for two towers; false: none. Default: where the column of the item's id is known."""

    @model_validator(mode="after")
    def _check(self) -> Evaluate:
        if self.every_steps is not None and self.every_epochs is not None:
            raise ValueError(
                f"every_steps ({self.every_steps}) and every_epochs ({self.every_epochs}) exclude each other; keep one"
            )
        if self.early_stopping is not None and self.every_steps is None and self.every_epochs is None:
            raise ValueError("early_stopping needs evaluations to watch; add every_steps or every_epochs")
        return self


class Catalog(Section):
    """Ranks of the chosen items among all items, and the metrics made of them, by user."""

    items: SourceRecord | None = None
    """A row per item, with the columns that its features need. Default: data.negatives.items, or the distinct items of
    the data to train on."""
    id_column: Name | None = None
    """The column of the id in the items. Default: that of data.negatives, or data.item_column."""
    user_column: Name | None = None
    """The column of the user's id in the examples. Default: data.user_column; without it, each example is a user."""
    top_k: Annotated[tuple[Count, ...], Field(min_length=1)] = (10, 20)
    """The lengths of the lists: results are catalog_recall_at_10, catalog_ndcg_at_10, catalog_hr_at_10, ..."""
    exclude_seen: bool = True
    """Whether items that a user has in the data to train on are left out of the list."""
