"""How a model is trained and evaluated: the sections ``train`` and ``evaluate`` of a config."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from sparrow import dense
from sparrow.config.loading.section import Section
from sparrow.data import Source
from sparrow.embedding import Placement
from sparrow.fields import NotNegative, Positive, Share
from sparrow.optimizer import LossScale
from sparrow.registry import NOT_EMPTY, Bounds
from sparrow.rules import Rule

Count = Annotated[int, Bounds(at_least=1, below=2**31)]
Name = Annotated[str, NOT_EMPTY]
Names = Annotated[tuple[Name, ...], NOT_EMPTY]
Summary = Literal["loss", "learning_rate", "parameter", "gradient", "gradient_norm", "global_gradient_norm"]


class TableOptimizer(Section):
    """Tables that get a rule of their own."""

    tables: Names
    """Regular expressions that match complete names of tables; a plain name matches itself."""
    optimizer: Rule
    """Their rule; with the learning rate 0 they are frozen."""


class DenseGroup(Section):
    """The optimizer of a group of dense parameters: the arguments of ``sparrow.dense.build``."""

    optimizer: dense.DenseOptimizer
    """The optimizer's name, or a mapping with its name and hyper-parameters."""
    learning_rate: float | Callable[[Any], Any]
    """A number or a schedule; 0 freezes the group."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay: each step takes learning_rate * weight_decay * parameters away."""
    l2: NotNegative = 0.0
    """l2 * parameters joins the gradient before the optimizer sees it."""
    weight_decay_mask: Names | None = None
    """Regular expressions over full parameter paths: the parameters that weight_decay and l2 act on. Default: all."""

    def _check(self) -> None:
        if not callable(self.learning_rate) and self.learning_rate < 0:
            raise ValueError(f"learning_rate must be at least 0, got {self.learning_rate!r}")


class DensePart(DenseGroup):
    """Dense parameters that are trained in a way of their own."""

    patterns: Names
    """Regular expressions that match complete parameter paths, such as tower/.*/kernel."""


class DenseOptimizer(DenseGroup):
    """The optimizer of the dense parameters."""

    clip_norm: Positive | None = None
    """The largest global norm of the dense gradients."""
    clip_norm_type: Annotated[float, Bounds(at_least=1)] | Literal["inf"] = 2.0
    """Which norm clip_norm bounds: 2, another number of at least 1, or inf for the largest absolute value."""
    clip_value: Positive | None = None
    """The largest absolute value of an element of a dense gradient."""
    parts: dict[Name, DensePart] = dataclasses.field(default_factory=dict)
    """Groups of parameters with an optimizer of their own, by name; this section trains the rest."""

    def _check(self) -> None:
        super()._check()
        if "main" in self.parts:
            raise ValueError("'main' is the name of the parameters that no part takes; rename the part")


def _refuse_both(steps: int | None, epochs: int | None) -> None:
    if steps is not None and epochs is not None:
        raise ValueError(f"every_steps ({steps}) and every_epochs ({epochs}) exclude each other; keep one")


class BestBy(Section):
    """The criterion of the best checkpoint."""

    metric: Name
    """The metric to watch, by its name in the results, such as auc; or loss."""
    mode: Literal["max", "min"]
    """Whether more is better, or less."""


class Timed(Section):
    """When something is done while a model trains, by one or several measures."""

    every_steps: Count | None = None
    """Optimizer steps between two of them."""
    every_seconds: Positive | None = None
    """Seconds between two of them."""
    every_event_minutes: Positive | None = None
    """Minutes of event time between two of them, by data.time_column."""

    def _check(self) -> None:
        if self.every_steps is None and self.every_seconds is None and self.every_event_minutes is None:
            raise ValueError("give every_steps, every_seconds or every_event_minutes")


class Deltas(Timed):
    """When rows that changed are saved, between complete checkpoints. Needs one process, and tables on its device."""

    compact_after: Count = 100
    """Deltas after which they, and the checkpoint that they stand on, become one complete checkpoint."""


class Export(Timed):
    """When a model is exported while it trains: completely at first, then what changed. Needs one process."""

    folder: Name | None = None
    """The folder of the export. Default: export in the folder of the run."""
    tables: Literal["float16", "int8", "int4"] | None = None
    """The dtype of the tables in the export; null: as trained."""
    full_after: Count = 1000
    """Deltas after which a complete export is written."""


class Checkpoint(Section):
    """When the state is saved, and what is kept. The last step is always saved."""

    every_steps: Count | None = None
    """Optimizer steps between two saves."""
    every_epochs: Count | None = None
    """Epochs between two saves, instead of steps."""
    every_minutes: Positive | None = None
    """Minutes between two saves, in addition to steps, epochs or event time. Default: 10 where none is given."""
    every_event_minutes: Positive | None = None
    """Minutes of event time between two saves: after the first step for which the watermark of data.time_column has
    passed the next multiple of it since 1970. A resumed run saves after the same steps."""
    keep: Count | None = 3
    """Number of newest checkpoints to keep; null keeps all."""
    best_by: BestBy | None = None
    """Also save, and keep, the checkpoint of the best evaluation."""
    deltas: Deltas | None = None
    """Save what changed, more often than everything: rows, slots, ids, and the dense part."""
    copy_bytes: Annotated[int, Bounds(at_least=0)] | None = None
    """The most bytes of tables that a save copies to host memory, so that training continues while they are written;
    other tables are written first. Default: a quarter of the free memory for tables on a GPU, else 32 MB."""

    def _check(self) -> None:
        _refuse_both(self.every_steps, self.every_epochs)


class StartFrom(Section):
    """Where the first weights come from: tables and dense parameters of another run's checkpoint, by name.

    The optimizer state and the step count start anew unless ``optimizer`` is true. A table or parameter that the
    checkpoint lacks, or has in another shape, is an error that names it.
    """

    folder: Name
    """The folder of the other run."""
    step: Count | Literal["best"] | None = None
    """The checkpoint: a step, best, or the newest by default."""
    tables: dict[Name, Name] = dataclasses.field(default_factory=dict)
    """Tables with another name there: name here to name there."""
    params: dict[Name, Name] = dataclasses.field(default_factory=dict)
    """Dense parameters with another path there: a regular expression for full paths here to the path there (\\1 is its
    first group)."""
    skip: tuple[Name, ...] = ()
    """Regular expressions for tables and paths of parameters that stay fresh."""
    optimizer: bool = False
    """Whether to take the state of the optimizer too, and to go on counting steps for its schedules."""

    def _check(self) -> None:
        for field, patterns in (("params", self.params), ("skip", self.skip)):
            for pattern in patterns:
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise ValueError(f"{field}: '{pattern}' is not a regular expression: {error}") from None


PlacementName = Literal["rows", "replicated", "device", "columns", "grid"]


class Mesh(Section):
    """The devices that a run is spread over: tables are placed on them, examples of batches split, the rest copied."""

    data: Count
    """Number of devices, of all processes together; batch sizes must be multiples of it."""
    exchange_dtype: Literal["float32", "bfloat16"] = "float32"
    """The dtype of activations and gradients of tables on their way between devices: bfloat16 halves the bytes, and
    rounds each of them once, by at most 2^-8 of itself."""
    placement: Literal["auto", PlacementName] | dict[Name, PlacementName | Placement] = "auto"
    """The place of tables. auto: chosen from their sizes and the first batch of the data; else one for all tables, or
    by table, where tables that are not named are split by rows."""


class Train(Section):
    """How the model is trained."""

    sparse_optimizer: Rule
    """The rule of every table that table_optimizers does not name."""
    dense_optimizer: DenseOptimizer
    """The optimizer of the dense parameters."""
    batch_size: Count
    """Examples in a micro-batch; an optimizer step sees accumulate * batch_size."""
    steps: Count | None = None
    """Optimizer steps to make; either this or epochs."""
    epochs: Count | None = None
    """Passes over the data to make; either this or steps."""
    table_optimizers: tuple[TableOptimizer, ...] = ()
    """Tables with a rule of their own."""
    mesh: Mesh | None = None
    """Devices to spread tables and batches over. Default: one device; with several processes, all of their devices."""
    pipeline: Literal["exact", "patch", "stale"] = "exact"
    """exact: a step looks rows up after all updates before it. patch: the same results; on a mesh, rows of the next
    batch travel beside this step, and those that it changes travel again after it. stale: rows are looked up after all
    updates but the last one, so that lookup and exchange of the next batch overlap this step; results differ."""
    accumulate: Count = 1
    """Micro-batches per optimizer step; the step equals that on one batch of them all."""
    steps_per_call: Count | None = None
    """Optimizer steps that the device gets in one call, where nothing is due between them: for steps so short that
    Python cannot keep the device busy. The results are the same. Default: on one GPU up to 8 that see 131,072 examples
    together; 1 on CPUs, on a mesh, with pipeline stale, for data that grows, and with data.time_column."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """The precision of the model's computation; parameters and tables keep their own precision."""
    loss_scale: LossScale | None = None
    """Dynamic loss scaling, for float16: true, or a mapping of its numbers."""
    non_finite: Literal["stop", "skip"] = "stop"
    """The reaction to a loss or gradient that is not finite: stop the run, or skip the step and count it. Gradients
    that overflow under a loss scale are always skipped."""
    pareto_loss_weights: bool = False
    """Whether each step weighs the tasks so that their gradients of the dense parameters cancel as far as they can.
    Costs one more backward pass per task."""
    clip_global_norm: Positive | None = None
    """The largest norm of the gradients of tables and dense parameters together."""
    ema: Share | None = None
    """The decay of an average of the dense parameters."""
    seed: Annotated[int, Bounds(at_least=0, below=2**32)] = 0
    """The seed of all random numbers."""
    start_from: StartFrom | None = None
    """A run to take the first weights from. Default: random weights."""
    checkpoint: Checkpoint = Checkpoint()
    """When the state is saved."""
    log_every_steps: Count = 100
    """Optimizer steps between two lines of the log."""
    tensorboard: bool = True
    """Whether to write scalars for TensorBoard."""
    summaries: tuple[Summary, ...] = ("loss", "learning_rate")
    """Values to log in addition to the metrics; parameter and gradient are TensorBoard histograms of the dense ones."""
    traffic: Annotated[float, Bounds(at_least=0, at_most=1)] = 0.01
    """The share of the time that counting looked-up rows may take, for the report; 0: none, 1: count every batch."""

    @classmethod
    def as_fields(cls, value: Any) -> Any:
        """Return the fields; ``loss_scale: true`` stands for its defaults."""
        if isinstance(value, dict) and isinstance(given := value.get("loss_scale"), bool):
            return {**value, "loss_scale": {} if given else None}
        return value

    def written(self, fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"loss_scale": True} if fields.get("loss_scale") == {} else fields

    def _check(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            given = "both" if self.steps is not None else "neither"
            raise ValueError(f"give either steps or epochs, got {given}")


class EarlyStopping(BestBy):
    """End training early after evaluations without improvement."""

    patience: Count = 1
    """Evaluations in a row without improvement after which training ends."""
    min_change: NotNegative = 0.0
    """The smallest improvement that counts."""


class Windows(Section):
    """Windows of training data whose batches are judged before they are trained on: by time, or by steps."""

    seconds: Positive | None = None
    """The length of a window in seconds of data.time_column, such as 3600."""
    steps: Count | None = None
    """The length of a window in optimizer steps."""

    def _check(self) -> None:
        if (self.seconds is None) == (self.steps is None):
            raise ValueError("give either seconds, of data.time_column, or steps")


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

    def _check(self) -> None:
        _refuse_both(self.every_steps, self.every_epochs)
        if self.early_stopping is not None and self.every_steps is None and self.every_epochs is None:
            raise ValueError("early_stopping needs evaluations to watch; add every_steps or every_epochs")


class Catalog(Section):
    """Ranks of the chosen items among all items, and the metrics made of them, by user."""

    items: Source | None = None
    """A row per item, with the columns that its features need. Default: data.negatives.items, or the distinct items of
    the data to train on."""
    id_column: Name | None = None
    """The column of the id in the items. Default: that of data.negatives, or data.item_column."""
    user_column: Name | None = None
    """The column of the user's id in the examples. Default: data.user_column; without it, each example is a user."""
    top_k: Annotated[tuple[Count, ...], NOT_EMPTY] = (10, 20)
    """The lengths of the lists: results are catalog_recall_at_10, catalog_ndcg_at_10, catalog_hr_at_10, ..."""
    exclude_seen: bool = True
    """Whether items that a user has in the data to train on are left out of the list."""
