"""Descriptions of the fields that schedules share; sizes are steps, or epochs with ``by_epoch``."""

from typing import Final

DESCRIPTIONS: Final = {
    "decay_factor": "The factor of each decay.",
    "decay_size": "The size of one decay.",
    "end": "The last rate.",
    "exponent": "The power of the cosine.",
    "learning_rates": "The rate of each stretch after the first.",
    "min_learning_rate": "The smallest rate.",
    "schedule_sizes": "The counts at which the rate changes.",
    "staircase": "Whether the rate falls in stairs instead of smoothly.",
    "steps": "The count at which the last rate is reached, warmup included.",
    "t_0": "The size of the first cycle.",
    "t_max": "The size of the half cosine.",
    "t_mult": "The factor by which each cycle is longer than the one before.",
    "warmup": "Whether the rate rises in a line to the first change.",
    "warmup_learning_rate": "The first rate of the warmup.",
    "warmup_size": "The size of the warmup.",
    "warmup_steps": "The size of the warmup.",
}
