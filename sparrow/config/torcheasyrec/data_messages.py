"""The messages about data and features: the supported fields, with their defaults, and the refused ones."""

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
    "TextNormalizeOption": (
        *("TEXT_LOWER2UPPER", "TEXT_UPPER2LOWER", "TEXT_SBC2DBC", "TEXT_CHT2CHS", "TEXT_FILTER", "TEXT_SPLITCHRS"),
        "TEXT_REMOVE_SPACE",
    ),
}

_SAMPLED: Fields = {
    "attr_fields": many(string()),
    "item_id_field": needed(string()),
    "attr_delimiter": string(":"),
    "num_eval_sample": integer(0),
    "field_delimiter": string(),
}
_USERS: Fields = {
    "user_input_path": needed(string()),
    "item_input_path": needed(string()),
    "num_sample": needed(integer()),
    "user_id_field": needed(string()),
}
_HARD: Fields = {"hard_neg_edge_input_path": needed(string()), "num_hard_sample": integer()}

_ODPS: Final = "Parquet and CSV files are read instead of MaxCompute tables"
_THREADS: Final = "Sparrow chooses its own threads; data.threads sets them"
_MASK: Final = "masking of samples is not supported; remove it"
_COST: Final = "batches of equal cost are not supported; remove it"

PIPELINE: Final[Mapping[str, Fields]] = {
    "EasyRecConfig": {
        "train_input_path": string(""),
        "eval_input_path": string(""),
        "model_dir": string(),
        "train_config": needed(message("TrainConfig")),
        "eval_config": message("EvalConfig"),
        "export_config": message("ExportConfig"),
        "data_config": needed(message("DataConfig")),
        "feature_configs": needed(many(message("FeatureConfig"))),
        "model_config": needed(message("ModelConfig")),
    },
    "DataConfig": {
        "batch_size": integer(1024),
        "eval_batch_size": integer(),
        "dataset_type": enum("DatasetType", "OdpsDataset"),
        "fg_mode": enum("FgMode", "FG_NONE"),
        "fg_encoded": flag(),
        "fg_encoded_multival_sep": string("\x03"),
        "label_fields": many(string()),
        "sample_weight_fields": many(string()),
        "input_fields": many(message("Field")),
        "input_fields_str": string(),
        "delimiter": string(","),
        "with_header": flag(False),
        "drop_remainder": flag(False),
        "shuffle": flag(False),
        "shuffle_buffer_size": integer(32),
        "num_workers": harmless(integer(8), _THREADS),
        "pin_memory": harmless(flag(True), "batches go to the device in the background"),
        "fg_threads": harmless(integer(1), _THREADS),
        "in_order": harmless(flag(True), "batches always come in order"),
        "is_orderby_partition": harmless(flag(False), _ODPS),
        "odps_data_quota_name": harmless(string("pay-as-you-go"), _ODPS),
        "odps_data_compression": harmless(string("LZ4_FRAME"), _ODPS),
        "sample_mask_prob": fixed(number(0.0), _MASK),
        "negative_sample_mask_prob": fixed(number(0.0), _MASK),
        "force_base_data_group": harmless(flag(False), "every feature has the rows that it needs"),
        "sample_cost_field": refused(_COST),
        "batch_cost_size": refused(_COST),
        "negative_sampler": message("NegativeSampler", "sampler"),
        "negative_sampler_v2": message("NegativeSamplerV2", "sampler"),
        "hard_negative_sampler": message("HardNegativeSampler", "sampler"),
        "hard_negative_sampler_v2": message("HardNegativeSamplerV2", "sampler"),
        "tdm_sampler": message("TDMSampler", "sampler"),
    },
    "NegativeSampler": {
        **_SAMPLED,
        "input_path": needed(string()),
        "num_sample": needed(integer()),
        "item_id_delim": harmless(string(";"), "an example chooses one item"),
    },
    "NegativeSamplerV2": {**_SAMPLED, **_USERS, "pos_edge_input_path": needed(string())},
    "HardNegativeSampler": {**_SAMPLED, **_USERS, **_HARD},
    "HardNegativeSamplerV2": {**_SAMPLED, **_USERS, **_HARD, "pos_edge_input_path": needed(string())},
    "TDMSampler": {
        **_SAMPLED,
        "item_input_path": needed(string()),
        "edge_input_path": needed(string()),
        "predict_edge_input_path": needed(string()),
        "layer_num_sample": needed(many(integer())),
        "remain_ratio": number(1.0),
        "probability_type": string("UNIFORM"),
    },
    "Field": {
        "input_name": needed(string()),
        "input_type": harmless(enum("FieldType"), "the type of a column is the one in its file"),
    },
}

_MANAGED: Final = "crossed values are hashed; use hash_bucket_size"
_GENERATOR: Final = "it is part of TorchEasyRec's own feature generator; remove it"
_TYPES: Final = "values are read in the type of their column"
_PLACED: Final = "Sparrow places the tables by itself"

_FEATURE: Fields = {
    "feature_name": needed(string()),
    "embedding_name": string(),
    "embedding_dim": integer(),
    "pooling": string("sum"),
    "trainable": flag(True),
    "fg_encoded_default_value": string(),
    "init_fn": string(),
    "use_mask": fixed(flag(False), "masking of features is not supported; remove it"),
    "stub_type": flag(False),
    "data_type": string("FP32"),
    "embedding_constraints": harmless(message("ParameterConstraints"), _PLACED),
    "sequence_length": integer(),
    "sequence_delim": string(";"),
    "sequence_fields": many(string()),
}
_IDS: Fields = {
    **_FEATURE,
    "hash_bucket_size": integer(),
    "num_buckets": integer(),
    "value_dim": integer(),
    "default_value": string(""),
    "separator": string("\x1d"),
    "vocab_list": many(string()),
    "vocab_dict": many(message("VocabEntry")),
    "vocab_file": string(),
    "asset_dir": harmless(string(), "a vocabulary is read from the path of vocab_file"),
    "default_bucketize_value": integer(),
    "zch": message("ZeroCollisionHash", "vocabulary"),
    "dynamicemb": message("DynamicEmbedding", "vocabulary"),
    "fg_value_type": harmless(string(), _TYPES),
}
_DENSE: Fields = {
    "boundaries": many(number()),
    "normalizer": string(),
    "default_value": string("0"),
    "separator": string("\x1d"),
    "autodis": message("AutoDisEmbedding", "dense_emb"),
    "mlp": message("MLPEmbedding", "dense_emb"),
}
_EITHER: Fields = {**_IDS, **_DENSE, "need_discrete": flag(False)}
_FEATURE_KINDS: Fields = {
    "id_feature": message("IdFeature", "feature"),
    "raw_feature": message("RawFeature", "feature"),
    "combo_feature": message("ComboFeature", "feature"),
    "lookup_feature": message("LookupFeature", "feature"),
    "match_feature": message("MatchFeature", "feature"),
    "expr_feature": message("ExprFeature", "feature"),
    "overlap_feature": message("OverlapFeature", "feature"),
    "tokenize_feature": message("TokenizeFeature", "feature"),
    "custom_feature": message("CustomFeature", "feature"),
    "kv_dot_product": message("KvDotProduct", "feature"),
    "bool_mask_feature": message("BoolMaskFeature", "feature"),
    "combine_feature": message("CombineFeature", "feature"),
}
_ORDERED: Final = {
    "combo_feature": "elements of sequences are not crossed; make the crossed values a column, and read that",
    "tokenize_feature": "elements of sequences are not cut into tokens; make the tokens a column, and read that",
    "bool_mask_feature": "a mask changes the length of a sequence; make the values that remain a column, and read that",
}
"""Features that have no value for each element of a sequence, with the remedy."""
_IN_SEQUENCES: Fields = {
    kind: refused(_ORDERED[kind]) if kind in _ORDERED else spec for kind, spec in _FEATURE_KINDS.items()
}

FEATURES: Final[Mapping[str, Fields]] = {
    "FeatureConfig": {
        **_FEATURE_KINDS,
        "sequence_feature": message("SequenceFeature", "feature"),
        **{f"sequence_{kind}": spec for kind, spec in _IN_SEQUENCES.items()},
    },
    "SeqFeatureConfig": _IN_SEQUENCES,
    "SequenceFeature": {
        "sequence_name": needed(string()),
        "sequence_length": needed(integer()),
        "sequence_delim": string(";"),
        "sequence_pk": harmless(string(), "it is the key of an online feature store"),
        "features": needed(many(message("SeqFeatureConfig"))),
    },
    "ParameterConstraints": {
        "sharding_types": harmless(many(string()), _PLACED),
        "compute_kernels": harmless(many(string()), _PLACED),
    },
    "ValueEntry": {"key": needed(string()), "value": needed(number())},
    "VocabEntry": {"key": needed(string()), "value": needed(integer())},
    "AutoDisEmbedding": {
        "num_channels": needed(integer()),
        "temperature": number(0.1),
        "keep_prob": number(0.8),
    },
    "MLPEmbedding": {},
    "ZeroCollisionHash": {
        "zch_size": needed(integer()),
        "eviction_interval": harmless(integer(5), "rows are given to other ids when they are needed"),
        "lfu": message("LFU", "policy"),
        "lru": message("EvictionPolicy", "policy"),
        "distance_lfu": message("EvictionPolicy", "policy"),
        "threshold_filtering_func": string(),
    },
    "LFU": {},
    "EvictionPolicy": {"decay_exponent": number(1.0)},
    "DynamicEmbedding": {
        "initializer_args": message("DynamicEmbInitializerArgs"),
        "eval_initializer_args": message("DynamicEmbInitializerArgs"),
        "score_strategy": string("STEP"),
        "max_capacity": needed(integer()),
        "cache_load_factor": number(),
        "init_capacity_per_rank": harmless(integer(), "a table has all its rows from the start"),
        "bucket_capacity": harmless(integer(), "it sets how ids are found, not which"),
        "init_table": harmless(
            string(),
            "training does not read it there either: a tool makes a checkpoint of it, as train.start_from reads",
        ),
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
        "counter_bucket_capacity": harmless(integer(1024), "it sets how ids are counted, not which"),
    },
    "IdFeature": {
        **_IDS,
        "expression": string(),
        "weighted": flag(False),
    },
    "RawFeature": {**_FEATURE, **_DENSE, "expression": string(), "value_dim": integer(1)},
    "ComboFeature": {
        **_IDS,
        "expression": needed(many(string())),
        "hash_bucket_size": needed(integer()),
        "embedding_dim": needed(integer()),
        "value_dim": fixed(integer(0), "a row has one crossed value; remove it"),
        "separator": fixed(string("\x1d"), "columns of several values cannot be crossed; cross columns of one value"),
        "zch": refused(_MANAGED),
        "dynamicemb": refused(_MANAGED),
        "vocab_list": refused(_MANAGED),
        "vocab_dict": refused(_MANAGED),
        "vocab_file": refused(_MANAGED),
        "default_bucketize_value": refused(_MANAGED),
    },
    "BoolMaskFeature": {**_IDS, "expression": needed(many(string()))},
    "CombineFeature": {
        **_FEATURE,
        **_DENSE,
        "expression": needed(string()),
        "default_value": string(""),
        "value_map": many(message("ValueEntry")),
        "num_buckets": integer(),
        "combiner": string("sum"),
    },
    "LookupFeature": {
        **_EITHER,
        "map": needed(string()),
        "key": needed(string()),
        "combiner": string("sum"),
        "need_key": flag(False),
        "value_separator": string(","),
    },
    "MatchFeature": {
        **_EITHER,
        "nested_map": needed(string()),
        "pkey": needed(string()),
        "skey": needed(string()),
        "show_pkey": flag(False),
        "show_skey": flag(False),
    },
    "ExprFeature": {
        **_FEATURE,
        **_DENSE,
        "expression": needed(string()),
        "variables": many(string()),
        "fill_missing": number(),
        "value_dim": integer(0),
    },
    "OverlapFeature": {
        **_FEATURE,
        **_DENSE,
        "query": needed(string()),
        "title": needed(string()),
        "method": needed(string()),
    },
    "TokenizeFeature": {
        **_FEATURE,
        "expression": needed(string()),
        "embedding_dim": needed(integer()),
        "text_normalizer": message("TextNormalizer"),
        "vocab_file": needed(string()),
        "asset_dir": harmless(string(), "a vocabulary is read from the path of vocab_file"),
        "default_value": string(""),
        "tokenizer_type": string("bpe"),
        "tokens_as_sequence": fixed(flag(False), "tokens are pooled; remove it"),
    },
    "TextNormalizer": {
        "max_length": integer(),
        "stop_char_file": string(),
        "norm_options": many(enum("TextNormalizeOption")),
    },
    "KvDotProduct": {
        **_FEATURE,
        **_DENSE,
        "query": needed(string()),
        "document": needed(string()),
        "kv_delimiter": string(":"),
    },
    "CustomFeature": {
        **_EITHER,
        "operator_name": needed(string()),
        "operator_lib_file": needed(string()),
        "operator_params": message("Struct"),
        "is_op_thread_safe": flag(False),
        "expression": many(string()),
    },
    "Struct": {"fields": many(message("StructField"))},
    "StructField": {"key": needed(string()), "value": needed(message("StructValue"))},
    "StructValue": {
        "string_value": string(),
        "number_value": number(),
        "bool_value": flag(),
    },
}
