"""A mistake in groups, dims or options is one sentence that names the group, the feature or the option."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from sparrow import models
from sparrow.models import MLP, BayesTaskTower, Inputs, TaskTower, Tower

ACTS = {"user": 4, "item": 4, "tag": 2, "item_wide": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": {"deep": ["itm"]}}, r"group 'deep' names the feature 'itm': did you mean 'item'\?"),
        ({"groups": ["item"]}, r"Inputs.groups must be a mapping by name, got \['item'\]"),
        ({"groups": {"deep": []}}, r"group 'deep' must be a list of at least one feature name, got \[\]"),
        ({"groups": {"deep": "item"}}, r"group 'deep' must be a list of at least one feature name, got 'item'"),
        ({"groups": {"deep": ["item", "item"]}}, r"group 'deep' names the feature 'item' more than once"),
        ({"acts": {"item": 0}}, r"Inputs.acts\['item'\] must be an integer of at least 1, got 0"),
        ({"numbers": {"age": 1.5}}, r"Inputs.numbers\['age'\] must be an integer of at least 1, got 1.5"),
        ({"numbers": {"item": 1}}, r"the feature 'item' is in both Inputs.acts and Inputs.numbers"),
    ],
)
def test_inputs(arguments, message):
    with pytest.raises(ValueError, match=message):
        Inputs(**{"acts": ACTS, **arguments})


def build(name, groups, numbers=(), **options):
    used = {feature for names in groups.values() for feature in names}
    inputs = Inputs({f: d for f, d in ACTS.items() if f in used}, dict(numbers), groups)
    record = models.registry.make(name, **options)
    return nnx.eval_shape(lambda: record.build(inputs, rngs=nnx.Rngs(0)))


UNITS = MLP((8,))
FM = {"wide": ["item_wide"], "deep": ["user", "item"]}
WHO, WHAT = Tower("who", UNITS), Tower("what", UNITS)
TWO = {"who": ["user"], "what": ["item"]}
TASK = TaskTower("click")
ONE = {"a": ["user"]}
EXPERTS = {"expert_num_per_task": 1, "task_expert_net": UNITS}


@pytest.mark.parametrize(
    ("name", "groups", "options", "message"),
    [
        ("deepfm", {"deep": ["user"]}, {"deep": UNITS}, "DeepFM needs the group 'wide'; it has: deep"),
        ("deepfm", {**FM, "deeep": ["user"]}, {"deep": UNITS}, "DeepFM reads no group 'deeep': did you mean 'deep'?"),
        (
            "deepfm",
            {**FM, "fm": ["user", "tag"]},
            {"deep": UNITS},
            "group 'fm' needs features of one dim, but 'user' has 4 and 'tag' has 2",
        ),
        (
            "deepfm",
            {"wide": ["item_wide"], "deep": ["age"]},
            {"deep": UNITS, "numbers": {"age": 1}},
            "group 'deep' needs a feature with a table, and holds numbers only; add one",
        ),
        (
            "wide_and_deep",
            {"wide": ["age"], "deep": ["user"]},
            {"deep": UNITS, "numbers": {"age": 1}},
            "group 'wide' takes features with a table, but 'age' is a number",
        ),
        ("deepfm", FM, {"deep": UNITS, "num_classes": 3}, "DeepFM with num_classes=3 needs final"),
        ("deepfm", FM, {"deep": UNITS, "num_classes": 0}, "num_classes must be an integer of at least 1, got 0"),
        (
            "deepfm",
            FM,
            {"deep": UNITS, "numbers": {"age": 1}},
            "the feature 'age' is in no group of DeepFM; add it to a group or remove it",
        ),
        ("dlrm", {"sparse": ["user", "tag"]}, {"final": UNITS}, "group 'sparse' needs features of one dim"),
        (
            "dlrm",
            {"sparse": ["user"], "dense": ["age"]},
            {"final": UNITS, "dense_mlp": UNITS, "numbers": {"age": 1}},
            "DLRM.dense_mlp must end in 4 units, the dim of the group 'sparse', got (8,)",
        ),
        (
            "dlrm",
            {"sparse": ["user"], "dense": ["age"]},
            {"final": UNITS, "numbers": {"age": 1}},
            "DLRM was given the group 'dense' without dense_mlp; give both or neither",
        ),
        (
            "dlrm",
            {"sparse": ["user"]},
            {"final": UNITS, "dense_mlp": MLP((4,))},
            "DLRM was given dense_mlp without the group 'dense'; give both or neither",
        ),
        ("dlrm", {"sparse": ["user"]}, {"final": UNITS, "arch_with_sparse": False}, "DLRM has one vector"),
        ("multi_tower", TWO, {"towers": (WHO,)}, "MultiTower reads no group 'what'"),
        ("multi_tower", TWO, {"towers": (WHO, WHO)}, "each over its own group, got ['who', 'who']"),
        (
            "multi_tower",
            TWO,
            {"towers": {"input": "who"}},
            "'multi_tower': towers: must be a list, got {'input'",
        ),
        ("multi_tower", TWO, {"towers": ()}, "MultiTower.towers must be at least one tower"),
        ("dssm", TWO, {"user_tower": WHO, "item_tower": WHO}, "both towers read the group 'who'"),
        (
            "dssm",
            TWO,
            {"user_tower": WHO, "item_tower": Tower("what", MLP((4,)))},
            "DSSM without output_dim needs towers of one width, got 8 and 4",
        ),
        ("dssm", TWO, {"user_tower": WHO, "item_tower": WHAT, "output_dim": 0}, "DSSM.output_dim must be"),
        (
            "dssm",
            TWO,
            {"user_tower": WHO, "item_tower": WHAT, "similarity": "cosin"},
            "model 'dssm': similarity: must be 'inner_product' or 'cosine', got 'cosin'",
        ),
        (
            "dssm",
            TWO,
            {"user_tower": WHO, "item_tower": WHAT, "negatives": "sample"},
            "model 'dssm': negatives: must be 'in_batch' or 'sampled', got 'sample'",
        ),
        ("mmoe", TWO, {"expert_mlp": UNITS, "task_towers": (TASK,)}, "MMoE reads one group of features, got 2"),
        ("mmoe", {"a": ["user"]}, {"expert_mlp": UNITS, "task_towers": (TASK, TASK)}, "each for its own task"),
        (
            "mmoe",
            {"a": ["user"]},
            {"expert_mlp": UNITS, "task_towers": (TASK,), "num_experts": 0},
            "MMoE.num_experts must be an integer of at least 1, got 0",
        ),
        ("mmoe", {"a": ["user"]}, {"expert_mlp": UNITS}, "model 'mmoe': task_towers: is required"),
        ("dcn_v1", TWO, {"deep": UNITS, "final": UNITS}, "DCNv1 reads one group of features, got 2: who, what"),
        ("dcn_v2", ONE, {"final": UNITS, "low_rank": 0}, "low_rank must be an integer of at least 1, got 0"),
        ("dcn_v2", ONE, {"final": UNITS, "cross_num": 0}, "cross_num must be an integer of at least 1, got 0"),
        ("dcn_v2", ONE, {"final": UNITS, "num_classes": 0}, "num_classes must be an integer of at least 1, got 0"),
        (
            "xdeepfm",
            FM,
            {"cin_layer_size": (), "deep": UNITS, "final": UNITS},
            "cin_layer_size must be a list of at least one size, got none",
        ),
        (
            "mask_net",
            ONE,
            {"mask_net_module": {"n_mask_blocks": 0, "hidden_dim": 4}},
            "n_mask_blocks must be an integer",
        ),
        ("wukong", ONE, {"wukong_layers": (), "final": UNITS}, "Wukong.wukong_layers must be at least one layer"),
        (
            "rocket_launching",
            ONE,
            {"booster_mlp": UNITS, "light_mlp": MLP((4,)), "feature_based_distillation": True},
            "needs a layer of one width in both networks, got light_mlp (4,) and booster_mlp (8,)",
        ),
        (
            "dbmtl",
            ONE,
            {"task_towers": ({"task": "buy", "relation_tower_names": ["click"]},)},
            "BayesTaskTower 'buy' has relation_tower_names without relation_mlp",
        ),
        (
            "dbmtl",
            ONE,
            {"task_towers": (BayesTaskTower("buy", None, 1, ("click",), UNITS), BayesTaskTower("click"))},
            "the tower 'buy' names the relation 'click', which must be a tower before it",
        ),
        (
            "dbmtl",
            ONE,
            {"task_towers": (BayesTaskTower("click"),), "gate_mlp": UNITS},
            "DBMTL was given gate_mlp without expert_mlp",
        ),
        ("ple", ONE, {"task_towers": (TASK,), "extraction_networks": ()}, "must be at least one network, got none"),
        (
            "ple",
            ONE,
            {"task_towers": (TASK,), "extraction_networks": ({**EXPERTS, "share_expert_net": MLP((4,))},)},
            "task_expert_net ends in 8 units and share_expert_net in 4",
        ),
        ("pepnet", ONE, {"task_towers": (TASK,)}, "PEPNet reads no group 'a'"),
        ("pepnet", {"all": ["user"]}, {"task_towers": (TASK,), "ppnet": UNITS}, "given ppnet without the group 'uia'"),
        (
            "pepnet",
            {"all": ["user"]},
            {"task_towers": (TASK,), "task_domain_num": 2},
            "PEPNet with task_domain_num=2 must have a group 'domain_index'",
        ),
        (
            "pepnet",
            {"all": ["user"], "domain_index": ["item"]},
            {"task_towers": (TASK,), "task_domain_num": 2},
            "the group 'domain_index' must hold one number",
        ),
        (
            "dat",
            {**TWO, "a": ["tag"], "b": ["item_wide"]},
            {"user_tower": WHO, "item_tower": WHAT, "user_augment": "a", "item_augment": "b", "output_dim": 3},
            "DAT: the group 'a' must have output_dim=3 numbers, as the vectors that it imitates; got 2",
        ),
        ("mmo", {"a": ["user"]}, {}, "unknown model 'mmo': did you mean 'mmoe'?"),
        (
            "deepfm",
            FM,
            {"deep": {"hidden_units": [8], "dropout": 0.1}},
            "model 'deepfm': deep.dropout: unknown field: did you mean 'dropout_ratio'?",
        ),
        ("deepfm", FM, {"deep": UNITS, "num_classes": "2"}, "model 'deepfm': num_classes: must be an integer, got '2'"),
        (
            "deepfm",
            FM,
            {"deep": UNITS, "num_classes": True},
            "num_classes: must be an integer, got True",
        ),
        (
            "deepfm",
            FM,
            {"deep": {"hidden_units": [8], "use_bn": "no"}},
            "model 'deepfm': deep.use_bn: must be true or false, got 'no'",
        ),
        ("dlrm", {"sparse": ["user"]}, {"final": UNITS, "arch_with_sparse": 1}, "must be true or false, got 1"),
        (
            "multi_tower",
            TWO,
            {"towers": [{"input": 3}]},
            "towers[0].input: must be a string, got 3",
        ),
        ("deepfm", FM, {"deep": {}}, "model 'deepfm': deep.hidden_units: is required"),
        ("deepfm", FM, {"deep": [8, 4]}, "model 'deepfm': deep: must be a mapping of fields (hidden_units, "),
        ("deepfm", FM, {"deep": {"hidden_units": 8}}, "model 'deepfm': deep.hidden_units: must be a list, got 8"),
        ("deepfm", FM, {"deep": {"hidden_units": [0]}}, "model 'deepfm': deep: MLP.hidden_units must be integers"),
        (
            "mmoe",
            {"a": ["user"]},
            {"expert_mlp": UNITS, "task_towers": [{"task": "buy", "mlp": {"hidden_units": []}}]},
            "model 'mmoe': task_towers[0].mlp: MLP.hidden_units must be integers of at least 1, got ()",
        ),
    ],
)
def test_models(name, groups, options, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        build(name, groups, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item": None}, "group 'deep': the batch has no feature 'item': did you mean 'item_wide'"),
        ({"item": (3, 5)}, r"group 'deep': feature 'item' must have shape \(batch, 4\), as in Inputs, got \(3, 5\)"),
        ({"item": (3,)}, r"feature 'item' must have shape \(batch, 4\), as in Inputs, got \(3,\)"),
    ],
)
def test_batches(change, message):
    model = build("deepfm", FM, deep=UNITS)
    shapes = {"user": (3, 4), "item": (3, 4), "item_wide": (3, 1), **change}
    acts = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items() if shape}
    apply, params, rest = models.functional(model)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(apply.predict, params, rest, acts, {})


def test_arrays_that_are_no_dict():
    inputs = Inputs({"user": 4}, {"x": 3}, {"deep": ["user", "x"]})
    group, acts, numbers = inputs.group("deep"), {"user": jnp.ones((2, 4))}, jnp.ones((2, 3))
    assert group.concat(acts, {"x": numbers}).shape == (2, 7)
    with pytest.raises(TypeError, match=r"numbers of a model must be a dict .*\{'x': array.* of shape \(2, 3\)"):
        group.concat(acts, numbers)
    with pytest.raises(TypeError, match=r"acts of a model must be a dict .*\{'user': array.* got list"):
        group.concat([acts["user"]], {"x": numbers})
