"""Every model over single features: from a config through training, a checkpoint and an export to predictions."""

import io

import numpy as np
import pyarrow as pa
import pytest

from sparrow import exports, runs, serving
from sparrow.config import ConfigError, train_pipeline
from tests.runs.cases import IDS, NAMES, case, clicks


def units(*hidden):
    return {"hidden_units": list(hidden)}


def task(label="label", loss="binary_cross_entropy"):
    return {"label": label, "losses": [loss]}


CLICK, TWO = {"click": task()}, {"click": task(), "again": task()}
TOWERS = [{"task": "click", "mlp": units(4)}, {"task": "again"}]
RELATED = [{"task": "click"}, {"task": "again", "relation_tower_names": ["click"], "relation_mlp": units(4)}]
MATCH = {"match": task(loss="in_batch_softmax")}
ALL = {"all": NAMES}
PAIR = {"users": NAMES[:1], "items": NAMES[1:]}
SIDES = {"user_tower": {"input": "users", "mlp": units(4)}, "item_tower": {"input": "items", "mlp": units(4)}}
AUGMENT = {"user_augment": "user augment", "item_augment": "item augment", "output_dim": 4}
LAYER = {"lcb_feature_num": 2, "fmb_feature_num": 2, "feature_num_mlp": units(4)}
MODELS = {
    "dcn_v1": ({"deep": units(4), "final": units(4)}, ALL, CLICK),
    "dcn_v2": ({"deep": units(4), "final": units(4), "low_rank": 3}, ALL, CLICK),
    "xdeepfm": ({"cin_layer_size": [3], "deep": units(4), "final": units(4)}, {"wide": NAMES, "deep": NAMES}, CLICK),
    "mask_net": ({"mask_net_module": {"n_mask_blocks": 2, "hidden_dim": 4}}, ALL, CLICK),
    "wukong": ({"wukong_layers": [LAYER], "final": units(4)}, ALL, CLICK),
    "dbmtl": ({"task_towers": RELATED}, ALL, TWO),
    "ple": (
        {"extraction_networks": [{"expert_num_per_task": 1, "task_expert_net": units(4)}], "task_towers": TOWERS},
        ALL,
        TWO,
    ),
    "pepnet": (
        {"ppnet": units(4), "task_towers": TOWERS},
        {"all": NAMES[:2], "domain": NAMES[2:], "uia": NAMES[2:]},
        TWO,
    ),
    "rocket_launching": (
        {"booster_mlp": units(8, 4), "light_mlp": units(4), "feature_based_distillation": True},
        ALL,
        {"light": task(), "booster": task()},
    ),
    "dssm_v2": ({**SIDES, "output_dim": 4}, PAIR, MATCH),
    "dat": (
        {**SIDES, **AUGMENT},
        {"users": NAMES[:1], "items": NAMES[1:2], "user augment": NAMES[:1], "item augment": NAMES[1:2]},
        MATCH,
    ),
}


def config(name, *overrides):
    options, groups, tasks = MODELS[name]
    used = {feature for names in groups.values() for feature in names}
    return case(
        "train.steps=3",
        *overrides,
        model={"architecture": {"name": name, **options}, "groups": groups, "wide_dim": 2},
        tasks=tasks,
        data={
            "features": [
                {"kind": "id", "name": feature, "num_buckets": IDS, "embedding_dim": 4}
                for feature in NAMES
                if feature in used
            ],
            "train": clicks(),
            "evaluate": clicks(512, start=1000),
        },
    )


def rows(made, count=7):
    rng = np.random.default_rng(0)
    return pa.table({feature.name: rng.integers(0, IDS, count) for feature in made.data.features})


def served(made, folder):
    """Predictions of the export, after a checkpoint, and the losses that were logged."""
    log = io.StringIO()
    trained = runs.train(made, folder / "run", stream=log)
    assert np.isfinite(list(trained.results.values())).all()
    program, state = runs.load(folder / "run")
    exports.export(program, state, folder / "export")
    return serving.load(folder / "export").predict(rows(made)), log.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_from_config_to_predictions(name, tmp_path):
    made = config(name, "train.log_every_steps=1")
    predictions, log = served(made, tmp_path)
    assert all(np.isfinite(array).all() and len(array) == 7 for array in predictions.values())
    extra = {"rocket_launching": ["hint", "similarity_0_1"], "dat": ["amm_user", "amm_item"]}
    for loss in extra.get(name, ()):
        assert loss in log


@pytest.mark.slow
def test_variational_dropout(tmp_path):
    predictions, _ = served(config("dcn_v2", "model.variational_dropout=0.1"), tmp_path)
    assert all(np.isfinite(array).all() for array in predictions.values())


@pytest.mark.slow
def test_pareto_weights():
    """The total is the weighted sum of the terms, with weights of sum 1 that respect the floor, and it trains."""
    made = config("ple", "train.pareto_loss_weights=true", "tasks.click.pareto_min_loss_weight=0.3")
    program = runs.train(made, stream=io.StringIO()).program
    state, feed = program.init(), next(iter(train_pipeline(made, program.preparer()))).feed
    acts = program.embedder.lookup(state.optimizer.embedding, feed.packed)
    params, rest = state.optimizer.params, state.rest
    total, (terms, _, _) = program.loss(params, acts, rest, feed)
    weights = program._pareto_weights(params, acts, rest, feed)
    assert float(sum(weights.values())) == pytest.approx(1, rel=1e-4)
    assert weights["click"] > 0.3 - 1e-5
    assert float(total) == pytest.approx(float(sum(weights[task] * terms[task] for task in weights)), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("dcn_v2", ["train.pareto_loss_weights=true"], "weighs tasks against each other, and there is one; remove it"),
        ("ple", ["tasks.click.pareto_min_loss_weight=0.5"], "has no effect without train.pareto_loss_weights"),
        (
            "ple",
            [f"tasks.{name}.pareto_min_loss_weight=0.5" for name in TWO] + ["train.pareto_loss_weights=true"],
            "the pareto_min_loss_weight of all tasks must have a sum below 1, got 1",
        ),
    ],
)
def test_bad_options(name, overrides, message):
    with pytest.raises(ConfigError, match=message):
        config(name, *overrides)
