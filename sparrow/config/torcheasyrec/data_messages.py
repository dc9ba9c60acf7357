"""The messages about data, features and models: the supported fields, with their defaults, and the refused ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrow.config.torcheasyrec.fields import (
    Fields,
    FieldSpec,
    enum,
    flag,
    integer,
    many,
    message,
    needed,
    number,
    refused,
    string,
)

_COLUMN_TYPES: Final = ("INT32", "INT64", "STRING", "FLOAT", "DOUBLE")

ENUMS: Final[Mapping[str, tuple[str, ...]]] = {
    "DatasetType": ("OdpsDataset", "ParquetDataset", "CsvDataset", "OdpsDatasetV1", "KafkaDataset"),
    "FgMode": ("FG_NONE", "FG_NORMAL", "FG_DAG", "FG_BUCKETIZE"),
    "FieldType": (
        *_COLUMN_TYPES,
        *(f"ARRAY_{kind}" for kind in _COLUMN_TYPES),
        *(f"ARRAY_ARRAY_{kind}" for kind in _COLUMN_TYPES),
        *(f"MAP_{key}_{kind}" for key in ("STRING", "INT64", "INT32") for kind in ("INT32", "INT64")),
        *(f"MAP_{key}_{kind}" for key in ("STRING", "INT64", "INT32") for kind in ("STRING", "FLOAT", "DOUBLE")),
    ),
    "FeatureGroupType": ("DEEP", "WIDE", "SEQUENCE", "JAGGED_SEQUENCE"),
    "Similarity": ("COSINE", "INNER_PRODUCT", "EUCLID"),
    "Kernel": ("TRITON", "PYTORCH", "CUTLASS"),
}

_ODPS: Final = "MaxCompute tables are not read; export them to Parquet and remove it"
_SAMPLER: Final = "the only sampler is negative_sampler; use it, or in_batch_negative in the model"
_MASK: Final = "masking of samples is not supported; remove it"

PIPELINE: Final[Mapping[str, Fields]] = {
    "EasyRecConfig": {
        "train_input_path": needed(string()),
        "eval_input_path": string(),
        "model_dir": string(),
        "train_config": needed(message("TrainConfig")),
        "eval_config": message("EvalConfig"),
        "export_config": refused("how a model is exported is not part of a config; remove it"),
        "data_config": needed(message("DataConfig")),
        "feature_configs": needed(many(message("FeatureConfig"))),
        "model_config": needed(message("ModelConfig")),
    },
    "DataConfig": {
        "batch_size": integer(1024),
        "eval_batch_size": integer(),
        "dataset_type": needed(enum("DatasetType")),
        "fg_mode": enum("FgMode", "FG_NONE"),
        "fg_encoded": refused("use fg_mode instead"),
        "fg_encoded_multival_sep": string("\x03"),
        "label_fields": needed(many(string())),
        "sample_weight_fields": many(string()),
        "input_fields": many(message("Field")),
        "input_fields_str": string(),
        "delimiter": string(","),
        "with_header": flag(False),
        "drop_remainder": flag(False),
        "shuffle": flag(False),
        "shuffle_buffer_size": integer(32),
        # Options of speed and threads: accepted, without effect on any number.
        "num_workers": integer(8),
        "pin_memory": flag(True),
        "fg_threads": integer(1),
        "in_order": flag(True),
        "is_orderby_partition": refused(_ODPS),
        "odps_data_quota_name": refused(_ODPS),
        "odps_data_compression": refused(_ODPS),
        "sample_mask_prob": refused(_MASK),
        "negative_sample_mask_prob": refused(_MASK),
        "force_base_data_group": refused("it is about several GPUs; remove it"),
        "sample_cost_field": refused("batches of equal cost are not supported; remove it"),
        "batch_cost_size": refused("batches of equal cost are not supported; remove it"),
        "negative_sampler": message("NegativeSampler"),
        "negative_sampler_v2": refused(_SAMPLER),
        "hard_negative_sampler": refused(_SAMPLER),
        "hard_negative_sampler_v2": refused(_SAMPLER),
        "tdm_sampler": refused(_SAMPLER),
    },
    "NegativeSampler": {
        "input_path": needed(string()),
        "num_sample": needed(integer()),
        "attr_fields": many(string()),
        "item_id_field": needed(string()),
        "attr_delimiter": string(":"),
        "num_eval_sample": integer(),
        "field_delimiter": string(),
        "item_id_delim": refused("an example chooses one item; remove it"),
    },
    "Field": {"input_name": needed(string()), "input_type": enum("FieldType")},
}

_MANAGED: Final = "crossed values are hashed; use hash_bucket_size"
_GENERATOR: Final = "it is part of TorchEasyRec's own feature generator; remove it"
_OTHER_KIND: Final = "only id, raw, combo and sequence features are; make its values a column, and read that"

_FEATURE: Fields = {
    "feature_name": needed(string()),
    "embedding_name": string(),
    "embedding_dim": integer(),
    "pooling": string("sum"),
    "trainable": flag(True),
    "fg_encoded_default_value": string(),
    "init_fn": string(),
    "use_mask": refused("masking of features is not supported; remove it"),
    "stub_type": refused(_GENERATOR),
    "data_type": string("FP32"),
    "embedding_constraints": refused("Sparrow places the tables; remove it"),
    "sequence_fields": refused(_GENERATOR),
}
_IDS: Fields = {
    **_FEATURE,
    "hash_bucket_size": integer(),
    "value_dim": integer(),
    "default_value": string(""),
    "separator": string("\x1d"),
    "vocab_dict": refused("write vocab_list or vocab_file"),
    "zch": message("ZeroCollisionHash", "vocabulary"),
    "dynamicemb": message("DynamicEmbedding", "vocabulary"),
    "default_bucketize_value": refused("unknown ids have the last row of a vocabulary's table; remove it"),
    "asset_dir": refused(_GENERATOR),
}
_ONE_SEQUENCE: Fields = {"sequence_length": integer(), "sequence_delim": string(";")}
_FEATURE_KINDS: Fields = {
    "id_feature": message("IdFeature", "feature"),
    "raw_feature": message("RawFeature", "feature"),
    "combo_feature": message("ComboFeature", "feature"),
    **{
        f"{kind}_feature": refused(_OTHER_KIND)
        for kind in ("lookup", "match", "expr", "overlap", "tokenize", "custom", "bool_mask", "combine")
    },
    "kv_dot_product": refused(_OTHER_KIND),
}

FEATURES: Final[Mapping[str, Fields]] = {
    "FeatureConfig": {
        **_FEATURE_KINDS,
        "sequence_feature": message("SequenceFeature", "feature"),
        "sequence_id_feature": message("IdFeature", "feature"),
        **{
            f"sequence_{kind}": refused(_OTHER_KIND)
            for kind in (*_FEATURE_KINDS, "raw_feature", "combo_feature")
            if kind != "id_feature"
        },
    },
    "SeqFeatureConfig": {
        **_FEATURE_KINDS,
        "raw_feature": refused(_OTHER_KIND),
        "combo_feature": refused(_OTHER_KIND),
    },
    "SequenceFeature": {
        "sequence_name": needed(string()),
        "sequence_length": needed(integer()),
        "sequence_delim": string(";"),
        "sequence_pk": refused(_GENERATOR),
        "features": needed(many(message("SeqFeatureConfig"))),
    },
    "ZeroCollisionHash": {
        "zch_size": needed(integer()),
        "eviction_interval": integer(5),
        "lfu": message("EvictionPolicy", "policy"),
        "lru": message("EvictionPolicy", "policy"),
        "distance_lfu": message("EvictionPolicy", "policy"),
        "threshold_filtering_func": refused("ids are admitted by count or chance; remove it"),
    },
    "EvictionPolicy": {"decay_exponent": number(1.0)},
    "DynamicEmbedding": {
        "initializer_args": message("DynamicEmbInitializerArgs"),
        "eval_initializer_args": message("DynamicEmbInitializerArgs"),
        "score_strategy": string("STEP"),
        "max_capacity": needed(integer()),
        "cache_load_factor": refused("tables stay on the device; remove it"),
        "init_capacity_per_rank": integer(),
        "init_table": refused("start from a checkpoint instead, with train.start_from"),
        "frequency_admission_strategy": message("FrequencyAdmission"),
    },
    "DynamicEmbInitializerArgs": {
        "mode": string("UNIFORM"),
        "mean": number(0.0),
        "std_dev": number(),
        "lower": number(),
        "upper": number(),
        "value": number(0.0),
    },
    "FrequencyAdmission": {
        "threshold": needed(integer()),
        "initializer_args": message("DynamicEmbInitializerArgs"),
        "counter_capacity": integer(),
        "counter_bucket_capacity": integer(1024),
    },
    "IdFeature": {
        **_IDS,
        **_ONE_SEQUENCE,
        "embedding_dim": needed(integer()),
        "expression": string(),
        "num_buckets": integer(),
        "vocab_list": many(string()),
        "vocab_file": string(),
        "weighted": flag(False),
        "fg_value_type": refused(_GENERATOR),
    },
    "RawFeature": {
        **_FEATURE,
        "expression": string(),
        "boundaries": many(number()),
        "value_dim": integer(1),
        "normalizer": string(),
        "default_value": string("0"),
        "separator": string("\x1d"),
        "autodis": refused("embeddings of numbers are made with boundaries"),
        "mlp": refused("embeddings of numbers are made with boundaries"),
        "sequence_length": refused(_OTHER_KIND),
        "sequence_delim": refused(_OTHER_KIND),
    },
    "ComboFeature": {
        **_IDS,
        "expression": needed(many(string())),
        "hash_bucket_size": needed(integer()),
        "embedding_dim": needed(integer()),
        "zch": refused(_MANAGED),
        "dynamicemb": refused(_MANAGED),
        "vocab_list": refused("crossed values are hashed; use hash_bucket_size"),
        "vocab_file": refused("crossed values are hashed; use hash_bucket_size"),
        "sequence_length": refused(_OTHER_KIND),
        "sequence_delim": refused(_OTHER_KIND),
    },
}

_OTHER_MODELS: Final = (
    *("multi_tower_din", "mask_net", "dcn_v1", "dcn_v2", "xdeepfm", "wukong", "simple_multi_task", "dbmtl", "ple"),
    *("dc2vr", "dlrm_hstu", "pepnet", "ultra_hstu", "dssm_v2", "dat", "hstu_match", "mind", "tdm"),
    *("rocket_launching", "sid_rqvae", "sid_rqkmeans"),
)
_ENCODER: Final = "the only sequence encoder is pooling_encoder"


def _wide_model() -> dict[str, FieldSpec]:
    return {
        "deep": needed(message("MLP")),
        "final": message("MLP"),
        "wide_embedding_dim": integer(4),
        "wide_init_fn": string(),
    }


MODELS: Final[Mapping[str, Fields]] = {
    "ModelConfig": {
        "feature_groups": needed(many(message("FeatureGroupConfig"))),
        "dlrm": message("DLRM", "model"),
        "deepfm": message("DeepFM", "model"),
        "multi_tower": message("MultiTower", "model"),
        "wide_and_deep": message("WideAndDeep", "model"),
        "mmoe": message("MMoE", "model"),
        "dssm": message("DSSM", "model"),
        **{
            name: refused("the models are deepfm, dlrm, dssm, mmoe, multi_tower and wide_and_deep")
            for name in _OTHER_MODELS
        },
        "num_class": integer(1),
        "losses": many(message("LossConfig")),
        "metrics": many(message("MetricConfig")),
        "train_metrics": many(message("TrainMetricConfig")),
        "variational_dropout": refused("selection of features is not supported; remove it"),
        "kernel": enum("Kernel", "PYTORCH"),  # affects speed only
        "use_pareto_loss_weight": refused("give each task a weight"),
    },
    "FeatureGroupConfig": {
        "group_name": needed(string()),
        "feature_names": many(string()),
        "group_type": enum("FeatureGroupType", "DEEP"),
        "sequence_groups": many(message("SeqGroupConfig")),
        "sequence_encoders": many(message("SeqEncoderConfig")),
        "embedding_name_suffix": refused("give the features an embedding_name"),
    },
    "SeqGroupConfig": {
        "group_name": needed(string()),
        "feature_names": needed(many(string())),
        "embedding_name_suffix": refused("give the features an embedding_name"),
    },
    "SeqEncoderConfig": {
        "pooling_encoder": message("PoolingEncoder", "seq_module"),
        "din_encoder": refused(_ENCODER),
        "simple_attention": refused(_ENCODER),
        "multi_window_din_encoder": refused(_ENCODER),
        "self_attention_encoder": refused(_ENCODER),
    },
    "PoolingEncoder": {
        "name": string(),
        "input": needed(string()),
        "pooling_type": string("mean"),
        "max_seq_length": refused("it is sequence_length of the feature; remove it"),
    },
    "MLP": {
        "hidden_units": needed(many(integer())),
        "dropout_ratio": many(number()),
        "activation": string("nn.ReLU"),
        "use_bn": flag(False),
        "bias": flag(True),
        "use_ln": flag(False),
    },
    "Tower": {"input": needed(string()), "mlp": message("MLP")},
    "DeepFM": _wide_model(),
    "WideAndDeep": _wide_model(),
    "DLRM": {"dense_mlp": message("MLP"), "arch_with_sparse": flag(True), "final": needed(message("MLP"))},
    "MultiTower": {"towers": needed(many(message("Tower"))), "final": needed(message("MLP"))},
    "MMoE": {
        "expert_mlp": needed(message("MLP")),
        "gate_mlp": message("MLP"),
        "num_expert": integer(3),
        "task_towers": needed(many(message("TaskTower"))),
    },
    "TaskTower": {
        "tower_name": needed(string()),
        "label_name": needed(string()),
        "metrics": many(message("MetricConfig")),
        "train_metrics": many(message("TrainMetricConfig")),
        "losses": many(message("LossConfig")),
        "num_class": integer(1),
        "mlp": message("MLP"),
        "weight": number(1.0),
        "sample_weight_name": string(),
        "task_space_indicator_label": string(),
        "in_task_space_weight": number(1.0),
        "out_task_space_weight": number(1.0),
        "pareto_min_loss_weight": refused("give each task a weight"),
    },
    "DSSM": {
        "user_tower": needed(message("Tower")),
        "item_tower": needed(message("Tower")),
        "output_dim": needed(integer()),
        "similarity": enum("Similarity", "INNER_PRODUCT"),
        "temperature": number(1.0),
        "in_batch_negative": flag(False),
    },
}
