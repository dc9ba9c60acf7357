"""Vocabularies that grow."""

from __future__ import annotations

from tests.config.family.parts import BCE, SINGLE, USER_ITEM, config, ids, mlp

CONFIGS: dict[str, str] = {
    "zch": config(
        "zch",
        [ids("user", more="zch { zch_size: 50 lru {} }"), *SINGLE[1:]],
        f"{USER_ITEM} multi_tower {{ towers {{ input: 'user' }} towers {{ input: 'item' }} {mlp('final', 4)} }} {BCE}",
    ),
    "dynamicemb": config(
        "dynamicemb",
        [ids("user", more='dynamicemb { max_capacity: 50 score_strategy: "STEP" }'), *SINGLE[1:]],
        f"{USER_ITEM} multi_tower {{ towers {{ input: 'user' }} towers {{ input: 'item' }} {mlp('final', 4)} }} {BCE}",
    ),
    "dynamicemb_cached": config(
        "dynamicemb_cached",
        [ids("user", more="dynamicemb { max_capacity: 50 cache_load_factor: 0.8 bucket_capacity: 64 }"), *SINGLE[1:]],
        f"{USER_ITEM} multi_tower {{ towers {{ input: 'user' }} towers {{ input: 'item' }} {mlp('final', 4)} }} {BCE}",
    ),
}
