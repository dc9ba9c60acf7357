"""Learning rates as pure functions of the optimizer step.

Each schedule is a frozen dataclass that is called with the step (0 at the first update):

>>> from sparrow import schedules
>>> rate = schedules.cosine(lr=0.1, end=0.0, steps=1000, warmup_steps=100)
>>> round(float(rate(50)), 4), round(float(rate(550)), 4)
(0.05, 0.05)

and is its own config, in both directions and exactly:

>>> schedules.to_dict(schedules.constant(0.1))
{'name': 'constant', 'lr': 0.1, 'by_epoch': False, 'steps_per_epoch': None, 'warmup_steps': 0,
 'warmup_learning_rate': 0.0}
>>> schedules.from_dict({"name": "linear", "lr": 0.1, "end": 0.0})
Traceback (most recent call last):
sparrow.errors.ConfigError: schedule 'linear': steps: is required

``@register_schedule("mine")`` gives a schedule of your own a name; optax's schedules work wherever these do.
"""

from sparrow.schedules.base import SCHEDULES, Schedule, register_schedule, with_steps_per_epoch
from sparrow.schedules.cosine import Cosine, CosineAnnealing, CosineAnnealingWarmRestarts
from sparrow.schedules.decay import Constant, ExponentialDecay, Linear, ManualSteps
from sparrow.schedules.draw import draw

constant = Constant
linear = Linear
cosine = Cosine
exponential_decay = ExponentialDecay
manual_steps = ManualSteps
cosine_annealing = CosineAnnealing
cosine_annealing_warm_restarts = CosineAnnealingWarmRestarts

make = SCHEDULES.make
names = SCHEDULES.names
to_dict = SCHEDULES.to_dict
from_dict = SCHEDULES.from_dict
to_json = SCHEDULES.to_json
from_json = SCHEDULES.from_json
to_yaml = SCHEDULES.to_yaml
from_yaml = SCHEDULES.from_yaml

__all__ = [
    "SCHEDULES",
    "Constant",
    "Cosine",
    "CosineAnnealing",
    "CosineAnnealingWarmRestarts",
    "ExponentialDecay",
    "Linear",
    "ManualSteps",
    "Schedule",
    "constant",
    "cosine",
    "cosine_annealing",
    "cosine_annealing_warm_restarts",
    "draw",
    "exponential_decay",
    "from_dict",
    "from_json",
    "from_yaml",
    "linear",
    "make",
    "manual_steps",
    "names",
    "register_schedule",
    "to_dict",
    "to_json",
    "to_yaml",
]


def __dir__() -> list[str]:
    return __all__
