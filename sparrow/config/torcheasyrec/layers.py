"""Layers and towers: TorchEasyRec's ``mlp`` and the messages around it as ours."""

from __future__ import annotations

from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.models import MLP, BayesTaskTower, ExtractionNetwork, MaskBlocks, TaskTower, Tower

_ACTIVATIONS: Final = {
    "": "none",
    "nn.ReLU": "relu",
    "nn.ReLU6": "relu6",
    "nn.LeakyReLU": "leaky_relu",
    "nn.ELU": "elu",
    "nn.SELU": "selu",
    "nn.GELU": "gelu",
    "nn.SiLU": "silu",
    "nn.Mish": "mish",
    "nn.Softplus": "softplus",
    "nn.Sigmoid": "sigmoid",
    "nn.Tanh": "tanh",
    "nn.PReLU": "prelu",
    "Dice": "dice",
}


def mlp(block: Block) -> MLP:
    """Return the layers of a message."""
    return make_mlp(
        block, "", block["hidden_units"], use_bn=block["use_bn"], bias=block["bias"], use_ln=block["use_ln"]
    )


def make_mlp(block: Block, prefix: str, units: Any, **fields: Any) -> MLP:
    """Return the layers of a message whose activation and dropout have names with ``prefix``."""
    activation, ratios = block[f"{prefix}activation"], block[f"{prefix}dropout_ratio"]
    if activation not in _ACTIVATIONS:
        known = ", ".join(repr(name) for name in _ACTIVATIONS if name)
        block.fail(f"must be one of {known}, got {activation!r}", f"{prefix}activation")
    with block.locating():
        return MLP(
            hidden_units=units,
            dropout_ratio=(ratios[0] if len(ratios) == 1 else ratios) if ratios else 0.0,
            activation=_ACTIVATIONS[activation],
            **fields,
        )


def optional_mlp(block: Block | None) -> MLP | None:
    """Return the layers of a message; None where it is not given."""
    return None if block is None else mlp(block)


def tower(block: Block) -> Tower:
    """Return a tower over one group."""
    return Tower(block["input"], optional_mlp(block["mlp"]))


def task_tower(block: Block) -> TaskTower:
    """Return the layers of one task."""
    with block.locating():
        return TaskTower(block["tower_name"], optional_mlp(block["mlp"]), num_classes=block["num_class"])


def bayes_tower(block: Block) -> BayesTaskTower:
    """Return the layers of one task that reads others."""
    with block.locating():
        return BayesTaskTower(
            block["tower_name"],
            optional_mlp(block["mlp"]),
            num_classes=block["num_class"],
            relation_tower_names=block["relation_tower_names"],
            relation_mlp=optional_mlp(block["relation_mlp"]),
        )


def mask_blocks(block: Block | None) -> MaskBlocks | None:
    """Return the blocks of MaskNet; None where they are not given."""
    if block is None:
        return None
    inner = block["mask_block"]
    with block.locating():
        return MaskBlocks(
            n_mask_blocks=block["n_mask_blocks"],
            hidden_dim=inner["hidden_dim"],
            reduction_ratio=inner["reduction_ratio"],
            aggregation_dim=inner["aggregation_dim"] or None,
            top_mlp=optional_mlp(block["top_mlp"]),
            use_parallel=block["use_parallel"],
        )


def extraction_network(block: Block) -> ExtractionNetwork:
    """Return one layer of PLE."""
    if not block["share_num"]:
        block.fail("is required: the number of experts that all tasks share, at least 1", "share_num")
    with block.locating():
        return ExtractionNetwork(
            expert_num_per_task=block["expert_num_per_task"],
            task_expert_net=mlp(block["task_expert_net"]),
            share_num=block["share_num"],
            share_expert_net=optional_mlp(block["share_expert_net"]),
        )
