"""Descriptions of the fields that rules share; the equations are in the docstrings of the rules."""

from typing import Final

DESCRIPTIONS: Final = {
    "alpha": "The decay of the running mean of squared gradients.",
    "beta": "Added to the root of the accumulator.",
    "beta1": "The decay of the running mean of gradients.",
    "beta2": "The decay of the running mean of squared gradients.",
    "bias_correction": 'The count that corrects the means: steps of training ("step"), or updates of the row ("row").',
    "eps": "A small number in the denominator.",
    "eta": "The trust coefficient, a multiple of the ratio of the row's norm to its gradient's.",
    "exponent": "The power of the accumulator that divides the gradient.",
    "initial_accumulator": "The accumulator of a row that has had no update.",
    "initial_linear": "The linear term of a row that has had no update.",
    "initial_momentum": "The momentum of a row that has had no update.",
    "initial_slot": "Both slots of a row that has had no update.",
    "l1": "The strength of the L1 penalty.",
    "l2": "The strength of the L2 penalty.",
    "learning_rate_power": "The power of the accumulator that scales the rate.",
    "max_norm": "The largest norm of a row after its update.",
    "momentum": "The decay of the momentum; 0 keeps none.",
    "multiply_linear_by_learning_rate": "Whether the linear term holds the rate, as some implementations have it.",
    "nesterov": "Whether to look one step ahead along the momentum.",
    "rho": "The decay of the running means.",
    "weight_decay": "The share of a touched row that each update takes off, times the learning rate.",
    "weight_decay_mode": 'Weight decay "none", "l2" (joins the gradient) or "decouple" (acts on the row alone).',
}
