# ruff: noqa: E501  configs read best in one line for each part
"""Models of several tasks."""

from __future__ import annotations

from tests.config.family.parts import BOTH, NAMES, SEQUENCES, SINGLE, TABLE, config, group, ids, mlp, tower

TASKS = tower("ctr", "clk") + tower("cvr", "buy", 'task_space_indicator_label: "clk" out_task_space_weight: 0')
HISTORY = """sequence_groups { group_name: "clicks" feature_names: ["item", "cate", "price", "click_seq__item",
    "click_seq__cate", "click_seq__price"] }"""
ENCODERS = f"""sequence_encoders {{ din_encoder {{ input: "clicks" {mlp("attn_mlp", 8)} }} }}
  sequence_encoders {{ pooling_encoder {{ input: "clicks" }} }}"""
ALL_WITH_HISTORY = group("all", NAMES, more=HISTORY + ENCODERS)
EXPERTS = f"{mlp('expert_mlp', 8)} num_expert: 2"
RELATED = f"""{tower("ctr", "clk")} {tower("cvr", "buy", 'relation_tower_names: "ctr" ' + mlp("relation_mlp", 4))}"""
PLE = f"""ple {{
  extraction_networks {{ network_name: "one" expert_num_per_task: 1 share_num: 1 {mlp("task_expert_net", 8)}
                        {mlp("share_expert_net", 8)} }}
  extraction_networks {{ network_name: "two" expert_num_per_task: 1 share_num: 1 {mlp("task_expert_net", 4)}
                        {mlp("share_expert_net", 4)} }} {TASKS} }}"""
PEP_FEATURES = [*SINGLE, ids("page", "context"), ids("author", "item")]
PEP_GROUPS = group("all", NAMES) + group("domain", ["page"]) + group("uia", ["user", "item", "author"])
PEPNET = f"pepnet {{ epnet_hidden_unit: 4 ppnet_hidden_units: [8, 4] ppnet_dropout_ratio: 0.1 {TASKS}"
CONFIGS: dict[str, str] = {
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
}
