"""Schedules: numbers of the peers, accuracy near zero, exact restarts, records, errors."""

import dataclasses
import functools
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparrow import schedules
from tests.conftest import OPTIMIZED

DATA = np.load(Path(__file__).parents[1] / "golden" / "schedules.npz")
CASES = json.loads(bytes(DATA["meta"]))

# One of each, with every option in use: what must hold for all is tested over these.
EXAMPLES = {
    "constant": schedules.constant(0.3, warmup_steps=5, warmup_learning_rate=0.01),
    "linear": schedules.linear(0.3, 0.02, 50, warmup_steps=7, warmup_learning_rate=0.1),
    "cosine": schedules.cosine(0.3, 0.02, 50, warmup_steps=7, exponent=1.5),
    "exponential_decay": schedules.exponential_decay(
        0.3, 4, 0.8, staircase=False, warmup_size=6, warmup_learning_rate=0.5, min_learning_rate=0.05
    ),
    "manual_steps": schedules.manual_steps(0.3, (4, 9), (0.2, 0.1), warmup=True, steps_per_epoch=2),
    "cosine_annealing": schedules.cosine_annealing(0.3, 20, warmup_size=3, min_learning_rate=0.01),
    "cosine_annealing_warm_restarts": schedules.cosine_annealing_warm_restarts(
        0.3, 3, 2, warmup_size=3, warmup_learning_rate=0.2, min_learning_rate=0.01
    ),
}


def rates_of(schedule, steps):
    # One shape for all, so that the operations compile once.
    return np.asarray(schedule(jnp.arange(512)))[:steps]


def translate_torcheasyrec(case):
    names = {
        "ConstantLR": "constant",
        "ExponentialDecayLR": "exponential_decay",
        "ManualStepLR": "manual_steps",
        "CosineAnnealingLR": "cosine_annealing",
        "CosineAnnealingWarmRestartsLR": "cosine_annealing_warm_restarts",
    }
    fields = {key.lower(): value for key, value in case["fields"].items()}
    return {"name": names[case["schedule"]], **fields, "steps_per_epoch": case.get("steps_per_epoch")}


@pytest.mark.parametrize("key", [key for key in CASES if key.startswith("torcheasyrec/")])
def test_rates_equal_torcheasyrec(key):
    # Warm restarts at t_mult 3 and 10: the expected rates are exact; TorchEasyRec itself, which takes the floor of a
    # floating-point logarithm, is wrong at the steps named in the case's "peer_wrong_at".
    config = translate_torcheasyrec(CASES[key])
    expected = DATA[key]  # (steps, groups): one column per base rate; the second group's is 0
    for group, base in enumerate(CASES[key]["base"]):
        schedule = schedules.from_dict({**config, "lr": base})
        peak = max(expected[:, group].max(), 1e-12)
        np.testing.assert_allclose(rates_of(schedule, len(expected)), expected[:, group], rtol=0, atol=3e-7 * peak)


def translate_eformer(key, fields):
    # The peer starts every warmup at 1e-8, and at 5e-8 in a second copy of the same code.
    config = {"name": fields.get("scheduler_type") or "constant", "lr": fields.get("learning_rate", 5e-5)}
    if key.startswith("eformer/tx_"):
        config = {"name": key.split("_")[1], "lr": fields.get("learning_rate_start", config["lr"])}
    if config["name"] == "constant":
        return config
    config |= {"end": fields.get("learning_rate_end", 0.0), "steps": fields["steps"]}
    if "exponent" in fields:
        config["exponent"] = fields["exponent"]
    if "warmup_steps" in fields:
        start = 5e-8 if key.startswith("eformer/tx_") else 1e-8
        config |= {"warmup_steps": fields["warmup_steps"], "warmup_learning_rate": start}
    return config


@pytest.mark.parametrize("key", [key for key in CASES if key.startswith("eformer/")])
def test_rates_equal_eformer(key):
    # cosine_exponent_no_warmup: the peer ignores the exponent without warmup; expected is the curve it documents.
    schedule = schedules.from_dict(translate_eformer(key, CASES[key]["fields"]))
    expected = DATA[key]
    np.testing.assert_allclose(rates_of(schedule, len(expected)), expected, rtol=0, atol=3e-7 * expected.max())


def test_rates_near_zero_keep_relative_accuracy():
    steps = 100_000
    last = np.arange(steps - 50, steps)
    remaining = (steps - last).astype(np.float64) / steps
    cosine = jax.vmap(schedules.cosine(0.7, 0.0, steps))(jnp.asarray(last))
    np.testing.assert_allclose(cosine, 0.7 * np.sin(np.pi / 2 * remaining) ** 2, rtol=1e-6)
    linear = jax.vmap(schedules.linear(0.7, 0.0, steps))(jnp.asarray(last))
    np.testing.assert_allclose(linear, 0.7 * remaining, rtol=1e-6)
    annealing = jax.vmap(schedules.cosine_annealing(0.7, steps))(jnp.asarray(last))
    np.testing.assert_allclose(annealing, cosine, rtol=1e-6)
    assert schedules.cosine(0.7, 0.0, steps)(steps) == 0.0


def test_slow_exponential_decay_stays_accurate():
    schedule = schedules.exponential_decay(1.0, decay_size=1, decay_factor=0.9999)
    for step in (10_000, 50_000):
        assert float(schedule(step)) == pytest.approx(0.9999**step, rel=2e-6)


@pytest.mark.parametrize(("t_0", "t_mult"), [(7, 1), (1, 2), (1, 3), (7, 5), (1000, 10), (1, 17)])
def test_restarts_are_exact(t_0, t_mult):
    starts, length = [0], t_0
    while starts[-1] + length < 2**31 - 1 and len(starts) < 40:
        starts.append(starts[-1] + length)
        length *= t_mult
    schedule = jax.jit(schedules.cosine_annealing_warm_restarts(0.5, t_0, t_mult))
    np.testing.assert_array_equal(schedule(np.asarray(starts)), np.float32(0.5))
    before = np.asarray([0, *(start - 1 for start in starts[1:])])
    cycles = np.asarray([1, *np.diff(starts)], np.float64)
    # A cycle above 2**24 steps is rounded to float32: then the last rates are only absolutely small.
    np.testing.assert_allclose(schedule(before)[1:], 0.5 * np.sin(np.pi / 2 / cycles[1:]) ** 2, rtol=1e-6, atol=1e-13)


def test_a_cycle_longer_than_an_int32_can_count():
    schedule = schedules.cosine_annealing_warm_restarts(1.0, t_0=2**30, t_mult=1000)
    step = 2**31 - 1
    elapsed = (step - 2**30) / (1000 * 2**30)
    assert float(schedule(step)) == pytest.approx((1 + math.cos(math.pi * elapsed)) / 2, rel=1e-6)


def test_warmup_over_a_first_size_of_zero_is_over_at_once():
    schedule = schedules.manual_steps(0.1, (0, 3), (0.5, 0.2), warmup=True)
    np.testing.assert_allclose(rates_of(schedule, 6), [0.5, 0.5, 0.5, 0.5, 0.2, 0.2])


@pytest.mark.parametrize("name", schedules.names())
def test_a_base_rate_of_zero_stays_zero(name):
    ends = {"end": 0.0} if hasattr(EXAMPLES[name], "end") else {}
    frozen = dataclasses.replace(EXAMPLES[name], lr=0.0, **ends)
    np.testing.assert_array_equal(rates_of(frozen, 60), 0.0)
    assert rates_of(EXAMPLES[name], 60).max() > 0


@pytest.mark.parametrize("make", [schedules.linear, schedules.cosine])
def test_a_base_rate_of_zero_with_an_end_is_refused(make):
    with pytest.raises(
        ValueError, match=r"lr is 0, which freezes .* but end is 0\.1; give end=0 to freeze, or a small"
    ):
        make(0.0, 0.1, 10)


@pytest.mark.parametrize("name", schedules.names())
def test_the_step_alone_decides(name):
    """Traced, eager, on arrays, in a scan: the same bits; any step an int32 can hold is finite."""
    schedule = EXAMPLES[name]
    on_arrays = np.asarray(jax.jit(schedule, compiler_options=OPTIMIZED)(jnp.arange(60)))

    @functools.partial(jax.jit, compiler_options=OPTIMIZED)
    def scanned():
        return jax.lax.scan(lambda step, _: (step + 1, schedule(step)), jnp.int32(0), length=60)[1]

    np.testing.assert_array_equal(scanned(), on_arrays)
    # An eager call divides before it rounds elsewhere: equal to rounding.
    np.testing.assert_allclose([float(schedule(step)) for step in (0, 3, 29)], on_arrays[[0, 3, 29]], rtol=1e-6)
    assert np.isfinite(schedule(2**31 - 1))
    assert schedule(7).dtype == jnp.float32


@pytest.mark.parametrize("name", schedules.names())
def test_records_come_back_exactly(name):
    schedule = EXAMPLES[name]
    assert schedules.from_json(schedules.to_json(schedule)) == schedule
    assert schedules.from_yaml(schedules.to_yaml(schedule)) == schedule
    assert schedules.from_dict(schedules.to_dict(schedule)) == schedule
    assert hash(schedules.from_json(schedules.to_json(schedule))) == hash(schedule)


def test_epochs():
    by_epoch = schedules.manual_steps(0.3, [1], [0.1], by_epoch=True)
    with pytest.raises(ValueError, match="needs the field steps_per_epoch"):
        by_epoch(0)
    told = schedules.with_steps_per_epoch(by_epoch, 4)
    np.testing.assert_allclose(rates_of(told, 12), [0.3] * 8 + [0.1] * 4)
    by_step = schedules.constant(0.1)
    assert schedules.with_steps_per_epoch(by_step, 4) is by_step
    assert schedules.with_steps_per_epoch(told, 99) is told


def test_composes_with_optax():
    joined = optax.join_schedules([schedules.linear(0.0001, 1.0, 10), schedules.cosine(1.0, 0.0, 20)], [10])
    assert float(joined(10)) == 1.0
    assert float(joined(30)) == 0.0
    tx = optax.sgd(schedules.manual_steps(0.5, (0,), (0.25,)))
    gradient = jnp.float32(1.0)
    first, state = tx.update(gradient, tx.init(gradient))
    second, _ = tx.update(gradient, state)
    assert (float(first), float(second)) == (-0.5, -0.25)


def test_a_schedule_of_ones_own():
    @schedules.register_schedule("inverse_root_for_this_test")
    @dataclasses.dataclass(frozen=True)
    class InverseRoot(schedules.Schedule):
        scale: float = 1.0

        def rate(self, count):
            return self.lr / jnp.sqrt(1 + count / self.scale)

    made = schedules.make("inverse_root_for_this_test", lr=1.0, scale=3.0)
    assert float(made(9)) == 0.5
    assert schedules.from_json(schedules.to_json(made)) == made
    with pytest.raises(ValueError, match="already registered"):
        schedules.register_schedule("inverse_root_for_this_test")(InverseRoot)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "cosin", "lr": 1.0}, "did you mean 'cosine'"),
        (
            {"name": "linear", "lr": 1.0},
            "schedule 'linear': end: is required\n.*steps: is required",
        ),
        ({"name": "constant"}, "lr: is required"),
        ({"name": "cosine", "lr": 1.0, "end": 0.0, "step": 9}, "steps: is required"),
        ({"name": "constant", "lr": -1.0}, r"Constant.lr must be a finite number at least 0, got -1.0"),
        ({"name": "constant", "lr": math.nan}, "got nan"),
        ({"name": "constant", "lr": "fast"}, "got 'fast'"),
        ({"name": "linear", "lr": 1.0, "end": 0.0, "steps": 2.5}, "steps: must be an integer, got 2.5"),
        ({"name": "linear", "lr": 1.0, "end": 0.0, "steps": 9, "warmup_steps": 9}, "must be less than steps"),
        ({"name": "exponential_decay", "lr": 1.0, "decay_size": 0}, "decay_size must be an integer"),
        ({"name": "exponential_decay", "lr": 1.0, "decay_size": 1, "decay_factor": 0.0}, "above 0, got 0"),
        ({"name": "manual_steps", "lr": 1.0, "schedule_sizes": [1], "learning_rates": []}, "as many"),
        ({"name": "manual_steps", "lr": 1.0, "schedule_sizes": [3, 3], "learning_rates": [1, 2]}, "grow"),
        ({"name": "cosine_annealing", "lr": 1.0, "t_max": 0}, "t_max must be an integer of at least 1"),
        ({"name": "cosine_annealing_warm_restarts", "lr": 1.0, "t_0": 2**31}, r"at most 2147483647"),
        ({"name": "constant", "lr": 1.0, "steps_per_epoch": 0}, "steps_per_epoch must be an integer"),
    ],
)
def test_errors_name_the_field(config, message):
    with pytest.raises(ValueError, match=message):
        schedules.from_dict(config)


def test_a_step_that_is_not_whole_is_refused():
    with pytest.raises(TypeError, match="counts whole steps"):
        schedules.constant(0.1)(0.5)


def test_draw(tmp_path):
    schedules.draw(EXAMPLES | {"optax": optax.constant_schedule(0.25)}, 80, tmp_path / "rates.png")
    assert (tmp_path / "rates.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="steps must be at least 1"):
        schedules.draw(EXAMPLES["cosine"], 0, tmp_path / "none.png")
