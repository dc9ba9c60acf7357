"""Every rule with its options, and beside each a plain float64 NumPy statement of its equation.

The NumPy side is written on its own, from the literature, for one row: ``f(w, g, s, t) -> (w, s)`` with the optimizer
step ``t`` counted from 0 and the slots ``s`` by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import sparrow as sp
from sparrow.rules import (
    F2A,
    FTRL,
    LAMB,
    PER_ELEMENT,
    PER_ROW,
    SGD,
    Adadelta,
    Adagrad,
    AdagradMomentum,
    Adam,
    LaProp,
    LarsSGD,
    Lion,
    PartialRowwiseAdam,
    PartialRowwiseLAMB,
    RMSprop,
    RowwiseAdagrad,
    Slot,
)

Equation = Callable[[Any, Any, dict[str, Any], int], tuple[Any, dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Decade(sp.Rule):
    """A rule as a user would write one: Adagrad whose accumulator forgets, with a trust ratio and a soft limit."""

    learning_rate: Any = 0.1
    keep: float = 0.9
    signed: bool = False

    slots = {"energy": Slot(PER_ROW, init=0.5), "drift": Slot(PER_ELEMENT)}

    def update(self, row, grad, slots, h):
        energy = h.keep * slots["energy"] + jnp.max(jnp.abs(grad))
        drift = 0.5 * slots["drift"] + (jnp.sign(grad) if self.signed else jnp.tanh(grad))
        return row - h.learning_rate * drift / (1.0 + energy), {"energy": energy, "drift": drift}


@dataclasses.dataclass(frozen=True)
class Case:
    """A rule and its float64 equation."""

    name: str
    rule: sp.Rule
    equation: Equation

    def __str__(self) -> str:
        return self.name


def halving(t):
    """A schedule: 0.3, 0.15, 0.1, ..."""
    return 0.3 / (t + 1)


def sgd(w, g, s, t):
    return w - 0.1 * g, {}


def sgd_momentum(nesterov):
    def f(w, g, s, t):
        m = 0.9 * s["momentum"] + g
        return w - 0.1 * (g + 0.9 * m if nesterov else m), {"momentum": m}

    return f


def adagrad(lr, eps):
    def f(w, g, s, t):
        a = s["accumulator"] + g**2
        d = np.sqrt(a) + eps
        return w - (lr(t) if callable(lr) else lr) * np.divide(g, d, out=np.zeros_like(g), where=d > 0), {
            "accumulator": a
        }

    return f


def rowwise_adagrad(mode="none", wd=0.0, max_norm=None):
    def f(w, g, s, t):
        gg = g + wd * w if mode == "l2" else g
        a = s["accumulator"] + np.mean(gg**2)
        rate = 0.1 / (np.sqrt(a) + 1e-8) if a > 0 else 0.0
        keep = {"none": 1.0, "l2": 1 - rate * wd, "decouple": 1 - 0.1 * wd}[mode]
        w = keep * w - rate * g
        if max_norm is not None and np.linalg.norm(w) > max_norm:
            w = w * max_norm / np.linalg.norm(w)
        return w, {"accumulator": a}

    return f


def adagrad_momentum(beta2, exponent, nesterov):
    def f(w, g, s, t):
        a = s["accumulator"] + g**2 if beta2 == 1 else beta2 * s["accumulator"] + (1 - beta2) * g**2
        u = g * (a + 1e-10) ** (-1 / exponent)
        m = 0.9 * s["momentum"] + u
        return w - 0.1 * (0.9 * m + u if nesterov else m), {"accumulator": a, "momentum": m}

    return f


def moments(w, g, s, t, rowwise=False, by_row=False):
    m = 0.9 * s["momentum"] + 0.1 * g
    v = 0.999 * s["velocity"] + 0.001 * (np.mean(g**2) if rowwise else g**2)
    new = {"momentum": m, "velocity": v}
    if by_row:
        new["count"] = s["count"] + 1
    n = new["count"] if by_row else t + 1
    d = np.sqrt(v / (1 - 0.999**n)) + 1e-8
    return m / (1 - 0.9**n) / d, new


def adam(wd=0.0, rowwise=False, by_row=False):
    def f(w, g, s, t):
        u, new = moments(w, g, s, t, rowwise, by_row)
        return w - 0.1 * (u + wd * w), new

    return f


def lamb(wd, rowwise=False):
    def f(w, g, s, t):
        u, new = moments(w, g, s, t, rowwise)
        u = u + wd * w
        ratio = np.linalg.norm(w) / np.linalg.norm(u) if np.linalg.norm(w) > 0 and np.linalg.norm(u) > 0 else 1.0
        return w - 0.1 * ratio * u, new

    return f


def lars(w, g, s, t):
    nw, ng = np.linalg.norm(w), np.linalg.norm(g)
    ratio = 0.01 * nw / (ng + 0.1 * nw) if nw > 0 and ng + 0.1 * nw > 0 else 1.0
    m = 0.9 * s["momentum"] + 0.1 * ratio * (g + 0.1 * w)
    return w - m, {"momentum": m}


def ftrl(power, l1, l2, beta, multiply):
    lr = 0.1

    def f(w, g, s, t):
        a = s["accumulator"] + g**2
        p, q = s["accumulator"] ** -power, a**-power
        if multiply:
            z = s["linear"] + lr * g - (q - p) * w
            new = (np.clip(z, -lr * l1, lr * l1) - z) / (q + beta + 2 * lr * l2)
        else:
            z = s["linear"] + g - (q - p) / lr * w
            new = (np.clip(z, -l1, l1) - z) / ((q + beta) / lr + 2 * l2)
        return new, {"accumulator": a, "linear": z}

    return f


def laprop(w, g, s, t):
    d = 0.95 * (1 - 0.95**t) / (1 - 0.95 ** (t + 1))
    nu = d * s["nu"] + (1 - d) * (g**2 + 1e-8)
    mu = 0.9 * s["mu"] + np.sqrt(1 - 0.81) * g / np.sqrt(nu)
    return w - 0.1 * mu, {"mu": mu, "nu": nu}


def f2a(w, g, s, t):
    n = s["local_step"] + 1
    boost = min((max(t, 1) / n) ** 0.5, 2.0)
    a = s["accumulator"] + g**2
    step = boost * g / np.sqrt(a) + 0.01 * np.sign(w) + 0.02 * w
    return w - 0.1 * step, {"accumulator": a, "local_step": n}


def adadelta(w, g, s, t):
    e = 0.9 * s["square"] + 0.1 * g**2
    d = np.sqrt(s["step"] + 1e-6) / np.sqrt(e + 1e-6) * g
    return w - 0.5 * (d + 0.1 * w), {"square": e, "step": 0.9 * s["step"] + 0.1 * d**2}


def rmsprop(w, g, s, t):
    e = 0.99 * s["square"] + 0.01 * g**2
    return w - 0.1 * (g / (np.sqrt(e) + 1e-8) + 0.1 * w), {"square": e}


def lion(w, g, s, t):
    u = np.sign(0.9 * s["momentum"] + 0.1 * g)
    return w - 0.1 * (u + 0.1 * w), {"momentum": 0.99 * s["momentum"] + 0.01 * g}


def decade(w, g, s, t):
    e = 0.9 * s["energy"] + np.abs(g).max()
    d = 0.5 * s["drift"] + np.tanh(g)
    return w - 0.1 * d / (1 + e), {"energy": e, "drift": d}


CASES = [
    Case("sgd", SGD(0.1), sgd),
    Case("sgd_momentum", SGD(0.1, momentum=0.9), sgd_momentum(False)),
    Case("sgd_nesterov", SGD(0.1, momentum=0.9, nesterov=True), sgd_momentum(True)),
    Case("adagrad", Adagrad(0.1, initial_accumulator=0.1), adagrad(0.1, 1e-8)),
    Case("adagrad_schedule", Adagrad(halving, eps=0.01), adagrad(halving, 0.01)),
    Case("rowwise_adagrad", RowwiseAdagrad(0.1), rowwise_adagrad()),
    Case(
        "rowwise_adagrad_l2",
        RowwiseAdagrad(0.1, weight_decay=0.05, weight_decay_mode="l2"),
        rowwise_adagrad("l2", 0.05),
    ),
    Case(
        "rowwise_adagrad_decouple_max_norm",
        RowwiseAdagrad(0.1, weight_decay=0.05, weight_decay_mode="decouple", max_norm=1.5),
        rowwise_adagrad("decouple", 0.05, 1.5),
    ),
    Case("adagrad_momentum", AdagradMomentum(0.1), adagrad_momentum(1.0, 2.0, False)),
    Case(
        "adagrad_momentum_nesterov",
        AdagradMomentum(0.1, beta2=0.95, exponent=3.0, nesterov=True),
        adagrad_momentum(0.95, 3.0, True),
    ),
    Case("adam", Adam(0.1), adam()),
    Case("adam_decay", Adam(0.1, weight_decay=0.1), adam(0.1)),
    Case("adam_by_row", Adam(0.1, bias_correction="row"), adam(by_row=True)),
    Case("partial_rowwise_adam", PartialRowwiseAdam(0.1, weight_decay=0.1), adam(0.1, rowwise=True)),
    Case("lamb", LAMB(0.1, weight_decay=0.1), lamb(0.1)),
    Case("partial_rowwise_lamb", PartialRowwiseLAMB(0.1, weight_decay=0.1), lamb(0.1, rowwise=True)),
    Case("lars_sgd", LarsSGD(0.1, weight_decay=0.1, eta=0.01), lars),
    Case("ftrl", FTRL(0.1, l1=0.2, l2=0.1, beta=0.5), ftrl(-0.5, 0.2, 0.1, 0.5, False)),
    Case(
        "ftrl_multiply",
        FTRL(0.1, learning_rate_power=-0.3, l1=0.2, l2=0.1, beta=0.5, multiply_linear_by_learning_rate=True),
        ftrl(-0.3, 0.2, 0.1, 0.5, True),
    ),
    Case("laprop", LaProp(0.1, eps=1e-8), laprop),
    Case("f2a", F2A(0.1, l1=0.01, l2=0.02, max_multiplier=2.0), f2a),
    Case("adadelta", Adadelta(0.5, weight_decay=0.1), adadelta),
    Case("rmsprop", RMSprop(0.1, weight_decay=0.1), rmsprop),
    Case("lion", Lion(0.1, weight_decay=0.1), lion),
    Case("user_rule", Decade(), decade),
]
