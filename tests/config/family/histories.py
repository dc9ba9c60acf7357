# ruff: noqa: E501  configs read best in one line for each part
"""Models over histories in order."""

from __future__ import annotations

from tests.config.family.parts import (
    AGED,
    BCE,
    CLICK_NAMES,
    CLICKS,
    DIN,
    DIN_GROUPS,
    NAMES,
    QUERY,
    SEQUENCES,
    TABLE,
    TDM,
    TDM_FEATURES,
    config,
    group,
    ids,
    mlp,
    raw,
)

BOUGHT = [
    'sequence_id_feature { feature_name: "buy_users" sequence_length: 5 sequence_delim: "|" expression: "item:buy_users" hash_bucket_size: 30 embedding_dim: 4 value_dim: 0 }',
    'sequence_raw_feature { feature_name: "buy_raws" sequence_length: 5 sequence_delim: "|" expression: "item:buy_raws" }',
]
ENCODED = [
    'id_feature { feature_name: "user" embedding_dim: 4 hash_bucket_size: 20 fg_encoded_default_value: "0" }',
    'id_feature { feature_name: "item" embedding_dim: 4 num_buckets: 20 }',
    'id_feature { feature_name: "cate" embedding_dim: 4 vocab_list: ["a", "b", "c"] }',
    'raw_feature { feature_name: "price" normalizer: "method=zscore,mean=1,standard_deviation=2" }',
]
ENCODED_CLICKS = """sequence_feature {
  sequence_name: "click_seq" sequence_length: 6 sequence_delim: ";"
  features { id_feature { feature_name: "item" num_buckets: 20 embedding_dim: 4 } }
  features { id_feature { feature_name: "cate" num_buckets: 5 embedding_dim: 4 } }
  features { raw_feature { feature_name: "price" } }
}"""
SEQ_GROUPS = group("deep", NAMES) + group("seq", [*QUERY, *CLICK_NAMES], "SEQUENCE")
CONFIGS: dict[str, str] = {
    "multi_tower_din": config("din", [*AGED, CLICKS], f"{DIN_GROUPS} {DIN}"),
    "multi_tower_din_table": config("din", [*AGED, CLICKS], f"{DIN_GROUPS} {DIN}", path=TABLE, dataset="OdpsDataset"),
    "multi_tower_din_two": config(
        "din",
        [*AGED, CLICKS, *BOUGHT, ids("id_6", "user", "hash_bucket_size: 30 value_dim: 1"), raw("raw_5", "user")],
        f"""{DIN_GROUPS} {group("bought", ["id_6", "raw_5", "buy_users", "buy_raws"], "SEQUENCE")}
        multi_tower_din {{ towers {{ input: "deep" {mlp("mlp", 8)} }} din_towers {{ input: "seq" {mlp("attn_mlp", 4)} }}
          din_towers {{ input: "bought" {mlp("attn_mlp", 4)} }} {mlp("final", 4)} }} {BCE}""",
    ),
    "multi_tower_din_jagged": config(
        "din", [*AGED, CLICKS], f"{DIN_GROUPS} {DIN}".replace(" SEQUENCE", " JAGGED_SEQUENCE")
    ),
    "multi_tower_din_accumulator": config(
        "din",
        [*AGED, CLICKS],
        f"{DIN_GROUPS} {DIN}",
        sparse="adagrad_optimizer { lr: 0.05 initial_accumulator_value: 0.1 } constant_learning_rate {}",
    ),
    "multi_tower_din_half": config(
        "din",
        [feature.replace("num_buckets: 20", 'num_buckets: 20 data_type: "FP16"') for feature in [*AGED, CLICKS]],
        f"{DIN_GROUPS} {DIN}",
        train='num_epochs: 1 mixed_precision: "BF16" use_tensorboard: false',
    ),
    "multi_tower_din_scaled": config(
        "din",
        [*AGED, CLICKS],
        f"{DIN_GROUPS} {DIN}",
        train='num_epochs: 1 mixed_precision: "FP16" grad_scaler { init_scale: 256 } gradient_accumulation_steps: 2',
    ),
    "multi_tower_din_clipped": config(
        "din",
        [*AGED, CLICKS],
        f"{DIN_GROUPS} {DIN}",
        train='num_epochs: 1 grad_clipping { clipping_type: "norm" max_gradient: 1 enable_global_grad_clip: true }',
    ),
    "multi_tower_din_encoded": config("din", [*ENCODED, ENCODED_CLICKS], f"{SEQ_GROUPS} {DIN}", mode="FG_NONE"),
    "multi_tower_din_frozen": config(
        "din",
        [ENCODED[0].replace("embedding_dim", "trainable: false embedding_dim"), *ENCODED[1:], ENCODED_CLICKS],
        f"{SEQ_GROUPS} {DIN}",
        mode="FG_NONE",
    ),
    "multi_tower_din_best": config(
        "din", [*AGED, CLICKS], f"{DIN_GROUPS} {DIN}", extra='export_config { exporter_type: "best" }'
    ),
    "multi_tower_din_dice": config(
        "din", [*AGED, CLICKS], f"{DIN_GROUPS} {DIN}".replace("[8, 4]", "[8, 4] activation: 'Dice'")
    ),
    "multi_tower_din_fine": config(
        "din",
        [*AGED, CLICKS],
        f"{DIN_GROUPS} {DIN}",
        train="num_steps: 10 is_profiling: false save_checkpoints_steps: 5",
    ),
    "dcn_v2_attention": config(
        "dcn",
        SEQUENCES,
        f"""{
            group(
                "all",
                NAMES,
                more='''sequence_groups { feature_names: ["item", "click_seq__item"] }
        sequence_encoders { simple_attention {} } sequence_encoders { self_attention_encoder { multihead_attn_dim: 8 num_heads: 2 } }
        sequence_encoders { multi_window_din_encoder { windows_len: [2, 3] attn_mlp { hidden_units: 4 } } }''',
            )
        }
        dcn_v2 {{ cross {{}} {mlp("deep", 8)} {mlp("final", 4)} }} {BCE}""",
    ),
    "tdm": config(
        "tdm",
        TDM_FEATURES,
        f"""{group("deep", ["user"])} {group("seq", ["node", "cate", "click_seq__item", "click_seq__cate"], "SEQUENCE")} {TDM}""",
    ),
}
