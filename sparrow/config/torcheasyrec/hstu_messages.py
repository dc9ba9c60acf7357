"""The messages about HSTU: the supported fields, with their defaults, and the refused ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrow.config.torcheasyrec.fields import (
    Fields,
    enum,
    fixed,
    flag,
    harmless,
    integer,
    many,
    message,
    needed,
    number,
    refused,
    signed,
    string,
)

_MEMORY: Final = "XLA chooses what is computed again"
_OLDEST: Final = "histories are read the oldest element first; write the sequences so, and remove it"
INTERLEAVED: Final = "actions are added to their elements; set enable_interleaving: false"
_RANKER: Fields = {
    "fusion_mtl_tower": needed(message("FusionMTLTower")),
    "max_seq_len": needed(integer()),
    "item_embedding_hidden_dim": integer(512),
    "enable_global_average_loss": harmless(flag(True), "the mean is over all candidates of a batch, on all devices"),
    "sequence_timestamp_is_ascending": fixed(flag(True), _OLDEST),
    "concat_contextual_features": flag(False),
}
_PREPROCESSOR: Fields = {
    "action_encoder": message("GRActionEncoder"),
    "action_mlp": message("GRContextualizedMLP"),
}
_WITH_CANDIDATES: Fields = {
    **_PREPROCESSOR,
    "content_encoder": needed(message("GRContentEncoder")),
    "content_mlp": needed(message("GRContextualizedMLP")),
}

HSTU: Final[Mapping[str, Fields]] = {
    "DlrmHSTU": {"hstu": needed(message("HSTU")), **_RANKER},
    "UltraHSTU": {"hstu": needed(many(message("HSTU"))), **_RANKER},
    "HSTUMatch": {
        "user_tower": needed(message("HSTUUserTower")),
        "item_tower": needed(message("Tower")),
        "output_dim": integer(0),
        "similarity": enum("Similarity", "INNER_PRODUCT"),
        "temperature": number(1.0),
        "in_batch_negative": flag(False),
        "sequence_timestamp_is_ascending": fixed(flag(True), _OLDEST),
    },
    "HSTUUserTower": {
        "input": needed(string()),
        "hstu": needed(message("HSTU")),
        "max_seq_len": needed(integer()),
    },
    "FusionMTLTower": {"mlp": message("MLP"), "task_configs": needed(many(message("FusionSubTaskConfig")))},
    "FusionSubTaskConfig": {
        "task_name": needed(string()),
        "label_name": needed(string()),
        "task_bitmask": integer(),
        "losses": many(message("LossConfig")),
        "num_class": integer(1),
        "metrics": many(message("MetricConfig")),
        "weight": number(1.0),
        "train_metrics": many(message("TrainMetricConfig")),
    },
    "HSTU": {
        "stu": needed(message("STU")),
        "input_dropout_ratio": number(0.2),
        "attn_num_layers": integer(3),
        "positional_encoder": needed(message("GRPositionalEncoder")),
        "input_preprocessor": needed(message("GRInputPreprocessor")),
        "output_postprocessor": needed(message("GROutputPostprocessor")),
        "attn_truncation_split_layer": integer(0),
        "attn_truncation_tail_len": integer(0),
        "name": string(""),
    },
    "STU": {
        "embedding_dim": needed(integer()),
        "num_heads": needed(integer()),
        "hidden_dim": needed(integer()),
        "attention_dim": needed(integer()),
        "output_dropout_ratio": number(0.3),
        "max_attn_len": integer(0),
        "attn_alpha": number(0.0),
        "use_group_norm": flag(False),
        "recompute_normed_x": harmless(flag(True), _MEMORY),
        "recompute_uvqk": harmless(flag(True), _MEMORY),
        "recompute_y": harmless(flag(True), _MEMORY),
        "sort_by_length": harmless(flag(True), "it sets the order of work, not its result"),
        "contextual_seq_len": fixed(signed(-1), "it is the number of contextual tokens; remove it"),
        "sla_k1": integer(0),
        "sla_k2": integer(0),
        "scaling_seqlen": signed(-1),
    },
    "GRPositionalEncoder": {
        "num_position_buckets": needed(integer()),
        "num_time_buckets": integer(),
        "use_time_encoding": flag(False),
        "time_bucket_fn": string("sqrt"),
        "time_bucket_increments": number(60.0),
    },
    "GRInputPreprocessor": {
        "contextual_preprocessor": message("GRContextualPreprocessor", "input_preprocessor"),
        "contextual_interleave_preprocessor": message("GRContextualInterleavePreprocessor", "input_preprocessor"),
        "uih_preprocessor": message("GRUIHPreprocessor", "input_preprocessor"),
    },
    "GRContextualPreprocessor": _WITH_CANDIDATES,
    "GRContextualInterleavePreprocessor": {**_WITH_CANDIDATES, "enable_interleaving": flag(True)},
    "GRUIHPreprocessor": _PREPROCESSOR,
    "GRActionEncoder": {"simple_action_encoder": message("GRSimpleActionEncoder", "action_encoder")},
    "GRSimpleActionEncoder": {
        "action_embedding_dim": needed(integer()),
        "action_weights": needed(many(integer())),
        "watchtime_to_action_thresholds": many(integer()),
        "watchtime_to_action_weights": many(integer()),
        "embedding_init_std": harmless(number(0.1), "TorchEasyRec draws with 0.1 whatever it is, and so does Sparrow"),
    },
    "GRContextualizedMLP": {
        "simple_mlp": message("GRSimpleContextualizedMLP", "contextualized_mlp"),
        "parameterized_mlp": refused("layers do not depend on the context; use simple_mlp"),
    },
    "GRSimpleContextualizedMLP": {"hidden_dim": needed(integer())},
    "GRContentEncoder": {
        "slice_content_encoder": message("GRSliceContentEncoder", "content_encoder"),
        "pad_content_encoder": message("GRPadContentEncoder", "content_encoder"),
        "mlp_content_encoder": message("GRMLPContentEncoder", "content_encoder"),
    },
    "GRSliceContentEncoder": {},
    "GRPadContentEncoder": {},
    "GRMLPContentEncoder": {"uih_mlp": needed(message("MLP")), "target_mlp": needed(message("MLP"))},
    "GROutputPostprocessor": {
        "l2norm_postprocessor": message("GRL2NormPostprocessor", "output_postprocessor"),
        "layernorm_postprocessor": message("GRLayerNormPostprocessor", "output_postprocessor"),
        "timestamp_layernorm_postprocessor": message("GRTimestampLayerNormPostprocessor", "output_postprocessor"),
    },
    "GRL2NormPostprocessor": {},
    "GRLayerNormPostprocessor": {},
    "GRTimestampLayerNormPostprocessor": {
        "time_duration_period_units": needed(many(integer())),
        "time_duration_units_per_period": needed(many(integer())),
    },
}
