"""What every model keeps: its equation, pure functions under jit and grad, mixed precision, a record."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.dtypes import float0

from sparrow import models
from sparrow.optimizer.precision import cast

from .cases import CASES
from .plain import BATCH, Tape

every_model = pytest.mark.parametrize("case", CASES, ids=str)


def float64(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def equations(jaxpr):
    """All equations, those of inner programs too."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_every_shipped_model_is_in_the_list():
    shipped = {name for name in models.registry.names() if models.registry[name].model in vars(models).values()}
    codes = {"sid_rqkmeans", "sid_rqvae"}  # their outputs are integers, in part: tests/models/test_semantic_ids.py
    assert {case.record["name"] for case in CASES} == shipped - codes


@every_model
def test_outputs_and_gradients(case):
    apply, params = case.functional()
    acts, numbers = case.batch()

    def outputs_and_total(params, acts):
        outputs, _ = apply.train(params, {}, acts, numbers)
        return sum(jnp.sum(jnp.sin(array)) for array in outputs.values()), outputs

    (grads, act_grads), outputs = jax.jit(jax.grad(outputs_and_total, argnums=(0, 1), has_aux=True, allow_int=True))(
        params, acts
    )
    assert all(np.isfinite(grad).all() for grad in jax.tree.leaves((grads, act_grads)) if grad.dtype != float0)
    for name, sequence in acts.items():
        if isinstance(sequence, models.Sequence):
            behind = np.arange(sequence.values.shape[1]) >= sequence.lengths[:, None]
            assert not np.asarray(act_grads[name].values)[behind].any()

    Tape.values.clear()
    expected = case.reference(float64(params), float64({**acts, **numbers}))
    assert set(outputs) == set(expected)
    for name, array in outputs.items():
        assert array.dtype == jnp.float32
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)

    # Every activation and every parameter matters: one number of each, moved in the NumPy statement.
    def total(params, acts):
        with Tape.replay():
            outputs = case.reference(params, {**acts, **float64(numbers)})
        return sum(np.sin(array).sum() for array in outputs.values())

    at, step = (float64(params), float64(acts)), 1e-6
    leaves, structure = jax.tree.flatten(at)
    for i, grad in enumerate(jax.tree.leaves((grads, act_grads))):
        if grad.dtype == float0:  # lengths
            continue
        place = np.unravel_index(np.abs(grad).argmax(), grad.shape)
        moved = [leaf.copy() for leaf in leaves]
        moved[i][place] += step
        slope = (total(*structure.unflatten(moved)) - total(*at)) / step
        assert abs(slope) > 0
        np.testing.assert_allclose(grad[place], slope, rtol=2e-3, atol=1e-4)


@every_model
def test_bfloat16_reaches_every_product_and_stays_near(case):
    apply, params = case.functional()
    acts, numbers = case.batch()
    exact = case.reference(float64(params), float64({**acts, **numbers}))
    low_params, low_acts = cast((params, acts), "bfloat16")
    program = jax.make_jaxpr(lambda p, a: apply.train(p, {}, a, numbers)[0])(low_params, low_acts)
    products = [eqn for eqn in equations(program.jaxpr) if eqn.primitive.name == "dot_general"]
    assert products
    assert {str(var.aval.dtype) for eqn in products for var in eqn.invars} == {"bfloat16"}
    outputs = jax.jit(apply.predict)(cast(params, "bfloat16"), {}, cast(acts, "bfloat16"), numbers)
    for name, array in outputs.items():
        assert array.dtype == jnp.float32
        scale = np.abs(exact[name]).max()
        np.testing.assert_allclose(array / scale, exact[name] / scale, atol=0.05)


@every_model
def test_record_round_trip(case):
    record = models.registry.from_dict(case.record)
    for there, back in (
        (models.registry.to_dict, models.registry.from_dict),
        (models.registry.to_json, models.registry.from_json),
        (models.registry.to_yaml, models.registry.from_yaml),
    ):
        assert back(there(record)) == record
    assert hash(record) == hash(models.registry.from_dict(case.record))


@every_model
def test_model_is_a_static_argument(case):
    record = models.registry.from_dict(case.record)
    first, second = (
        nnx.graphdef(nnx.eval_shape(lambda: record.build(case.inputs(), rngs=nnx.Rngs(0)))) for _ in range(2)
    )
    assert hash(first) == hash(second)
    assert first == second


@every_model
def test_examples_do_not_mix(case):
    apply, params = case.functional()
    acts, numbers = case.batch()
    predict = jax.jit(apply.predict)

    def others_change(array):
        return np.concatenate([np.roll(array[: BATCH - 1], 1, axis=0), array[BATCH - 1 :]])

    first, second = (
        predict(params, {}, *batch) for batch in ((acts, numbers), jax.tree.map(others_change, (acts, numbers)))
    )
    for name, array in second.items():
        np.testing.assert_allclose(array[-1], first[name][-1], rtol=1e-5, atol=1e-5)
