# ruff: noqa: E501  configs read best in one line for each part
"""Models over single features."""

from __future__ import annotations

from tests.config.family.parts import BCE, SINGLE, TABLE, USER_ITEM, config, group, ids, mlp, raw

CRITEO = [
    *(raw(f"int_{i}", "user", 'normalizer: "method=zscore,mean=0.5,standard_deviation=2.0"') for i in range(3)),
    *(ids(f"cat_{i}", "item", "hash_bucket_size: 50") for i in range(4)),
]
INTS, CATS = [f"int_{i}" for i in range(3)], [f"cat_{i}" for i in range(4)]
DENSE_SPARSE = group("dense", INTS) + group("sparse", CATS)
WIDE = group("wide", CATS, "WIDE") + group("deep", [*INTS, *CATS])
WUKONG = f"""wukong {{ {mlp("dense_mlp", 4)} {mlp("final", 4)}
  wukong_layers {{ lcb_feature_num: 2 fmb_feature_num: 2 compressed_feature_num: 3 {mlp("feature_num_mlp", 4)} }} }}"""
MASK = f"""mask_net {{ mask_net_module {{ n_mask_blocks: 2 mask_block {{ reduction_ratio: 0.5 hidden_dim: 4 }}
  {mlp("top_mlp", 4)} use_parallel: false }} }}"""
ROCKET = f"""rocket_launching {{ {mlp("share_mlp", 8)} {mlp("booster_mlp", 8, 4)} {mlp("light_mlp", 4)}
  feature_based_distillation: true feature_distillation_function: COSINE }} {BCE}"""
CONFIGS: dict[str, str] = {
    "deepfm": config(
        "deepfm", CRITEO, f"{WIDE} {group('fm', CATS)} deepfm {{ {mlp('deep', 8)} {mlp('final', 4)} }} {BCE}"
    ),
    "deepfm_table": config(
        "deepfm", CRITEO, f"{WIDE} deepfm {{ {mlp('deep', 8)} }} {BCE}", path=TABLE, dataset="OdpsDataset"
    ),
    "wide_and_deep": config(
        "wide", CRITEO, f"{WIDE} wide_and_deep {{ {mlp('deep', 8)} wide_init_fn: 'nn.init.zeros_' }} {BCE}"
    ),
    "dlrm": config("dlrm", CRITEO, f"{DENSE_SPARSE} dlrm {{ {mlp('dense_mlp', 4)} {mlp('final', 4)} }} {BCE}"),
    "dcn_v1": config(
        "dcn",
        CRITEO,
        f"{group('all', [*INTS, *CATS])} dcn_v1 {{ cross {{ cross_num: 2 }} {mlp('deep', 8)} {mlp('final', 4)} }} {BCE}",
    ),
    "dcn_v2": config(
        "dcn", CRITEO, f"{group('all', [*INTS, *CATS])} dcn_v2 {{ cross {{ low_rank: 2 }} {mlp('final', 4)} }} {BCE}"
    ),
    "xdeepfm": config(
        "x",
        CRITEO,
        f"{WIDE} xdeepfm {{ cin {{ cin_layer_size: [3, 2] }} {mlp('deep', 8)} {mlp('final', 4)} wide_embedding_dim: 4 }} {BCE}",
    ),
    "mask_net": config(
        "mask", CRITEO, f"{group('all', [*INTS, *CATS])} {MASK} {BCE}", path=TABLE, dataset="OdpsDataset"
    ),
    "wukong": config("wukong", CRITEO, f"{DENSE_SPARSE} {WUKONG} {BCE}", path=TABLE, dataset="OdpsDataset"),
    "rocket_launching": config(
        "rocket", CRITEO, f"{group('all', [*INTS, *CATS])} {ROCKET}", path=TABLE, dataset="OdpsDatasetV1"
    ),
    "multi_tower": config(
        "towers",
        SINGLE,
        f"{USER_ITEM} multi_tower {{ towers {{ input: 'user' {mlp('mlp', 8)} }} towers {{ input: 'item' }} {mlp('final', 4)} }} {BCE}",
    ),
}
