# ruff: noqa: E501  configs read best in one line for each part
"""HSTU: requests with several candidates, one or two histories, and two towers."""

from __future__ import annotations

from tests.config.family.parts import RECALL, config, group, ids, mlp, raw

VIDEO = 'id_feature { feature_name: "video" expression: "item:video" num_buckets: 20 embedding_dim: 4 embedding_name: "video_emb" }'


def sequence(name, *features):
    """A sequence_feature."""
    members = "".join(f"features {{ {feature} }} " for feature in features)
    return f'sequence_feature {{ sequence_name: "{name}" sequence_length: 6 sequence_delim: "|" {members} }}'


def history(name):
    """A history with actions, watch times and times."""
    return sequence(name, VIDEO, *(raw(each, "user") for each in ("action_time", "action", "watch_time")))


def history_groups(name, of):
    """The groups of a history."""
    parts = {
        name: "video",
        f"{name}_action": "action",
        f"{name}_watchtime": "watch_time",
        f"{name}_timestamp": "action_time",
    }
    return "".join(group(own, [f"{of}__{feature}"], "JAGGED_SEQUENCE") for own, feature in parts.items())


CANDIDATES = sequence("cand_seq", VIDEO, raw("query_time", "context"), raw("price"))
CANDIDATE_GROUPS = group("candidate", ["cand_seq__video"], "JAGGED_SEQUENCE") + group(
    "candidate_timestamp", ["cand_seq__query_time"], "JAGGED_SEQUENCE"
)
PRICED = group("candidate", ["cand_seq__video", "cand_seq__price"], "JAGGED_SEQUENCE") + group(
    "candidate_timestamp", ["cand_seq__query_time"], "JAGGED_SEQUENCE"
)
CONTEXT = [ids("user_id"), ids("active")]
CONTEXTUAL = group("contextual", ["user_id", "active"])
STU = "stu { embedding_dim: 8 num_heads: 2 hidden_dim: 4 attention_dim: 4 output_dropout_ratio: 0.1 use_group_norm: true %s }"
TIMES = "positional_encoder { num_position_buckets: 32 num_time_buckets: 16 use_time_encoding: true }"
PLACES = "positional_encoder { num_position_buckets: 8 }"
ACTIONS = "action_encoder { simple_action_encoder { action_embedding_dim: 2 action_weights: [1, 2, 4] %s } } action_mlp { simple_mlp { hidden_dim: 8 } }"
WATCHED = "watchtime_to_action_thresholds: [1] watchtime_to_action_weights: [8]"
CONTENT = "content_encoder { %s } content_mlp { simple_mlp { hidden_dim: 8 } }"
PERIODS = "timestamp_layernorm_postprocessor { time_duration_period_units: [3600, 86400] time_duration_units_per_period: [24, 7] }"


def hstu(preprocessor, post, places=TIMES, stu="", more=""):
    """The message hstu."""
    return f"""hstu {{ {STU % stu} input_dropout_ratio: 0.2 attn_num_layers: 2 {places}
      input_preprocessor {{ {preprocessor} }} output_postprocessor {{ {post} }} {more} }}"""


def task(name, label, loss="binary_cross_entropy {}", metric="auc {}", more=""):
    """A task of a fusion_mtl_tower."""
    return f'task_configs {{ task_name: "{name}" label_name: "{label}" losses {{ {loss} }} metrics {{ {metric} }} {more} }}'


ACTION, WATCH = "cand_seq__action", "cand_seq__watch_time"
TOWER = f"""fusion_mtl_tower {{ {mlp("mlp", 8, more='activation: "nn.SiLU" use_ln: true')}
  {task("is_click", ACTION, more="task_bitmask: 1")}
  {task("is_like", ACTION, 'jrc_loss { session_name: "user_id" }', 'grouped_auc { grouping_key: "user_id" }', "task_bitmask: 2 num_class: 2")}
  {task("watchtime", WATCH, "l2_loss {}", "mean_absolute_error {}", "weight: 0.5")} }}"""
LABELS = f'["{ACTION}", "{WATCH}"]'
CONTEXTUAL_ONE = f"contextual_preprocessor {{ {ACTIONS % ''} {CONTENT % 'slice_content_encoder {}'} }}"
PADDED = f"contextual_interleave_preprocessor {{ {ACTIONS % WATCHED} {CONTENT % 'pad_content_encoder {}'} enable_interleaving: false }}"
BY_LAYERS = f"contextual_preprocessor {{ {CONTENT % ('mlp_content_encoder { ' + mlp('uih_mlp', 4) + mlp('target_mlp', 4) + ' }')} }}"


def ranker(kind, channels, more=""):
    """A ranker."""
    return f"{kind} {{ {channels} {TOWER} max_seq_len: 12 item_embedding_hidden_dim: 8 {more} }} kernel: TRITON"


SAMPLER = """negative_sampler { input_path: "" num_sample: 8 attr_fields: "video" item_id_field: "cand_seq__video" }"""
CONFIGS: dict[str, str] = {
    "dlrm_hstu": config(
        "dlrm_hstu",
        [history("uih_seq"), CANDIDATES, *CONTEXT],
        CONTEXTUAL
        + history_groups("uih", "uih_seq")
        + CANDIDATE_GROUPS
        + ranker("dlrm_hstu", hstu(CONTEXTUAL_ONE, PERIODS)),
        labels=LABELS,
    ),
    "dlrm_hstu_padded": config(
        "dlrm_hstu_padded",
        [history("uih_seq"), CANDIDATES, *CONTEXT],
        CONTEXTUAL
        + history_groups("uih", "uih_seq")
        + PRICED
        + ranker(
            "dlrm_hstu",
            hstu(PADDED, "layernorm_postprocessor {}"),
            "concat_contextual_features: true enable_global_average_loss: false",
        ),
        labels=LABELS,
    ),
    "dlrm_hstu_untimed": config(
        "dlrm_hstu_untimed",
        [history("uih_seq"), CANDIDATES, *CONTEXT],
        CONTEXTUAL
        + history_groups("uih", "uih_seq")
        + PRICED
        + ranker("dlrm_hstu", hstu(BY_LAYERS, "l2norm_postprocessor {}", PLACES, "max_attn_len: 4 attn_alpha: 0.5")),
        labels=LABELS,
    ),
    "ultra_hstu": config(
        "ultra_hstu",
        [history("click_seq"), history("view_seq"), CANDIDATES, *CONTEXT],
        CONTEXTUAL
        + history_groups("uih_click", "click_seq")
        + history_groups("uih_view", "view_seq")
        + CANDIDATE_GROUPS
        + ranker(
            "ultra_hstu",
            hstu(
                CONTEXTUAL_ONE,
                PERIODS,
                stu="sla_k1: 2 sla_k2: 1",
                more='name: "uih_click" attn_truncation_split_layer: 1 attn_truncation_tail_len: 3',
            )
            + hstu(CONTEXTUAL_ONE, PERIODS, more='name: "uih_view"'),
        ),
        labels=LABELS,
    ),
    "hstu_match": config(
        "hstu_match",
        [history("uih_seq"), sequence("cand_seq", VIDEO), *CONTEXT, raw("request_time", "user")],
        CONTEXTUAL
        + history_groups("uih", "uih_seq")
        + group("candidate", ["cand_seq__video"], "JAGGED_SEQUENCE")
        + group("query_time", ["request_time"])
        + f"""hstu_match {{ user_tower {{ input: "uih" max_seq_len: 6
            {hstu(f"uih_preprocessor {{ {ACTIONS % ''} }}", "l2norm_postprocessor {}")} }}
          item_tower {{ input: "candidate" {mlp("mlp", 8, more='activation: ""')} }} similarity: COSINE temperature: 0.05 }} {RECALL}""",
        labels=LABELS,
        data=SAMPLER,
    ),
}
