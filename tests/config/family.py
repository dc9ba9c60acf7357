# ruff: noqa: E501  configs read best in one line for each part
"""Configs as TorchEasyRec's users write them: one for each model, feature, sampler and reason to refuse.

`FAMILY` holds them by name. Paths are empty or of MaxCompute, as in most of TorchEasyRec's own: tests give them.
"""

from __future__ import annotations

TABLE = "odps://project/tables/clicks/ds=20240101"

HEAD = """
train_input_path: "{path}"
eval_input_path: "{path}"
model_dir: "experiments/{name}"
train_config {{
  sparse_optimizer {{ {sparse} }}
  dense_optimizer {{ {dense} }}
  {train}
}}
eval_config {{}}
{extra}
data_config {{
  batch_size: 16
  dataset_type: {dataset}
  fg_mode: {mode}
  label_fields: {labels}
  num_workers: 8
  {data}
}}
"""
ADAGRAD = "adagrad_optimizer { lr: 0.05 } constant_learning_rate {}"
ADAM = "adam_optimizer { lr: 0.01 } constant_learning_rate {}"


def config(
    name,
    features,
    model,
    *,
    path="",
    sparse=ADAGRAD,
    dense=ADAM,
    train="num_epochs: 1",
    extra="",
    dataset="ParquetDataset",
    mode="FG_DAG",
    labels='"clk"',
    data="",
):
    """A complete config."""
    fields = {"path": path, "name": name, "sparse": sparse, "dense": dense, "train": train, "extra": extra}
    head = HEAD.format(**fields, dataset=dataset, mode=mode, labels=labels, data=data)
    return (
        head + "\n".join(f"feature_configs {{ {feature} }}" for feature in features) + f"\nmodel_config {{ {model} }}\n"
    )


def ids(name, side="user", more="num_buckets: 20", dim=4):
    """An id feature."""
    return f'id_feature {{ feature_name: "{name}" expression: "{side}:{name}" embedding_dim: {dim} {more} }}'


def raw(name, side="item", more=""):
    """A raw feature."""
    return f'raw_feature {{ feature_name: "{name}" expression: "{side}:{name}" {more} }}'


def group(name, features, kind="DEEP", more=""):
    """A feature group."""
    names = "".join(f'feature_names: "{feature}" ' for feature in features)
    return f'feature_groups {{ group_name: "{name}" {names} group_type: {kind} {more} }}'


def mlp(name, *units, more=""):
    """Layers."""
    return f"{name} {{ hidden_units: [{', '.join(map(str, units))}] {more} }}"


BCE = "losses { binary_cross_entropy {} } metrics { auc {} }"
BUCKETS = "boundaries: [0.2, 0.5, 0.8] embedding_dim: 4"
SINGLE = [ids("user"), ids("item", "item"), ids("cate", "item", 'vocab_list: ["a", "b", "c"]'), raw("price")]
NAMES = ["user", "item", "cate", "price"]
CLICKS = """sequence_feature {
  sequence_name: "click_seq" sequence_length: 6 sequence_delim: "|"
  features { id_feature { feature_name: "item" expression: "item:item" num_buckets: 20 embedding_dim: 4
                          embedding_name: "item_emb" } }
  features { id_feature { feature_name: "cate" expression: "item:cate" vocab_list: ["a", "b", "c"] embedding_dim: 4 } }
  features { raw_feature { feature_name: "price" expression: "item:price" } }
  features { raw_feature { feature_name: "age" expression: "item:age" boundaries: [0.3, 0.6] embedding_dim: 4 } }
}"""
CLICK_IDS = """sequence_feature {
  sequence_name: "click_seq" sequence_length: 6 sequence_delim: "|"
  features { id_feature { feature_name: "item" expression: "item:item" num_buckets: 20 embedding_dim: 4 } }
  features { id_feature { feature_name: "cate" expression: "item:cate" vocab_list: ["a", "b", "c"] embedding_dim: 4 } }
}"""
BOUGHT = [
    'sequence_id_feature { feature_name: "buy_users" sequence_length: 5 sequence_delim: "|" expression: "item:buy_users" hash_bucket_size: 30 embedding_dim: 4 value_dim: 0 }',
    'sequence_raw_feature { feature_name: "buy_raws" sequence_length: 5 sequence_delim: "|" expression: "item:buy_raws" }',
]
QUERY = ["item", "cate", "price"]
CLICK_NAMES = ["click_seq__item", "click_seq__cate", "click_seq__price"]
AGED = [
    ids("item", "item", 'num_buckets: 20 embedding_name: "item_emb"'),
    *SINGLE[:1],
    *SINGLE[2:],
    raw("age", more=BUCKETS),
]
DIN_GROUPS = group("deep", NAMES) + group("seq", [*QUERY, "age", *CLICK_NAMES, "click_seq__age"], "SEQUENCE")
DIN = f"""multi_tower_din {{ towers {{ input: "deep" {mlp("mlp", 8)} }}
  din_towers {{ input: "seq" {mlp("attn_mlp", 8, 4)} }} {mlp("final", 4)} }} {BCE}"""


def tower(name, label, more="", loss="binary_cross_entropy {}", metric="auc {}"):
    """A task tower."""
    return f"""task_towers {{ tower_name: "{name}" label_name: "{label}" {mlp("mlp", 4)} losses {{ {loss} }}
      metrics {{ {metric} }} {more} }}"""


TASKS = tower("ctr", "clk") + tower("cvr", "buy", 'task_space_indicator_label: "clk" out_task_space_weight: 0')
BOTH = '["clk", "buy"]'
HISTORY = """sequence_groups { group_name: "clicks" feature_names: ["item", "cate", "price", "click_seq__item",
    "click_seq__cate", "click_seq__price"] }"""
ENCODERS = f"""sequence_encoders {{ din_encoder {{ input: "clicks" {mlp("attn_mlp", 8)} }} }}
  sequence_encoders {{ pooling_encoder {{ input: "clicks" }} }}"""
SEQUENCES = [ids("user"), ids("item", "item", 'num_buckets: 20 embedding_name: "item_emb"'), *SINGLE[2:], CLICKS]
ALL_WITH_HISTORY = group("all", NAMES, more=HISTORY + ENCODERS)
EXPERTS = f"{mlp('expert_mlp', 8)} num_expert: 2"
RELATED = f"""{tower("ctr", "clk")} {tower("cvr", "buy", 'relation_tower_names: "ctr" ' + mlp("relation_mlp", 4))}"""
PLE = f"""ple {{
  extraction_networks {{ network_name: "one" expert_num_per_task: 1 share_num: 1 {mlp("task_expert_net", 8)}
                        {mlp("share_expert_net", 8)} }}
  extraction_networks {{ network_name: "two" expert_num_per_task: 1 share_num: 1 {mlp("task_expert_net", 4)}
                        {mlp("share_expert_net", 4)} }} {TASKS} }}"""
USER_ITEM = group("user", ["user"]) + group("item", ["item", "cate", "price"])
WITH_POOLED = group(
    "user",
    ["user"],
    more="""sequence_groups { group_name: "click_seq" feature_names: ["click_seq__item", "click_seq__cate"] }
            sequence_encoders { pooling_encoder { input: "click_seq" pooling_type: "mean" } }""",
) + group("item", ["item", "cate", "price"])
RECALL = "losses { softmax_cross_entropy {} } metrics { recall_at_k { top_k: 1 } } metrics { recall_at_k { top_k: 5 } }"
TOWERS = f'user_tower {{ input: "user" {mlp("mlp", 8)} }} item_tower {{ input: "item" {mlp("mlp", 8)} }}'
SAMPLER = """negative_sampler { input_path: "" num_sample: 4 num_eval_sample: 6 attr_fields: ["item", "cate", "price"]
  item_id_field: "item" attr_delimiter: "," }"""
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
SGD = "sgd_optimizer { lr: 0.01 } constant_learning_rate {}"
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
ROCKET = f"""rocket_launching {{ {mlp("share_mlp", 8)} {mlp("booster_mlp", 8, 4)} {mlp("light_mlp", 4)}
  feature_based_distillation: true feature_distillation_function: COSINE }} {BCE}"""
PEP_FEATURES = [*SINGLE, ids("page", "context"), ids("author", "item")]
PEP_GROUPS = group("all", NAMES) + group("domain", ["page"]) + group("uia", ["user", "item", "author"])
PEPNET = f"pepnet {{ epnet_hidden_unit: 4 ppnet_hidden_units: [8, 4] ppnet_dropout_ratio: 0.1 {TASKS}"
TDM_FEATURES = [ids("user"), ids("node", "item"), SINGLE[2], CLICK_IDS]
TDM = f"""tdm {{ multiwindow_din {{ windows_len: [1, 2, 3] {mlp("attn_mlp", 4, more='activation: "nn.PReLU"')} }}
  {mlp("final", 8, more="use_bn: true")} }} num_class: 2 losses {{ softmax_cross_entropy {{}} }} metrics {{ auc {{}} }}"""
BY_USER = """user_input_path: "users.parquet" item_input_path: "" num_sample: 4 attr_fields: ["item", "cate", "price"]
  item_id_field: "item" user_id_field: "user" attr_delimiter: ",\""""
COMPUTED = [
    'lookup_feature { feature_name: "l1" map: "user:map_1" key: "item:k1" }',
    'lookup_feature { feature_name: "l2" map: "user:map_1" key: "item:k1" hash_bucket_size: 30 embedding_dim: 4 need_key: true }',
    'lookup_feature { feature_name: "l3" map: "user:map_1" key: "feature:bucket" num_buckets: 30 embedding_dim: 4 }',
    'lookup_feature { feature_name: "l4" map: "user:map_1" key: "const:3" combiner: "max" embedding_dim: 4 mlp {} }',
    raw("bucket", "user", BUCKETS),
    'match_feature { feature_name: "m1" nested_map: "user:nested" pkey: "item:k1" skey: "item:k2" }',
    'match_feature { feature_name: "m2" nested_map: "user:nested" pkey: "item:k1" skey: "ALL" hash_bucket_size: 30 embedding_dim: 4 }',
    'expr_feature { feature_name: "e1" expression: "k1 + k2" variables: ["item:k1", "item:k2"] }',
    'overlap_feature { feature_name: "o1" query: "user:q" title: "item:t" method: "query_common_ratio" }',
    'kv_dot_product { feature_name: "d1" query: "user:kv" document: "item:kd" }',
    """custom_feature { feature_name: "c1" operator_name: "EditDistance" operator_lib_file: "libedit.so"
      expression: ["user:first", "item:second"] operator_params { fields { key: "encoding" value { string_value: "utf-8" } } }
      embedding_dim: 4 autodis { num_channels: 3 } }""",
]
COMBINED = [
    'combine_feature { feature_name: "b1" expression: "user:tags" value_map { key: "w1" value: 0.5 } value_map { key: "w2" value: 2 } combiner: "max" }',
    'combine_feature { feature_name: "b2" expression: "item:k1" num_buckets: 9 embedding_dim: 4 }',
    'combine_feature { feature_name: "b3" expression: "item:k2" boundaries: [2, 5] embedding_dim: 4 combiner: "mean" }',
    'bool_mask_feature { feature_name: "b4" expression: ["user:seen", "user:valid"] hash_bucket_size: 30 embedding_dim: 4 }',
    'expr_feature { feature_name: "b5" expression: "dot(v1, v2)" variables: ["user:v1", "item:v2"] fill_missing: 0 }',
]
COMBINED_NAMES = ["b1", "b2", "b3", "b4", "b5"]
COMPUTED_NAMES = ["l1", "l2", "l3", "l4", "m1", "m2", "e1", "o1", "d1", "c1"]
DCN = f"dcn_v2 {{ cross {{}} {mlp('deep', 8)} {mlp('final', 4)} }} {BCE}"
FAMILY: dict[str, str] = {
    # Models over single features.
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
    # Several tasks.
    "simple_multi_task": config(
        "simple", SINGLE, f"{group('all', NAMES)} simple_multi_task {{ {TASKS} }}", labels=BOTH
    ),
    "mmoe": config(
        "mmoe",
        SINGLE,
        f"{group('all', NAMES)} mmoe {{ {EXPERTS} {mlp('gate_mlp', 4)} {TASKS} }}",
        labels=BOTH,
        path=TABLE,
    ),
    "mmoe_weights": config(
        "mmoe",
        SINGLE,
        f"""{group("all", NAMES)} mmoe {{ {EXPERTS} {tower("ctr", "clk", 'sample_weight_name: "w"')} {tower("cvr", "buy")} }}""",
        labels=BOTH,
        data='sample_weight_fields: "w"',
    ),
    "mmoe_pareto": config(
        "mmoe",
        SINGLE,
        f"""{group("all", NAMES)} use_pareto_loss_weight: true
        mmoe {{ {EXPERTS} {tower("ctr", "clk", "pareto_min_loss_weight: 0.2")} {tower("cvr", "buy")} }}""",
        labels=BOTH,
    ),
    "mmoe_sequence": config(
        "mmoe", SEQUENCES, f"{ALL_WITH_HISTORY} mmoe {{ {EXPERTS} {TASKS} }}", labels=BOTH, path=TABLE
    ),
    "dbmtl": config(
        "dbmtl",
        SINGLE,
        f"{group('all', NAMES)} dbmtl {{ {mlp('bottom_mlp', 8)} {EXPERTS} {RELATED} }}",
        labels=BOTH,
        path=TABLE,
    ),
    "dbmtl_jrc": config(
        "dbmtl",
        SINGLE,
        f"""{group("all", NAMES)} dbmtl {{ {mlp("bottom_mlp", 8)}
        {tower("ctr", "clk", "num_class: 2", 'jrc_loss { session_name: "user" }', 'grouped_auc { grouping_key: "user" }')}
        {tower("cvr", "buy")} }}""",
        labels=BOTH,
        path=TABLE,
    ),
    "dbmtl_sequence": config(
        "dbmtl", SEQUENCES, f"{ALL_WITH_HISTORY} dbmtl {{ {EXPERTS} {RELATED} }}", labels=BOTH, path=TABLE
    ),
    "dbmtl_focal": config(
        "dbmtl",
        SEQUENCES,
        f"""{ALL_WITH_HISTORY} dbmtl {{ {tower("ctr", "clk", loss="binary_focal_loss { gamma: 2 alpha: 0.5 }")} {tower("cvr", "buy")} }}""",
        labels=BOTH,
    ),
    "dbmtl_variational": config(
        "dbmtl",
        SEQUENCES,
        f"{ALL_WITH_HISTORY} variational_dropout {{ regularization_lambda: 0.01 }} dbmtl {{ {RELATED} }}",
        labels=BOTH,
    ),
    "dbmtl_mask": config(
        "dbmtl",
        SINGLE,
        f"""{group("all", NAMES)} dbmtl {{ mask_net {{ n_mask_blocks: 1 mask_block {{ hidden_dim: 4 aggregation_dim: 3 }} }} {RELATED} }}""",
        labels=BOTH,
    ),
    "ple": config("ple", SINGLE, f"{group('all', NAMES)} {PLE}", labels=BOTH, path=TABLE),
    "ple_sequence": config("ple", SEQUENCES, f"{ALL_WITH_HISTORY} {PLE}", labels=BOTH, path=TABLE),
    "pepnet": config("pepnet", PEP_FEATURES, f"{PEP_GROUPS} {PEPNET} }}", labels=BOTH, path=TABLE),
    "pepnet_domains": config(
        "pepnet",
        PEP_FEATURES,
        f'{PEP_GROUPS} {PEPNET} domain_input_name: "scene" task_domain_num: 2 }}',
        labels='["clk", "buy", "scene"]',
    ),
    # Histories in order.
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
    # Matching.
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
    # Features that are computed.
    "computed": config("computed", [*SINGLE, *COMPUTED], f"{group('all', [*NAMES, *COMPUTED_NAMES])} {DCN}"),
    "combined": config("combined", [*SINGLE, *COMBINED], f"{group('all', [*NAMES, *COMBINED_NAMES])} {DCN}"),
    "computed_table": config(
        "computed",
        [*SINGLE, *COMPUTED],
        f"{group('all', [*NAMES, *COMPUTED_NAMES])} {DCN}",
        path=TABLE,
        dataset="OdpsDataset",
    ),
    "computed_din": config(
        "din",
        [*AGED, CLICKS, *COMPUTED],
        f"{group('deep', [*NAMES, *COMPUTED_NAMES])} {group('seq', [*QUERY, 'age', *CLICK_NAMES, 'click_seq__age'], 'SEQUENCE')} {DIN}",
    ),
    "expression": config(
        "expression",
        [raw("price", more='normalizer: "method=expression,expr=log(x+3)"'), *SINGLE[:3]],
        f"{group('all', NAMES)} {DCN}",
    ),
    "embedded_numbers": config(
        "numbers",
        [
            *SINGLE,
            raw("r1", "user", "embedding_dim: 4 mlp {}"),
            raw("r2", "user", "embedding_dim: 4 autodis { num_channels: 3 }"),
        ],
        f"{group('all', [*NAMES, 'r1', 'r2'])} {DCN}",
    ),
    "vocabularies": config(
        "vocabularies",
        [
            *SINGLE,
            ids("v1", "item", 'vocab_list: ["a", "b", "c"] default_bucketize_value: 1'),
            ids("v2", "item", 'vocab_dict { key: "a" value: 2 } vocab_dict { key: "b" value: 3 }'),
            raw("several", "user", "value_dim: 3 " + BUCKETS),
        ],
        f"{group('all', [*NAMES, 'v1', 'v2', 'several'])} {DCN}",
    ),
    # Vocabularies that grow.
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
}
REFUSED: dict[str, tuple[str, list[str]]] = {
    "dlrm_hstu": (config("hstu", SINGLE, f"{USER_ITEM} dlrm_hstu {{ max_seq_len: 8 }}"), ["model_config.dlrm_hstu"]),
    "ultra_hstu": (config("hstu", SINGLE, f"{USER_ITEM} ultra_hstu {{ max_seq_len: 8 }}"), ["model_config.ultra_hstu"]),
    "hstu_match": (
        config("hstu", SINGLE, f"{USER_ITEM} hstu_match {{ output_dim: 4 }} {RECALL}", data="sample_mask_prob: 0.1"),
        ["data_config.sample_mask_prob", "model_config.hstu_match"],
    ),
    "sid_rqvae": (
        config("sid", SINGLE, f"{group('deep', NAMES)} sid_rqvae {{}} losses {{ recon_loss {{}} }}"),
        ["model_config.sid_rqvae", "model_config.losses.recon_loss"],
    ),
    "sid_rqkmeans": (config("sid", SINGLE, f"{group('deep', NAMES)} sid_rqkmeans {{}}"), ["model_config.sid_rqkmeans"]),
    "dc2vr": (config("dc2vr", SINGLE, f"{group('all', NAMES)} dc2vr {{}}", labels=BOTH), ["model_config.dc2vr"]),
    "computed_in_sequences": (
        config(
            "mask",
            [
                *SINGLE,
                "sequence_bool_mask_feature { feature_name: 'b' }",
                CLICK_IDS.replace("id_feature {", "combine_feature {", 1),
            ],
            f"{DIN_GROUPS} {DIN}",
        ),
        [
            "feature_configs.sequence_bool_mask_feature",
            "feature_configs.sequence_feature.features.combine_feature",
        ],
    ),
    "masked": (
        config(
            "masked",
            [raw("price", more="use_mask: true"), *SINGLE[:3]],
            f"{DIN_GROUPS} {DIN}",
            data="batch_cost_size: 3",
        ),
        ["data_config.batch_cost_size", "feature_configs.raw_feature.use_mask"],
    ),
}
