"""The messages about models: the supported fields, with their defaults, and the refused ones."""

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

ENUMS: Final[Mapping[str, tuple[str, ...]]] = {
    "FeatureGroupType": ("DEEP", "WIDE", "SEQUENCE", "JAGGED_SEQUENCE"),
    "Similarity": ("COSINE", "INNER_PRODUCT", "EUCLID"),
    "Kernel": ("TRITON", "PYTORCH", "CUTLASS"),
    "UserSeqCombineMethod": ("CONCAT", "SUM"),
}

_NO_MODEL: Final = "there is no such model in Sparrow"


def _wide_model(dim: int) -> Fields:
    return {
        "deep": needed(message("MLP")),
        "final": message("MLP"),
        "wide_embedding_dim": integer(dim),
        "wide_init_fn": string(),
    }


_ENCODER: Fields = {
    "name": harmless(string(), "encoders have no names"),
    "input": string(),
    "max_seq_length": integer(0),
}
_MATCH: Fields = {
    "similarity": enum("Similarity", "INNER_PRODUCT"),
    "temperature": number(1.0),
    "in_batch_negative": flag(False),
}
_DSSM: Fields = {
    **_MATCH,
    "user_tower": needed(message("Tower")),
    "item_tower": needed(message("Tower")),
    "output_dim": integer(0),
}
_TASK_TOWER: Fields = {
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
    "pareto_min_loss_weight": number(0.0),
}
_SID: Fields = {
    "codebook": needed(many(integer())),
    "normalize_residuals": flag(False),
    "candidate_output_config": message("SidCandidateOutputConfig"),
}

MODELS: Final[Mapping[str, Fields]] = {
    "ModelConfig": {
        "feature_groups": needed(many(message("FeatureGroupConfig"))),
        "dlrm": message("DLRM", "model"),
        "deepfm": message("DeepFM", "model"),
        "multi_tower": message("MultiTower", "model"),
        "multi_tower_din": message("MultiTowerDIN", "model"),
        "mask_net": message("MaskNet", "model"),
        "wide_and_deep": message("WideAndDeep", "model"),
        "dcn_v1": message("DCNV1", "model"),
        "dcn_v2": message("DCNV2", "model"),
        "xdeepfm": message("xDeepFM", "model"),
        "wukong": message("WuKong", "model"),
        "simple_multi_task": message("SimpleMultiTask", "model"),
        "mmoe": message("MMoE", "model"),
        "dbmtl": message("DBMTL", "model"),
        "ple": message("PLE", "model"),
        "pepnet": message("PEPNet", "model"),
        "dssm": message("DSSM", "model"),
        "dssm_v2": message("DSSMV2", "model"),
        "dat": message("DAT", "model"),
        "mind": message("MIND", "model"),
        "tdm": message("TDM", "model"),
        "rocket_launching": message("RocketLaunching", "model"),
        "dlrm_hstu": message("DlrmHSTU", "model"),
        "ultra_hstu": message("UltraHSTU", "model"),
        "hstu_match": message("HSTUMatch", "model"),
        "dc2vr": refused(f"{_NO_MODEL}; dbmtl is near"),
        "sid_rqvae": message("SidRqvae", "model"),
        "sid_rqkmeans": message("SidRqkmeans", "model"),
        "num_class": integer(1),
        "losses": many(message("LossConfig")),
        "metrics": many(message("MetricConfig")),
        "train_metrics": many(message("TrainMetricConfig")),
        "variational_dropout": message("VariationalDropout"),
        "kernel": harmless(enum("Kernel", "PYTORCH"), "XLA chooses the kernels"),
        "use_pareto_loss_weight": flag(False),
    },
    "FeatureGroupConfig": {
        "group_name": needed(string()),
        "feature_names": many(string()),
        "group_type": enum("FeatureGroupType", "DEEP"),
        "sequence_groups": many(message("SeqGroupConfig")),
        "sequence_encoders": many(message("SeqEncoderConfig")),
        "embedding_name_suffix": string(""),
    },
    "SeqGroupConfig": {
        "group_name": string(),
        "feature_names": needed(many(string())),
        "embedding_name_suffix": string(""),
    },
    "SeqEncoderConfig": {
        "pooling_encoder": message("PoolingEncoder", "seq_module"),
        "din_encoder": message("DINEncoder", "seq_module"),
        "simple_attention": message("SimpleAttention", "seq_module"),
        "multi_window_din_encoder": message("MultiWindowDINEncoder", "seq_module"),
        "self_attention_encoder": message("SelfAttentionEncoder", "seq_module"),
    },
    "PoolingEncoder": {**_ENCODER, "pooling_type": string("mean")},
    "DINEncoder": {**_ENCODER, "attn_mlp": needed(message("MLP"))},
    "SimpleAttention": _ENCODER,
    "MultiWindowDINEncoder": {
        **_ENCODER,
        "attn_mlp": needed(message("MLP")),
        "windows_len": needed(many(integer())),
    },
    "SelfAttentionEncoder": {
        **_ENCODER,
        "multihead_attn_dim": integer(512),
        "num_heads": integer(8),
        "dropout": number(0.0),
    },
    "VariationalDropout": {
        "regularization_lambda": number(0.01),
        "embedding_wise_variational_dropout": fixed(flag(False), "whole features are dropped; remove it"),
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
    "DINTower": {"input": needed(string()), "attn_mlp": needed(message("MLP"))},
    "DeepFM": _wide_model(4),
    "WideAndDeep": _wide_model(4),
    "DLRM": {"dense_mlp": message("MLP"), "arch_with_sparse": flag(True), "final": needed(message("MLP"))},
    "MultiTower": {"towers": needed(many(message("Tower"))), "final": needed(message("MLP"))},
    "MultiTowerDIN": {
        "towers": many(message("Tower")),
        "din_towers": needed(many(message("DINTower"))),
        "final": needed(message("MLP")),
    },
    "MaskNet": {"mask_net_module": needed(message("MaskNetModule"))},
    "MaskNetModule": {
        "n_mask_blocks": needed(integer()),
        "mask_block": needed(message("MaskBlock")),
        "top_mlp": message("MLP"),
        "use_parallel": flag(True),
    },
    "MaskBlock": {
        "reduction_ratio": number(1.0),
        "aggregation_dim": integer(),
        "hidden_dim": needed(integer()),
    },
    "DCNV1": {
        "cross": needed(message("Cross")),
        "deep": needed(message("MLP")),
        "final": needed(message("MLP")),
    },
    "Cross": {"cross_num": integer(3)},
    "DCNV2": {
        "backbone": message("MLP"),
        "cross": needed(message("CrossV2")),
        "deep": message("MLP"),
        "final": needed(message("MLP")),
    },
    "CrossV2": {"cross_num": integer(3), "low_rank": integer(32)},
    "xDeepFM": {**_wide_model(16), "cin": needed(message("CIN")), "final": needed(message("MLP"))},
    "CIN": {"cin_layer_size": needed(many(integer()))},
    "WuKong": {
        "dense_mlp": message("MLP"),
        "wukong_layers": needed(many(message("WuKongLayer"))),
        "final": needed(message("MLP")),
    },
    "WuKongLayer": {
        "lcb_feature_num": needed(integer()),
        "fmb_feature_num": needed(integer()),
        "compressed_feature_num": integer(16),
        "feature_num_mlp": needed(message("MLP")),
    },
    "SimpleMultiTask": {"task_towers": needed(many(message("TaskTower")))},
    "MMoE": {
        "expert_mlp": needed(message("MLP")),
        "gate_mlp": message("MLP"),
        "num_expert": integer(3),
        "task_towers": needed(many(message("TaskTower"))),
    },
    "DBMTL": {
        "mask_net": message("MaskNetModule"),
        "bottom_mlp": message("MLP"),
        "expert_mlp": message("MLP"),
        "gate_mlp": message("MLP"),
        "num_expert": integer(3),
        "task_towers": needed(many(message("BayesTaskTower"))),
    },
    "PLE": {
        "extraction_networks": needed(many(message("ExtractionNetwork"))),
        "task_towers": needed(many(message("TaskTower"))),
    },
    "ExtractionNetwork": {
        "network_name": harmless(string(), "networks have no names"),
        "expert_num_per_task": needed(integer()),
        "share_num": integer(),
        "task_expert_net": needed(message("MLP")),
        "share_expert_net": message("MLP"),
    },
    "PEPNet": {
        "epnet_hidden_unit": integer(),
        "epnet_gamma": number(2.0),
        "ppnet_hidden_units": many(integer()),
        "ppnet_activation": string("nn.ReLU"),
        "ppnet_dropout_ratio": many(number()),
        "ppnet_gamma": number(2.0),
        "domain_input_name": string(),
        "task_domain_num": integer(1),
        "task_towers": needed(many(message("TaskTower"))),
    },
    "TaskTower": _TASK_TOWER,
    "BayesTaskTower": {
        **_TASK_TOWER,
        "relation_tower_names": many(string()),
        "relation_mlp": message("MLP"),
    },
    "DSSM": _DSSM,
    "DSSMV2": _DSSM,
    "DAT": {
        **_DSSM,
        "user_tower": needed(message("DATTower")),
        "item_tower": needed(message("DATTower")),
        "amm_i_weight": number(0.5),
        "amm_u_weight": number(0.5),
    },
    "DATTower": {
        "input": needed(string()),
        "augment_input": needed(string()),
        "mlp": needed(message("MLP")),
    },
    "MIND": {
        **_DSSM,
        "user_tower": needed(message("MINDUserTower")),
        "similarity": enum("Similarity", "COSINE"),
        "simi_pow": number(10.0),
    },
    "MINDUserTower": {
        "input": needed(string()),
        "history_input": needed(string()),
        "user_mlp": needed(message("MLP")),
        "hist_seq_mlp": message("MLP"),
        "user_seq_combine": harmless(
            enum("UserSeqCombineMethod", "SUM"), "interests and user are put side by side, as TorchEasyRec does too"
        ),
        "capsule_config": needed(message("B2ICapsule")),
        "concat_mlp": needed(message("MLP")),
    },
    "B2ICapsule": {
        "max_k": integer(5),
        "max_seq_len": needed(integer()),
        "high_dim": needed(integer()),
        "num_iters": integer(3),
        "routing_logits_scale": number(20.0),
        "routing_logits_stddev": number(1.0),
        "squash_pow": number(1.0),
        "const_caps_num": flag(False),
        "routing_init_method": string("normal"),
    },
    "TDM": {"multiwindow_din": needed(message("MultiWindowDINTower")), "final": needed(message("MLP"))},
    "MultiWindowDINTower": {"windows_len": needed(many(integer())), "attn_mlp": needed(message("MLP"))},
    "SidRqvae": {
        **_SID,
        "embed_dim": integer(64),
        "hidden_dims": many(integer()),
        "forward_mode": string("ste"),
        "distance_type": string("l2"),
        "rotation_trick": flag(False),
        "kmeans_init": flag(False),
        "sinkhorn_config": message("SinkhornConfig"),
        "contrastive_config": message("ContrastiveConfig"),
    },
    "SinkhornConfig": {"iters": integer(5), "epsilon": number(10.0), "enabled": flag(True)},
    "ContrastiveConfig": {"pair_feature_group": needed(string()), "pair_flag_feature_group": needed(string())},
    "SidRqkmeans": {
        **_SID,
        "faiss_kmeans_kwargs": message("FaissKmeansConfig"),
        "train_sample_size": integer(0),
    },
    "FaissKmeansConfig": {
        "niter": integer(25),
        "nredo": fixed(integer(1), "centroids are fitted again as data comes, not several times; remove it"),
        "seed": integer(1234),
        "max_points_per_centroid": integer(256),
        "min_points_per_centroid": harmless(integer(39), "it is the limit of a warning"),
        "spherical": flag(False),
        "verbose": harmless(flag(False), "the log has the loss of every step"),
    },
    "SidCandidateOutputConfig": {
        "enabled": fixed(
            flag(False), "candidates of codes are not written: the metric collisions counts items of the same codes"
        ),
        "topk": harmless(integer(1), "enabled is false"),
        "strategy": harmless(string("last_layer_knn"), "enabled is false"),
    },
    "RocketLaunching": {
        "share_mlp": message("MLP"),
        "booster_mlp": needed(message("MLP")),
        "light_mlp": needed(message("MLP")),
        "feature_based_distillation": flag(False),
        "feature_distillation_function": enum("Similarity", "COSINE"),
    },
}
