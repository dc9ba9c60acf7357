"""Records: the functions by name, and back; and a loss of your own."""

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow import losses
from sparrow.losses import registry

RECORDS = [
    losses.BinaryCrossEntropy(label_smoothing=0.1, positive_weight=3.0, prior=0.02),
    losses.BinaryFocal(gamma=1.5, alpha=0.25),
    losses.SoftmaxCrossEntropy(label_smoothing=0.2),
    losses.L2(mean=100.0, std=10.0),
    losses.JRC(session_name="user_id", alpha=0.7),
    losses.BPR(),
    losses.InBatchSoftmax(temperature=0.05, label_smoothing=0.1),
    losses.SampledSoftmax(temperature=0.07, label_smoothing=0.3),
]
every_record = pytest.mark.parametrize("record", RECORDS, ids=registry.name_of)


@every_record
def test_round_trips_are_exact(record):
    assert registry.from_dict(registry.to_dict(record)) == record
    assert registry.from_json(registry.to_json(record)) == record
    assert registry.from_yaml(registry.to_yaml(record)) == record
    assert hash(registry.from_json(registry.to_json(record))) == hash(record)


ONE, TWO, BITS = jnp.zeros(3), jnp.zeros((3, 2)), jnp.zeros(3, jnp.int32)
ARRAYS = {
    "binary_cross_entropy": {"logits": ONE, "labels": BITS},
    "binary_focal": {"logits": ONE, "labels": BITS},
    "softmax_cross_entropy": {"logits": TWO, "labels": BITS},
    "l2": {"predictions": ONE, "labels": BITS},
    "jrc": {"logits": TWO, "labels": BITS, "sessions": BITS},
    "bpr": {"positive_logits": ONE, "negative_logits": TWO, "where": TWO == 0},
    "in_batch_softmax": {"query": TWO, "item": TWO, "log_q": ONE, "item_ids": BITS},
    "sampled_softmax": {
        "query": TWO, "positive": TWO, "negatives": TWO, "positive_ids": BITS, "negative_ids": BITS,
        "positive_log_q": ONE, "negative_log_q": ONE,
    },
}  # fmt: skip


@every_record
def test_record_is_its_function_with_its_hyper_parameters(record):
    """Both are traced to the same program."""
    name, hyper = registry.name_of(record), dataclasses.asdict(record)
    hyper.pop("session_name", None)
    hyper.pop("log_q", None)  # a run's switch; a call takes the logarithms
    function = functools.partial(getattr(losses, name), **hyper)
    by_record, by_hand = (
        str(jax.make_jaxpr(lambda arrays, call=call: call(**arrays))(ARRAYS[name])) for call in (record, function)
    )
    assert by_record == by_hand
    if hyper:  # and the hyper-parameters are in the program
        assert by_record != str(jax.make_jaxpr(lambda arrays: getattr(losses, name)(**arrays))(ARRAYS[name]))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"name": "binary_crossentropy"}, "unknown loss 'binary_crossentropy': did you mean 'binary_cross_entropy'?"),
        ({"name": "binary_focal", "gama": 2.0}, "loss 'binary_focal': gama: unknown field: did you mean 'gamma'?"),
        ({"name": "binary_cross_entropy", "label_smoothing": 1.0}, "binary_cross_entropy: label_smoothing must be"),
        ({"name": "binary_cross_entropy", "prior": 1.0}, "binary_cross_entropy: prior must be"),
        ({"name": "l2", "std": 0.0}, "l2: std must be"),
        ({"name": "softmax_cross_entropy", "label_smoothing": -1}, "softmax_cross_entropy: label_smoothing must be"),
        ({"name": "binary_focal", "gamma": -1}, "binary_focal: gamma must be"),
        ({"name": "binary_focal", "alpha": "half"}, "loss 'binary_focal': alpha: must be a number, got 'half'"),
        ({"name": "jrc"}, "loss 'jrc': session_name: is required"),
        ({"name": "jrc", "session_name": ""}, "jrc: session_name must be a string that is not empty, got ''"),
        ({"name": "in_batch_softmax", "temperature": 0}, "in_batch_softmax: temperature must be"),
        ({"name": "sampled_softmax", "label_smoothing": 2}, "sampled_softmax: label_smoothing must be"),
    ],
)
def test_wrong_records_are_refused_by_name(record, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        registry.from_dict(record)
    assert str(error.value).startswith(message)


def test_one_s_own_loss():
    @losses.register_loss("test_records_hinge")
    @dataclasses.dataclass(frozen=True)
    class Hinge(losses.Loss):
        margin: float = 1.0
        meaning = "score"

        def __call__(self, logits, labels):
            return jnp.maximum(0, self.margin - logits * (2 * labels - 1))

        def prediction(self, output):
            return output

    loss = registry.from_yaml("{name: test_records_hinge, margin: 0.5}")
    assert loss == Hinge(margin=0.5)
    np.testing.assert_allclose(loss(jnp.array([0.2, 0.2]), jnp.array([0, 1])), [0.7, 0.3], rtol=1e-6)


def test_register_loss_refuses_what_is_not_a_frozen_record():
    with pytest.raises(TypeError, match=r"loss 'x': int must be a subclass of sparrow\.losses\.Loss"):
        losses.register_loss("x")(int)

    @dataclasses.dataclass
    class Thawed(losses.Loss):
        def __call__(self, logits, labels):
            return logits

    with pytest.raises(TypeError, match="loss 'x': Thawed must be a dataclass with frozen=True"):
        losses.register_loss("x")(Thawed)
    assert "x" not in registry


def test_a_loss_without_a_call_cannot_be_made():
    @dataclasses.dataclass(frozen=True)
    class Silent(losses.Loss):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Silent()


def test_a_loss_must_define_the_meaning_of_its_output():
    """Else a loss with a link of its own, such as exp, would hand out raw outputs as predictions."""

    @dataclasses.dataclass(frozen=True)
    class Poisson(losses.Loss):
        def __call__(self, logits, labels):
            return jnp.exp(logits) - labels * logits

    with pytest.raises(TypeError, match="loss 'x': Poisson must define meaning, prediction; "):
        losses.register_loss("x")(Poisson)
    assert "x" not in registry
    with pytest.raises(TypeError, match="abstract"):
        Poisson()


SCORE = "score: the inner product of query and item"
MEANINGS = {  # name: (label kind, outputs, columns, meaning, whether that is a probability)
    "binary_cross_entropy": ("binary", (), (), "probability", True),
    "binary_focal": ("binary", (), (), "probability", True),
    "softmax_cross_entropy": ("class", (), (), "probability of each class", False),
    "l2": ("real", (), (), "value", False),
    "jrc": ("class", (), ("user_id",), "probability", True),
    "bpr": ("binary", ("query", "item"), (), SCORE, False),
    "in_batch_softmax": ("none", ("query", "item"), (), f"{SCORE}, divided by the temperature", False),
    "sampled_softmax": ("none", ("query", "item", "negatives"), (), f"{SCORE}, divided by the temperature", False),
}


@every_record
def test_a_loss_describes_itself(record):
    described = (record.label_kind, record.outputs, record.key_columns, record.meaning, record.is_probability)
    assert described == MEANINGS[registry.name_of(record)]
    assert record.is_matching == bool(record.outputs)


def test_bpr_of_sessions_reads_logits():
    record = losses.BPR(session_name="user_id")
    assert (record.outputs, record.key_columns, record.is_matching) == ((), ("user_id",), False)
    np.testing.assert_allclose(record.prediction(jnp.zeros(2)), 0.5)


@every_record
def test_functions_have_the_defaults_of_their_records(record):
    function = inspect.signature(getattr(losses, registry.name_of(record)))
    for field in dataclasses.fields(record):
        if field.name not in ("session_name", "log_q"):  # a run's own
            assert function.parameters[field.name].default == field.default


def test_losses_count_from_the_best_constant():
    """A model that starts at 0 predicts the constant, and gradients are those of logits, or of outputs of size 1."""
    logits, labels = jnp.array([0.3, -1.0]), jnp.array([1.0, 0.0])
    rare = losses.BinaryCrossEntropy(prior=0.02)
    shifted = logits + np.log(0.02 / 0.98)
    np.testing.assert_allclose(rare.prediction(jnp.zeros(1)), [0.02], rtol=1e-5)
    np.testing.assert_allclose(rare(logits, labels), losses.binary_cross_entropy(shifted, labels), rtol=1e-5)
    np.testing.assert_allclose(rare.prediction(logits), losses.BinaryCrossEntropy().prediction(shifted), rtol=1e-5)
    prices = losses.L2(mean=100.0, std=10.0)
    outputs, dear = jnp.array([0.5, -2.0]), jnp.array([110.0, 75.0])
    np.testing.assert_allclose(prices.prediction(outputs), [105.0, 80.0])
    np.testing.assert_allclose(prices(outputs, dear), losses.l2(prices.prediction(outputs), dear) / 100, rtol=1e-5)
    learned = jax.jit(lambda mean: losses.L2(mean=mean).prediction(outputs))(jnp.float32(3.0))
    np.testing.assert_allclose(learned, outputs + 3)
