"""All models, tiny, each with a second statement of its equation in float64 NumPy."""

import numpy as np

from .cases_match import MATCH
from .cases_rank import RANK
from .cases_sequences import SEQUENCES
from .cases_tasks import TASKS
from .plain import DIM, Case, concat, each, linear, logits, mixed, mlp, pairs, units


def deepfm(params, x):
    wide = concat(x, "user_wide", "item_wide").sum(axis=1)
    deep = mlp(params["deep"], concat(x, "user", "item", "shop", "age"))
    fm = sum(a * b for a, b in pairs([x["user"], x["item"], x["shop"]]))
    if "mlp" in params["logits"]:
        return {"logits": logits(params["logits"], np.concatenate([wide[:, None], fm, deep], axis=1))}
    return {"logits": wide + fm.sum(axis=1) + logits(params["logits"], deep)}


def deepfm_over_deep(params, x):
    deep = mlp(params["deep"], concat(x, "user", "item"))
    fm = (x["user"] * x["item"]).sum(axis=1)
    return {"logits": x["user_wide"].sum(axis=1) + fm + logits(params["logits"], deep)}


def wide_and_deep(params, x):
    wide = x["user_wide"].sum(axis=1)
    deep = mlp(params["deep"], concat(x, "user", "age"))
    if "mlp" in params["logits"]:
        return {"logits": logits(params["logits"], np.concatenate([wide[:, None], deep], axis=1))}
    return {"logits": wide + logits(params["logits"], deep)}


def dlrm(params, x):
    dense = mlp(params["vectors"]["dense_mlp"], concat(x, "age", "prices"))
    sparse = [x["user"], x["item"]]
    dots = np.stack([(a * b).sum(axis=1) for a, b in pairs([dense, *sparse])], axis=1)
    return {"logits": logits(params["logits"], np.concatenate([dots, dense, *sparse], axis=1))}


def dlrm_dots_only(params, x):
    dots = np.stack([(a * b).sum(axis=1) for a, b in pairs([x["user"], x["item"], x["shop"]])], axis=1)
    return {"logits": logits(params["logits"], dots)}


def multi_tower(params, x):
    towers = params["towers"]
    parts = [mlp(towers[0]["mlp"], concat(x, "user", "age")), concat(x, "item")]
    return {"logits": logits(params["logits"], np.concatenate(parts, axis=1))}


def dssm(params, x):
    query = linear(params["user_output"]["linear"], mlp(params["user_tower"]["mlp"], concat(x, "user", "age")))
    item = linear(params["item_output"]["linear"], mlp(params["item_tower"]["mlp"], concat(x, "item")))
    return {"query": query, "item": item}


def mixture(params, x):
    experts = [mlp(expert, x) for expert in each(params["experts"])]
    return {task: mixed(logits(gate, x), experts) for task, gate in params["gates"].items()}


def mmoe(params, x):
    inputs = mixture(params["mixture"], concat(x, "user", "item", "age"))
    return {task: logits(tower, inputs[task]) for task, tower in params["towers"]["tasks"].items()}


WIDE = ["user_wide", "item_wide"]
DEEP = {"wide": WIDE, "fm": ["user", "item", "shop"], "deep": ["user", "item", "shop", "age"]}
TOWERS = [{"task": "click", "mlp": units(4)}, {"task": "buy", "num_classes": 2}]
CASES = [
    Case("deepfm", {"name": "deepfm", "deep": units(6, 4)}, DEEP, deepfm),
    Case("deepfm_final", {"name": "deepfm", "deep": units(4), "final": units(7), "num_classes": 3}, DEEP, deepfm),
    Case(
        "deepfm_over_deep",
        {"name": "deepfm", "deep": units(4)},
        {"wide": ["user_wide"], "deep": ["user", "item"]},
        deepfm_over_deep,
    ),
    Case(
        "wide_and_deep",
        {"name": "wide_and_deep", "deep": units(6, 4)},
        {"wide": ["user_wide"], "deep": ["user", "age"]},
        wide_and_deep,
    ),
    Case(
        "wide_and_deep_final",
        {"name": "wide_and_deep", "deep": units(6), "final": units(4)},
        {"wide": ["user_wide"], "deep": ["user", "age"]},
        wide_and_deep,
    ),
    Case(
        "dlrm",
        {"name": "dlrm", "dense_mlp": units(4, DIM), "final": units(6)},
        {"sparse": ["user", "item"], "dense": ["age", "prices"]},
        dlrm,
    ),
    Case(
        "dlrm_dots_only",
        {"name": "dlrm", "final": units(6), "arch_with_sparse": False},
        {"sparse": ["user", "item", "shop"]},
        dlrm_dots_only,
    ),
    Case(
        "multi_tower",
        {
            "name": "multi_tower",
            "towers": [{"input": "who", "mlp": units(4)}, {"input": "what"}],
            "final": units(5),
        },
        {"who": ["user", "age"], "what": ["item"]},
        multi_tower,
    ),
    Case(
        "dssm",
        {
            "name": "dssm",
            "user_tower": {"input": "user", "mlp": units(6)},
            "item_tower": {"input": "item", "mlp": units(4)},
            "output_dim": 2,
        },
        {"user": ["user", "age"], "item": ["item"]},
        dssm,
    ),
    Case(
        "mmoe",
        {
            "name": "mmoe",
            "expert_mlp": units(6, 4),
            "gate_mlp": units(3),
            "num_experts": 2,
            "task_towers": TOWERS,
        },
        {"all": ["user", "item", "age"]},
        mmoe,
    ),
    Case(
        "mmoe_plain_gates",
        {"name": "mmoe", "expert_mlp": units(4), "task_towers": TOWERS},
        {"any name": ["user", "item", "age"]},
        mmoe,
    ),
    *RANK,
    *TASKS,
    *MATCH,
    *SEQUENCES,
]
