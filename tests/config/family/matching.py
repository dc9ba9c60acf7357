# ruff: noqa: E501  configs read best in one line for each part
"""Models of two towers, with their samplers."""

from __future__ import annotations

from tests.config.family.parts import (
    CLICK_IDS,
    CLICKS,
    RECALL,
    SINGLE,
    TABLE,
    TDM,
    TDM_FEATURES,
    TOWERS,
    USER_ITEM,
    config,
    group,
    ids,
    mlp,
)

WITH_POOLED = group(
    "user",
    ["user"],
    more="""sequence_groups { group_name: "click_seq" feature_names: ["click_seq__item", "click_seq__cate"] }
            sequence_encoders { pooling_encoder { input: "click_seq" pooling_type: "mean" } }""",
) + group("item", ["item", "cate", "price"])
SAMPLER = """negative_sampler { input_path: "" num_sample: 4 num_eval_sample: 6 attr_fields: ["item", "cate", "price"]
  item_id_field: "item" attr_delimiter: "," }"""
MIND = f"""mind {{
  user_tower {{ input: "user" history_input: "hist" {mlp("user_mlp", 8)} {mlp("hist_seq_mlp", 8)}
    user_seq_combine: SUM {mlp("concat_mlp", 8)}
    capsule_config {{ max_k: 2 max_seq_len: 6 high_dim: 4 routing_init_method: "normal" }} }}
  item_tower {{ input: "item" {mlp("mlp", 8)} }} output_dim: 4 simi_pow: 10 temperature: 0.5 }}"""
MIND_GROUPS = USER_ITEM + group("hist", ["click_seq__item", "click_seq__cate"], "SEQUENCE")
DAT = f"""dat {{ user_tower {{ input: "user" augment_input: "user_augment" {mlp("mlp", 8)} }}
  item_tower {{ input: "item" augment_input: "item_augment" {mlp("mlp", 8)} }} output_dim: 4
  amm_u_weight: 0.1 amm_i_weight: 0.2 in_batch_negative: true }}"""
DAT_FEATURES = [*SINGLE, ids("user_id", "user", "num_buckets: 20"), ids("item_id", "item", "num_buckets: 20")]
DAT_GROUPS = USER_ITEM + group("user_augment", ["user_id"]) + group("item_augment", ["item_id"])
BY_USER = """user_input_path: "users.parquet" item_input_path: "" num_sample: 4 attr_fields: ["item", "cate", "price"]
  item_id_field: "item" user_id_field: "user" attr_delimiter: ",\""""
CONFIGS: dict[str, str] = {
    "dssm": config(
        "dssm",
        [*SINGLE, CLICK_IDS],
        f"{WITH_POOLED} dssm {{ {TOWERS} output_dim: 4 }} {RECALL}",
        data=SAMPLER,
        path=TABLE,
    ),
    "dssm_batch": config(
        "dssm", SINGLE, f"{USER_ITEM} dssm {{ {TOWERS} output_dim: 0 in_batch_negative: true }} {RECALL}"
    ),
    "dssm_raw_history": config(
        "dssm",
        [*SINGLE, CLICKS],
        f"""{WITH_POOLED.replace('"click_seq__cate"]', '"click_seq__cate", "click_seq__price", "click_seq__age"]')}
        dssm {{ {TOWERS} output_dim: 4 similarity: COSINE temperature: 0.2 }} {RECALL}""",
        data=SAMPLER,
    ),
    "dssm_variational": config(
        "dssm",
        SINGLE,
        f"{USER_ITEM} variational_dropout {{}} dssm {{ {TOWERS} output_dim: 4 }} {RECALL}",
        data=SAMPLER + " force_base_data_group: true",
    ),
    "dssm_v2": config(
        "dssm", [*SINGLE, CLICK_IDS], f"{WITH_POOLED} dssm_v2 {{ {TOWERS} output_dim: 4 }} {RECALL}", data=SAMPLER
    ),
    "dssm_v2_table": config(
        "dssm",
        [*SINGLE, CLICK_IDS],
        f"{WITH_POOLED} dssm_v2 {{ {TOWERS} output_dim: 4 }} {RECALL}",
        data=SAMPLER,
        path=TABLE,
    ),
    "dat": config("dat", DAT_FEATURES, f"{DAT_GROUPS} {DAT} {RECALL}"),
    "dat_drawn": config(
        "dat",
        [*SINGLE, ids("user_id", "user", "num_buckets: 20")],
        USER_ITEM
        + group("user_augment", ["user_id"])
        + group("item_augment", ["item"])
        + f"{DAT.replace('in_batch_negative: true', '')} {RECALL}",
        data=SAMPLER,
    ),
    "mind": config("mind", [*SINGLE, CLICK_IDS], f"{MIND_GROUPS} {MIND} {RECALL}", data=SAMPLER, path=TABLE),
    "mind_plain": config(
        "mind", [*SINGLE, CLICK_IDS], f"{MIND_GROUPS} {MIND.replace('output_dim: 4', '')} {RECALL}", data=SAMPLER
    ),
    "dssm_hard": config(
        "dssm",
        SINGLE,
        f"{USER_ITEM} dssm {{ {TOWERS} output_dim: 4 }} {RECALL}",
        data=f"hard_negative_sampler {{ {BY_USER} hard_neg_edge_input_path: '' num_hard_sample: 2 }}",
    ),
    "dssm_hard_v2": config(
        "dssm",
        SINGLE,
        f"{USER_ITEM} dssm {{ {TOWERS} output_dim: 4 }} {RECALL}",
        data=f"hard_negative_sampler_v2 {{ {BY_USER} hard_neg_edge_input_path: '' pos_edge_input_path: '' num_hard_sample: 2 }}",
    ),
    "dssm_by_user": config(
        "dssm",
        SINGLE,
        f"{USER_ITEM} dssm {{ {TOWERS} output_dim: 4 }} {RECALL}",
        data=f"negative_sampler_v2 {{ {BY_USER} pos_edge_input_path: '' }}",
    ),
    "tdm_tree": config(
        "tdm",
        TDM_FEATURES,
        f"""{group("deep", ["user"])} {group("seq", ["node", "cate", "click_seq__item", "click_seq__cate"], "SEQUENCE")} {TDM}""",
        data="""tdm_sampler { item_input_path: "" edge_input_path: "" predict_edge_input_path: "unused" attr_fields: "cate"
          item_id_field: "node" layer_num_sample: [0, 1, 1, 2] attr_delimiter: "," }""",
    ),
}
