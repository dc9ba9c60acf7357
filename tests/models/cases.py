"""All models, tiny, each with a second statement of its equation in float64 NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from sparrow import models

BATCH, DIM = 5, 3


# ---- NumPy


def mlp(params, x):
    for index in sorted(params["layers"]):
        linear = params["layers"][index]["linear"]
        x = np.maximum(x @ linear["kernel"] + linear["bias"], 0)
    return x


def linear(params, x):
    return x @ params["kernel"] + params["bias"]


def logits(params, x):
    y = linear(params["linear"], mlp(params["mlp"], x) if "mlp" in params else x)
    return y[:, 0] if y.shape[1] == 1 else y


def concat(batch, *names):
    return np.concatenate([batch[name] for name in names], axis=1)


def pairs(vectors):
    return [(a, b) for i, a in enumerate(vectors) for b in vectors[i + 1 :]]


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


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
    dense = mlp(params["dense_mlp"], concat(x, "age", "prices"))
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
    query = linear(params["user_output"], mlp(params["user_tower"]["mlp"], concat(x, "user", "age")))
    item = linear(params["item_output"], mlp(params["item_tower"]["mlp"], concat(x, "item")))
    return {"query": query, "item": item}


def mmoe(params, x):
    x = concat(x, "user", "item", "age")
    experts = np.stack([mlp(params["experts"][i], x) for i in sorted(params["experts"])], axis=1)
    outputs = {}
    for task in ("click", "buy"):
        gate = softmax(logits(params["gates"][task], x))
        outputs[task] = logits(params["towers"][task], (gate[:, :, None] * experts).sum(axis=1))
    return outputs


# ---- the list


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    record: dict[str, Any]
    groups: dict[str, list[str]]
    reference: Callable[..., Any]

    def __str__(self):
        return self.name

    @property
    def features(self):
        return sorted({name for names in self.groups.values() for name in names})

    def inputs(self):
        dims = {"age": 1, "prices": 2, "user": DIM, "item": DIM, "shop": DIM, "user_wide": 1, "item_wide": 2}
        used = {name: dims[name] for name in self.features}
        numbers = {name: dim for name, dim in used.items() if name in ("age", "prices")}
        return models.Inputs({n: d for n, d in used.items() if n not in numbers}, numbers, self.groups)

    def functional(self):
        """Pure functions, and random parameters: biases that are all 0 would hide mistakes."""
        record = models.registry.from_dict(self.record)
        model = nnx.eval_shape(lambda: record.build(self.inputs(), rngs=nnx.Rngs(0)))
        apply, shapes, rest = models.functional(model)
        assert not jax.tree.leaves(rest)
        rng = np.random.default_rng(1)
        return apply, jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)

    def batch(self, seed=0):
        rng, inputs = np.random.default_rng(seed), self.inputs()
        acts = {n: rng.normal(size=(BATCH, d)).astype(np.float32) for n, d in inputs.acts.items()}
        numbers = {n: rng.normal(size=(BATCH, d)).astype(np.float32) for n, d in inputs.numbers.items()}
        return acts, numbers


def units(*hidden):
    return {"hidden_units": list(hidden)}


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
]
