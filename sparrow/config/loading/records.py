"""Records inside a config: rules, schedules, optimizers, losses, metrics and the like, as fields of its sections.

The types of a record's fields decide how they are read, in `sparrow.registry`; here pydantic, which reads the sections,
is made to ask there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import ConfigDict
from pydantic_core import core_schema

from sparrow.data import Feature, Label, Source
from sparrow.dense import DenseOptimizer
from sparrow.embedding import Initializer
from sparrow.errors import ConfigError, shown
from sparrow.losses import Loss
from sparrow.metrics import Metric
from sparrow.models import ModelRecord
from sparrow.models.sequences import EncoderRecord as Encoder
from sparrow.optimizer import LossScale
from sparrow.registry import freeze, read, schema
from sparrow.rules import Rule

STRICT: Final = ConfigDict(
    extra="forbid", strict=True, frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True, protected_namespaces=()
)
"""Unknown fields are refused, and nothing is converted in silence: "3" is not a number, 1 is not true."""


@dataclasses.dataclass(frozen=True)
class ReadAs:
    """The type of a section's field that `sparrow.registry.read` reads.

    A record is written as a mapping with a ``name``, or as its name alone where the defaults will do. From Python a
    record may stand there itself, also one without a name (an optax schedule, a table in memory): such a config runs,
    and cannot be written.

    Attributes:
      hint: the type.
      switch: whether ``true`` stands for the defaults of the dataclass ``hint``, ``false`` and nothing for None.
    """

    hint: Any
    switch: bool = False

    def read(self, value: Any) -> Any:
        """Return the object that ``value`` describes; an object is returned unchanged."""
        if self.switch and (value is None or isinstance(value, bool)):
            return self.hint() if value else None
        try:
            return read(self.hint, freeze(value))
        except ConfigError as error:
            if self.switch and not any(problem.path for problem in error.problems):
                raise ConfigError(f"must be a mapping of fields, true or false, got {shown(value)}") from None
            raise

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        made = schema(self.hint)
        return {"anyOf": [{"type": "boolean"}, {"type": "null"}, made]} if self.switch else made


RuleRecord = Annotated[Rule, ReadAs(Rule)]
OptimizerRecord = Annotated[DenseOptimizer, ReadAs(DenseOptimizer)]
LossRecord = Annotated[Loss, ReadAs(Loss)]
MetricRecord = Annotated[Metric[Any], ReadAs(Metric[Any])]
LearningRate = Annotated[float | Callable[[Any], Any], ReadAs(float | Callable[[Any], Any])]
FeatureRecord = Annotated[Feature, ReadAs(Feature)]
SourceRecord = Annotated[Source, ReadAs(Source)]
ArchitectureRecord = Annotated[ModelRecord, ReadAs(ModelRecord)]
EncoderRecord = Annotated[Encoder, ReadAs(Encoder)]
InitializerRecord = Annotated[Initializer, ReadAs(Initializer)]
LabelRecord = Annotated[Label, ReadAs(Label)]
LossScaleRecord = Annotated[LossScale | None, ReadAs(LossScale, switch=True)]
