"""Models of several tasks."""

import numpy as np

from .cases_rank import ALL, MASKS, parallel_masks, together
from .plain import DIM, Case, concat, each, linear, logits, mixed, mlp, relu, sigmoid, stop, units


def dbmtl(params, x):
    y = together(x)
    if len(params.get("shared", ())) == 2:
        y = mlp(params["shared"][1], parallel_masks(params["shared"][0], y))
    own = {"click": y, "buy": y}
    if "mixture" in params:
        experts = [mlp(expert, y) for expert in each(params["mixture"]["experts"])]
        own = {task: mixed(logits(gate, y), experts) for task, gate in params["mixture"]["gates"].items()}
    own = {task: mlp(params["own"][task], y) if task in params["own"] else y for task, y in own.items()}
    own["buy"] = mlp(params["relation"]["buy"], np.concatenate([own["buy"], own["click"]], axis=1))
    return {task: logits(params["outputs"][task], y) for task, y in own.items()}


def ple(params, x):
    shared = together(x)
    inputs = {"click": shared, "buy": shared}
    for network in each(params["networks"]):
        common = [mlp(expert, shared) for expert in each(network["shared"])]
        own = {task: [mlp(expert, inputs[task]) for expert in each(network["own"][task])] for task in inputs}
        new = {task: mixed(logits(network["gates"][task], inputs[task]), own[task] + common) for task in inputs}
        if "shared_gate" in network:
            experts = own["click"] + own["buy"] + common
            shared = mixed(logits(network["shared_gate"], shared), experts)
        inputs = new
    return {task: logits(params["towers"]["tasks"][task], y) for task, y in inputs.items()}


def gate(params, prior, x, gamma):
    y = relu(linear(params["first"], np.concatenate([prior, stop(x)], axis=1)))
    return gamma * sigmoid(linear(params["second"], y))


def pepnet(params, x):
    y = concat(x, "user", "item")
    y = gate(params["epnet"], x["shop"], y, 2.0) * y
    hidden = {}
    for task in ("click", "buy"):
        hidden[task] = y
        for layer, scale in zip(each(params["layers"][task]["layers"]), each(params["gates"][task]), strict=True):
            hidden[task] = relu(linear(layer["linear"], hidden[task])) * gate(scale, x["prices"], y, 3.0)
    return {task: logits(params["towers"][0]["tasks"][task], y) for task, y in hidden.items()}


def pepnet_domains(params, x):
    outputs = [
        {task: logits(tower["tasks"][task], concat(x, "user", "item")) for task in ("click", "buy")}
        for tower in each(params["towers"])
    ]
    domains = x["domain"][:, 0].astype(int)
    return {
        task: np.stack([outputs[domain][task][row] for row, domain in enumerate(domains)]) for task in ("click", "buy")
    }


TOWERS = [{"task": "click", "mlp": units(4)}, {"task": "buy", "num_classes": 2}]
RELATED = [
    {"task": "click", "mlp": units(4)},
    {"task": "buy", "num_classes": 2, "relation_tower_names": ["click"], "relation_mlp": units(3)},
]
EXTRACTION = {"expert_num_per_task": 2, "task_expert_net": units(4)}
TASKS = [
    Case("dbmtl", {"name": "dbmtl", "task_towers": RELATED}, ALL, dbmtl),
    Case(
        "dbmtl_all",
        {
            "name": "dbmtl",
            "task_towers": RELATED,
            "mask_net": MASKS,
            "bottom_mlp": units(6),
            "expert_mlp": units(4),
            "gate_mlp": units(3),
            "num_experts": 2,
        },
        ALL,
        dbmtl,
    ),
    Case(
        "ple",
        {
            "name": "ple",
            "extraction_networks": [{**EXTRACTION, "share_num": 2, "share_expert_net": units(3, 4)}, EXTRACTION],
            "task_towers": TOWERS,
        },
        ALL,
        ple,
    ),
    Case(
        "pepnet",
        {"name": "pepnet", "task_towers": TOWERS, "ppnet": units(4, DIM), "epnet_hidden_unit": 5, "ppnet_gamma": 3.0},
        {"all": ["user", "item"], "domain": ["shop"], "uia": ["prices"]},
        pepnet,
    ),
    Case(
        "pepnet_domains",
        {"name": "pepnet", "task_towers": TOWERS, "task_domain_num": 3},
        {"all": ["user", "item"], "domain_index": ["domain"]},
        pepnet_domains,
    ),
]
