"""Unknown arguments are answered with the right name, by every constructor."""

import dataclasses
import inspect

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sparrow as sp
from sparrow import dense, losses, metrics, rules, schedules
from sparrow.registry import REGISTRIES, answering, nearest
from sparrow.registry.synonyms import SYNONYMS, UNNEEDED

TABLE = sp.TableSpec(name="t", vocabulary_size=4, embedding_dim=2, optimizer=rules.SGD(0.1))
EMBEDDER = sp.Embedder([sp.FeatureSpec(name="f", table_spec=TABLE)])


def _registered():
    for registry in REGISTRIES:
        for name in registry.names():
            yield pytest.param(registry[name], id=f"{registry.kind}-{name}")


@pytest.mark.parametrize("cls", list(_registered()))
def test_every_record_answers(cls):
    fields = [field.name for field in dataclasses.fields(cls) if field.init]
    with pytest.raises(TypeError, match=f"{cls.__name__} has no argument 'no_such'") as caught:
        cls(no_such=1)
    assert all(field in str(caught.value) for field in fields)


# what a person writes, and the name in the answer
CASES = [
    # JAX SparseCore
    (lambda: sp.FeatureSpec(name="f", table_spec=TABLE, input_shape=(8, 1)), "leave it out"),
    (lambda: sp.FeatureSpec(name="f", table_spec=TABLE, output_shape=(8, 2)), "leave it out"),
    (lambda: sp.FeatureSpec(name="f", table_spec=TABLE, output_shape=(8, 3, 2)), "combiner=None"),
    (lambda: sp.nnx.Embed(feature_specs=[]), "'features'"),
    (lambda: sp.TableSpec(name="t", max_ids_per_partition=256), "leave it out"),
    (lambda: sp.Embedder(feature_specs=[]), "'features'"),
    (lambda: rules.Adam(0.1, beta_1=0.9), "'beta1'"),
    (lambda: rules.Adam(0.1, epsilon=1e-8), "'eps'"),
    (lambda: rules.Adagrad(0.1, initial_accumulator_value=0.1), "'initial_accumulator'"),
    (lambda: rules.AdagradMomentum(0.1, use_nesterov=True), "'nesterov'"),
    (lambda: rules.AdagradMomentum(0.1, initial_momentum_value=0.0), "'initial_momentum'"),
    (lambda: rules.FTRL(0.1, l1_regularization_strength=0.1), "'l1'"),
    (lambda: rules.F2A(0.1, max_lr_multiplier=1.0), "'max_multiplier'"),
    (lambda: rules.LaProp(0.1, b2=0.9), "'beta2'"),
    (lambda: rules.LaProp(0.1, initial_slot_value=0.9), "'initial_slot'"),
    # eFormer
    (lambda: dense.Adam(b1=0.9), "'beta1'"),
    (lambda: dense.build("adamw", 0.1, b2=0.9), "'beta2'"),
    (lambda: dense.build("adamw", 0.1, clip_grad=1.0), "'clip_norm'"),
    (lambda: dense.build("adamw", 0.1, gradient_accumulation_steps=2), "'accumulate'"),
    (lambda: dense.RMSprop(decay=0.9), "'alpha'"),
    (lambda: dense.Adafactor(dtype_momentum="bfloat16"), "'momentum_dtype'"),
    (lambda: dense.Muon(adam_b1=0.9), "'adam_beta1'"),
    (lambda: schedules.linear(0.1, learning_rate_end=0.0, steps=10), "'end'"),
    (lambda: schedules.cosine(learning_rate=0.1, end=0.0, steps=10), "'lr'"),
    (lambda: sp.Optimizer(EMBEDDER, optax.sgd(0.1), clip_grad=1.0), "'clip_global_norm'"),
    # optax
    (lambda: schedules.cosine(init_value=0.1, end=0.0, steps=10), "'lr'"),
    (lambda: schedules.cosine(0.1, end=0.0, decay_steps=10), "'steps'"),
    (lambda: schedules.exponential_decay(0.1, transition_steps=10), "'decay_size'"),
    (lambda: schedules.exponential_decay(0.1, 10, decay_rate=0.9), "'decay_factor'"),
    (lambda: dense.build("adamw", 0.1, mask=None), "'weight_decay_mask'"),
    (lambda: sp.Optimizer(EMBEDDER, optimizer=optax.sgd(0.1)), "'tx'"),
    # torch and TorchRec
    (lambda: rules.SGD(lr=0.1), "'learning_rate'"),
    (lambda: dense.Adam(betas=(0.9, 0.999)), "'beta1'"),
    (lambda: dense.SGD(maximize=True), "negate the loss"),
    (lambda: schedules.cosine_annealing(0.1, T_max=10), "'t_max'"),
    (lambda: schedules.manual_steps(0.1, milestones=[1], learning_rates=[0.1]), "'schedule_sizes'"),
    (lambda: sp.TableSpec(name="t", num_embeddings=4), "'vocabulary_size'"),
    (lambda: sp.TableSpec(name="t", feature_names=["f"]), "FeatureSpec"),
    (lambda: sp.Ragged(values=[1], lengths=[1]), "Ragged.from_lengths"),
    (lambda: sp.Ragged([1], [0], include_last_offset=False), "Ragged.from_offsets"),
    (lambda: sp.Ragged([1], [0, 1], per_sample_weights=[1.0]), "'weights'"),
    (lambda: sp.Embedder([], device="cuda"), "default device"),
    (lambda: losses.binary_cross_entropy(jnp.zeros(1), jnp.zeros(1), reduction="mean"), "sparrow.losses.reduce"),
    (lambda: losses.softmax_cross_entropy(jnp.zeros((1, 2)), target=jnp.zeros(1)), "'labels'"),
    (lambda: losses.BinaryCrossEntropy(pos_weight=2.0), "weights"),
    (lambda: metrics.RecallAtK(k=5), "'top_k'"),
    (lambda: metrics.AUC(num_thresholds=10), "'thresholds'"),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_names_of_other_libraries(number):
    call, answer = CASES[number]
    with pytest.raises((TypeError, ValueError), match="has no argument") as caught:
        call()
    assert answer in str(caught.value).split("Valid names")[0]


def test_signatures_stay():
    assert list(inspect.signature(rules.SGD).parameters)[:1] == ["learning_rate"]
    assert list(inspect.signature(losses.l2).parameters) == ["predictions", "labels", "mean", "std"]
    assert list(inspect.signature(sp.Embedder).parameters)[:5] == ["features", "backend", "mesh", "axis", "exchange"]
    assert rules.Adam(0.1).beta1 == 0.9
    assert dataclasses.replace(rules.Adam(0.1), beta1=0.5).beta1 == 0.5
    with pytest.raises(TypeError, match="has no argument 'b1': did you mean 'beta1'"):
        dataclasses.replace(rules.Adam(0.1), b1=0.5)


def test_functions_of_any_keywords_are_left_alone():
    def anything(**options): ...

    assert answering(anything) is anything


def test_every_synonym_leads_somewhere():
    """Each name of ours in the table is a loss or the argument of some constructor, so that no answer is a dead end."""
    constructors = [registry[name] for registry in REGISTRIES for name in registry.names()]
    constructors += [sp.TableSpec, sp.FeatureSpec, sp.Embedder, sp.Optimizer, dense.build, sp.guess]
    constructors += [made for name in losses.registry.names() if callable(made := getattr(losses, name, None))]
    constructors.append(losses.reduce)
    known = {name for made in constructors for name in inspect.signature(made).parameters} | set(
        losses.registry.names()
    )
    dead = {ours for names in SYNONYMS.values() for ours in names} - known
    assert not dead
    assert not SYNONYMS.keys() & UNNEEDED.keys()


def test_a_config_is_answered_too():
    with pytest.raises(ValueError, match="unknown field: did you mean 'beta1'"):
        rules.RULES.make("adam", b1=0.5)
    assert nearest("batch", ["batch_size"]) == "did you mean 'batch_size'? Valid names: batch_size"


def test_a_rate_without_arguments():
    rule = rules.Adagrad(learning_rate=lambda: 0.25)
    assert rule.hyper(7)["learning_rate"] == 0.25
    table = dataclasses.replace(TABLE, optimizer=rules.SGD(lambda: 0.5))
    embedder = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])
    import jax

    state = embedder.init(jax.random.key(0))
    batch = embedder.pack({"f": [1]})
    new = embedder.update(state, batch, {"f": jnp.ones((1, 2))})
    moved = np.asarray(embedder.table(new, "t") - embedder.table(state, "t"))
    np.testing.assert_allclose(moved[1], [-0.5, -0.5], rtol=1e-6)
    tx, schedule = dense.build("sgd", lambda: 0.5)
    assert schedule(3) == 0.5
    updates, _ = tx.update(jnp.ones(1), tx.init(jnp.ones(1)), jnp.ones(1))
    assert float(updates[0]) == -0.5


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("AdagradOptimizerSpec", "Adagrad"),
        ("FTRLOptimizerSpec", "FTRL"),
        ("LaPropOptimizerSpec", "LaProp"),
        ("RowWiseAdagrad", "RowwiseAdagrad"),
        ("AdamW", "Adam"),
    ],
)
def test_the_name_of_a_rule_elsewhere_is_answered(name, ours):
    with pytest.raises(AttributeError, match=f"no rule '{name}': did you mean '{ours}'"):
        getattr(rules, name)


def test_rules_has_no_other_names():
    assert not hasattr(rules, "__no_such__")
    assert not hasattr(rules, "wrap")
