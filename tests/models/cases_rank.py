"""Models of one task over single features: cross networks, masks, interaction networks, distillation."""

import numpy as np

from .plain import DIM, Case, concat, each, layer_norm, linear, logits, mlp, relu, stop, unit, units

ALL = {"all": ["user", "item", "age"]}


def together(x):
    return concat(x, "user", "item", "age")


def dcn_v1(params, x):
    x = together(x)
    y = x
    for weight, bias in zip(each(params["cross"]["weights"]), each(params["cross"]["biases"]), strict=True):
        y = x * (y @ weight["kernel"]) + bias + y
    return {"logits": logits(params["logits"], np.concatenate([y, mlp(params["deep"], x)], axis=1))}


def dcn_v2(params, x):
    x = together(x)
    first = mlp(params["backbone"], x) if "backbone" in params else x
    y = first
    for index, up in enumerate(each(params["cross"]["up"])):
        down = y @ params["cross"]["down"][index]["kernel"] if "down" in params["cross"] else y
        y = first * linear(up, down) + y
    parts = [y, mlp(params["deep"], x)] if "deep" in params else [y]
    return {"logits": logits(params["logits"], np.concatenate(parts, axis=1))}


def xdeepfm(params, x):
    first = np.stack([x["user"], x["item"], x["shop"]], axis=1)  # (batch, features, dim)
    y, parts = first, []
    for layer in each(params["cin"]["layers"]):
        weights = layer["kernel"].reshape(y.shape[1], first.shape[1], -1)  # (i, j, h)
        y = np.einsum("bid,bjd,ijh->bhd", y, first, weights) + layer["bias"][:, None]
        parts.append(y.sum(axis=2))
    parts.append(mlp(params["deep"], concat(x, "user", "age")))
    return {"logits": logits(params["logits"], np.concatenate(parts, axis=1))}


def mask_block(params, y, x):
    mask = linear(params["project"], relu(linear(params["aggregate"], x)))
    return relu(layer_norm(params["norm"], linear(params["linear"], mask * y)))


def parallel_masks(params, x):
    y = layer_norm(params["norm"], x)
    y = np.concatenate([mask_block(block, y, x) for block in each(params["blocks"])], axis=1)
    return mlp(params["top"], y) if "top" in params else y


def serial_masks(params, x):
    y = layer_norm(params["norm"], x)
    for block in each(params["blocks"]):
        y = mask_block(block, y, x)
    return y


def mask_net(masks):
    return lambda params, x: {"logits": logits(params["logits"], masks(params["mask_net"], together(x)))}


def wukong(params, x):
    vectors = [x["user"], x["item"], x["shop"]]
    if "dense_mlp" in params.get("vectors", {}):
        vectors.insert(0, mlp(params["vectors"]["dense_mlp"], x["age"]))
    y = np.stack(vectors, axis=1)
    for layer in each(params["layers"]):
        dots = y @ np.swapaxes(y, 1, 2) @ layer["meet"]["kernel"]
        machine = linear(layer["linear"], mlp(layer["mlp"], layer_norm(layer["pairs_norm"], dots.reshape(len(y), -1))))
        machine = machine.reshape(len(y), -1, DIM)
        compressed = np.einsum("bfd,fn->bnd", y, layer["compress"]["kernel"])
        kept = np.einsum("bfd,fn->bnd", y, layer["residual"]["kernel"]) if "residual" in layer else y
        y = layer_norm(layer["norm"], np.concatenate([machine, compressed], axis=1) + kept)
    return {"logits": logits(params["logits"], y.reshape(len(y), -1))}


def hidden(params, x):
    outputs = []
    for layer in each(params["layers"]):
        x = relu(linear(layer["linear"], x))
        outputs.append(x)
    return outputs


def rocket_launching(function):
    def statement(params, x):
        shared = together(x)
        shared = mlp(params["share"], shared) if "share" in params else shared
        booster_layers, light_layers = hidden(params["booster"], shared), hidden(params["light"], stop(shared))
        booster = logits(params["booster_logits"], booster_layers[-1])
        light = logits(params["light_logits"], light_layers[-1])
        outputs = {"light": light, "booster": booster, "loss/hint": (light - stop(booster)) ** 2}
        if function == "cosine":
            close = (unit(light_layers[0]) * unit(stop(booster_layers[1]))).sum(axis=1)
            outputs["loss/similarity_0_1"] = -0.1 * close
        if function == "euclid":
            far = light_layers[0] - stop(booster_layers[1])
            outputs["loss/similarity_0_1"] = np.sqrt((far * far).sum(axis=1))
        return outputs

    return statement


MASKS = {"n_mask_blocks": 2, "hidden_dim": 4}
WIDE = {"wide": ["user", "item", "shop"], "deep": ["user", "age"]}
ROCKET = {"name": "rocket_launching", "booster_mlp": units(7, 6), "light_mlp": units(6, 3)}
LAYER = {"lcb_feature_num": 2, "fmb_feature_num": 2, "feature_num_mlp": units(5), "compressed_feature_num": 2}
RANK = [
    Case("dcn_v1", {"name": "dcn_v1", "cross_num": 2, "deep": units(6), "final": units(4)}, ALL, dcn_v1),
    Case("dcn_v2", {"name": "dcn_v2", "cross_num": 2, "low_rank": 2, "deep": units(6), "final": units(4)}, ALL, dcn_v2),
    Case(
        "dcn_v2_full_rank",
        {"name": "dcn_v2", "cross_num": 2, "low_rank": None, "backbone": units(5), "final": units(4)},
        ALL,
        dcn_v2,
    ),
    Case(
        "xdeepfm",
        {"name": "xdeepfm", "cin_layer_size": [4, 2], "deep": units(6), "final": units(4)},
        WIDE,
        xdeepfm,
    ),
    Case(
        "mask_net",
        {"name": "mask_net", "mask_net_module": {**MASKS, "aggregation_dim": 5, "top_mlp": units(6)}},
        ALL,
        mask_net(parallel_masks),
    ),
    Case(
        "mask_net_serial",
        {"name": "mask_net", "mask_net_module": {**MASKS, "use_parallel": False}, "num_classes": 3},
        ALL,
        mask_net(serial_masks),
    ),
    Case(
        "wukong",
        {"name": "wukong", "wukong_layers": [LAYER, LAYER], "final": units(4)},
        {"any name": ["user", "item", "shop"]},
        wukong,
    ),
    Case(
        "wukong_dense",
        {"name": "wukong", "wukong_layers": [LAYER], "final": units(4), "dense_mlp": units(4, DIM)},
        {"sparse": ["user", "item", "shop"], "dense": ["age"]},
        wukong,
    ),
    Case("rocket_launching", ROCKET, ALL, rocket_launching(None)),
    Case(
        "rocket_launching_cosine",
        {**ROCKET, "share_mlp": units(5), "feature_based_distillation": True},
        ALL,
        rocket_launching("cosine"),
    ),
    Case(
        "rocket_launching_euclid",
        {**ROCKET, "feature_based_distillation": True, "feature_distillation_function": "euclid"},
        ALL,
        rocket_launching("euclid"),
    ),
]
