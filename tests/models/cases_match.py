"""Models that match users with items."""

from .plain import DIM, Case, concat, linear, mlp, stop, unit, units


def dssm_v2(params, x):
    query = mlp(params["user_tower"]["mlp"], concat(x, "user", "age"))
    return {"query": unit(query), "item": unit(mlp(params["item_tower"]["mlp"], x["item"]))}


def dat(params, x):
    def tower(params, x):
        return linear(params["output"]["linear"], mlp(params["mlp"], x))

    query = tower(params["user_tower"], concat(x, "user", "age", "user_augment"))
    item = tower(params["item_tower"], concat(x, "item", "item_augment"))
    amm_user = ((unit(x["user_augment"]) - stop(item)) ** 2).sum(axis=1)
    amm_item = ((unit(x["item_augment"]) - stop(query)) ** 2).sum(axis=1)
    return {"query": query, "item": item, "loss/amm_user": 0.3 * amm_user, "loss/amm_item": 0.7 * amm_item}


def towers(*hidden):
    return {
        "user_tower": {"input": "users", "mlp": units(*hidden)},
        "item_tower": {"input": "items", "mlp": units(*hidden)},
    }


GROUPS = {"users": ["user", "age"], "items": ["item"]}
MATCH = [
    Case("dssm_v2", {"name": "dssm_v2", **towers(6, 4), "similarity": "cosine"}, GROUPS, dssm_v2),
    Case(
        "dat",
        {
            "name": "dat",
            **towers(6),
            "user_augment": "user augment",
            "item_augment": "item augment",
            "output_dim": DIM,
            "amm_u_weight": 0.3,
            "amm_i_weight": 0.7,
        },
        {**GROUPS, "user augment": ["user_augment"], "item augment": ["item_augment"]},
        dat,
        {"user_augment": DIM, "item_augment": DIM},
    ),
]
