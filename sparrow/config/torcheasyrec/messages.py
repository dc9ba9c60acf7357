"""The contents of TorchEasyRec's configs: each supported message, field and default, and the refused ones.

`data_messages` has the part about data and features, `model_messages` and `hstu_messages` that about models. The names
and defaults are those of the protocol buffers of TorchEasyRec 1.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrow.config.torcheasyrec.data_messages import ENUMS as DATA_ENUMS
from sparrow.config.torcheasyrec.data_messages import FEATURES, PIPELINE
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
from sparrow.config.torcheasyrec.hstu_messages import HSTU
from sparrow.config.torcheasyrec.model_messages import ENUMS as MODEL_ENUMS
from sparrow.config.torcheasyrec.model_messages import MODELS

ENUMS: Final[Mapping[str, tuple[str, ...]]] = {
    **DATA_ENUMS,
    **MODEL_ENUMS,
    "WeightDecayMode": ("NONE", "L2", "DECOUPLE"),
}

_RATE: Final = "learning_rate"
_LEARNING_RATES: Fields = {
    "constant_learning_rate": message("ConstantLR", _RATE),
    "exponential_decay_learning_rate": message("ExponentialDecayLR", _RATE),
    "manual_step_learning_rate": message("ManualStepLR", _RATE),
    "cosine_annealing_learning_rate": message("CosineAnnealingLR", _RATE),
    "cosine_annealing_warm_restarts_learning_rate": message("CosineAnnealingWarmRestartsLR", _RATE),
}
_DENSE_OPTIMIZERS: Fields = {
    "sgd_optimizer": message("SGDOptimizer", "optimizer"),
    "adagrad_optimizer": message("AdagradOptimizer", "optimizer"),
    "adam_optimizer": message("AdamOptimizer", "optimizer"),
    "adamw_optimizer": message("AdamWOptimizer", "optimizer"),
    "adadelta_optimizer": message("AdadeltaOptimizer", "optimizer"),
    "rmsprop_optimizer": message("RMSpropOptimizer", "optimizer"),
}
_BY_XLA: Final = "XLA fuses the optimizer"
_FUSED: Fields = {"lr": number(0.002), "gradient_clipping": flag(False), "max_gradient": number(1.0)}
_FUSED_MOMENTS: Fields = {**_FUSED, "beta1": number(0.9), "beta2": number(0.999), "weight_decay": number(0.0)}
_ADAM: Fields = {
    "lr": number(0.002),
    "beta1": number(0.9),
    "beta2": number(0.999),
    "weight_decay": number(0.0),
    "eps": number(1e-8),
    "amsgrad": flag(False),
    "fused": harmless(flag(False), _BY_XLA),
}
_WARMUP: Fields = {
    "min_learning_rate": number(0.0),
    "warmup_learning_rate": number(0.0),
    "warmup_size": integer(0),
    "by_epoch": flag(False),
}

OPTIMIZERS: Final[Mapping[str, Fields]] = {
    "SparseOptimizer": {
        "sgd_optimizer": message("FusedSGDOptimizer", "optimizer"),
        "adagrad_optimizer": message("FusedAdagradOptimizer", "optimizer"),
        "adam_optimizer": message("FusedAdamOptimizer", "optimizer"),
        "lars_sgd_optimizer": message("FusedLarsSGDOptimizer", "optimizer"),
        "lamb_optimizer": message("FusedLAMBOptimizer", "optimizer"),
        "partial_rowwise_lamb_optimizer": message("FusedPartialRowWiseLAMBOptimizer", "optimizer"),
        "partial_rowwise_adam_optimizer": message("FusedPartialRowWiseAdamOptimizer", "optimizer"),
        "rowwise_adagrad_optimizer": message("FusedRowWiseAdagradOptimizer", "optimizer"),
        "adadelta_optimizer": message("FusedAdadeltaOptimizer", "optimizer"),
        "rmsprop_optimizer": message("FusedRMSpropOptimizer", "optimizer"),
        **_LEARNING_RATES,
    },
    "FusedSGDOptimizer": _FUSED,
    "FusedAdagradOptimizer": {**_FUSED, "initial_accumulator_value": number(0.0)},
    "FusedAdamOptimizer": _FUSED_MOMENTS,
    "FusedLarsSGDOptimizer": {**_FUSED, "momentum": number(0.9), "weight_decay": number(0.0)},
    "FusedLAMBOptimizer": _FUSED_MOMENTS,
    "FusedPartialRowWiseLAMBOptimizer": _FUSED_MOMENTS,
    "FusedPartialRowWiseAdamOptimizer": _FUSED_MOMENTS,
    "FusedRowWiseAdagradOptimizer": {
        **_FUSED,
        "weight_decay": number(0.0),
        "weight_decay_mode": enum("WeightDecayMode", "NONE"),
    },
    "FusedAdadeltaOptimizer": {**_FUSED, "rho": number(0.95), "eps": number(1e-6), "weight_decay": number(0.0)},
    "FusedRMSpropOptimizer": {**_FUSED, "alpha": number(0.99), "eps": number(1e-8), "weight_decay": number(0.0)},
    "DenseOptimizer": {
        **_DENSE_OPTIMIZERS,
        **_LEARNING_RATES,
        "part_optimizers": many(message("PartOptimizer")),
        "ema": message("EMAConfig"),
    },
    "PartOptimizer": {**_DENSE_OPTIMIZERS, **_LEARNING_RATES, "regex_pattern": needed(string())},
    "EMAConfig": {"decay": number(0.999)},
    "SGDOptimizer": {
        "lr": number(0.002),
        "momentum": number(0.9),
        "weight_decay": number(0.0),
        "dampening": number(0.0),
        "nesterov": flag(False),
        "fused": harmless(flag(False), _BY_XLA),
    },
    "AdagradOptimizer": {
        "lr": number(0.002),
        "weight_decay": number(0.0),
        "initial_accumulator_value": number(0.0),
        "eps": number(1e-10),
        "fused": harmless(flag(False), _BY_XLA),
    },
    "AdamOptimizer": _ADAM,
    "AdamWOptimizer": _ADAM,
    "AdadeltaOptimizer": {
        "lr": number(0.002),
        "rho": number(0.95),
        "eps": number(1e-6),
        "weight_decay": number(0.0),
    },
    "RMSpropOptimizer": {
        "lr": number(0.002),
        "alpha": number(0.99),
        "eps": number(1e-8),
        "weight_decay": number(0.0),
    },
    "ConstantLR": {},
    "ExponentialDecayLR": {
        **_WARMUP,
        "decay_size": needed(integer()),
        "decay_factor": number(0.95),
        "staircase": flag(True),
    },
    "ManualStepLR": {
        "schedule_sizes": many(integer()),
        "learning_rates": many(number()),
        "warmup": flag(False),
        "by_epoch": flag(False),
    },
    "CosineAnnealingLR": {**_WARMUP, "T_max": needed(integer())},
    "CosineAnnealingWarmRestartsLR": {**_WARMUP, "T_0": needed(integer()), "T_mult": integer(1)},
}

_PLACED: Final = "Sparrow places the tables by itself"
_EVENT_TIME: Final = (
    "checkpoints by event time are not supported; use save_checkpoints_steps or save_checkpoints_epochs"
)
_TF32: Final = "the environment variable JAX_DEFAULT_MATMUL_PRECISION sets the precision of products"

TRAINING: Final[Mapping[str, Fields]] = {
    "TrainConfig": {
        "sparse_optimizer": needed(message("SparseOptimizer")),
        "dense_optimizer": needed(message("DenseOptimizer")),
        "num_steps": integer(),
        "num_epochs": integer(),
        "save_checkpoints_steps": integer(1000),
        "save_checkpoints_epochs": integer(),
        "keep_checkpoint_max": integer(0),
        "fine_tune_checkpoint": string(""),
        "fine_tune_ckpt_param_map": fixed(string(""), "train.start_from renames tables and parameters; remove it"),
        "log_step_count_steps": integer(100),
        "is_profiling": harmless(flag(False), "sparrow train --profile traces steps"),
        "use_tensorboard": flag(True),
        "tensorboard_summaries": many(string()),
        "cudnn_allow_tf32": harmless(flag(True), _TF32),
        "cuda_matmul_allow_tf32": harmless(flag(False), _TF32),
        "global_embedding_constraints": harmless(message("ParameterConstraints"), _PLACED),
        "mixed_precision": string(""),
        "grad_scaler": message("GradScaler"),
        "gradient_accumulation_steps": integer(1),
        "grad_clipping": message("GradClipping"),
        "save_checkpoints_timestamp_interval": fixed(integer(0), _EVENT_TIME),
        "save_checkpoints_timestamps": refused(_EVENT_TIME),
        "save_checkpoints_timestamp_quorum": harmless(number(0.5), _EVENT_TIME),
        "delta_embedding_dump_config": refused("dumps of changed rows are not supported; remove it"),
    },
    "GradScaler": {
        "init_scale": number(65536.0),
        "growth_factor": number(2.0),
        "backoff_factor": number(0.5),
        "growth_interval": integer(2000),
    },
    "GradClipping": {
        "clipping_type": string("none"),
        "max_gradient": number(1.0),
        "norm_type": number(2.0, may_be_infinite=True),
        "enable_global_grad_clip": flag(False),
    },
    "ExportConfig": {
        "exporter_type": string("latest"),
        "best_exporter_metric": string("auc"),
        "metric_larger_is_better": flag(True),
        "mixed_precision": string(""),
        "cudnn_allow_tf32": harmless(flag(True), _TF32),
        "cuda_matmul_allow_tf32": harmless(flag(False), _TF32),
        "use_dense_ema": flag(),
    },
    "EvalConfig": {
        "num_steps": integer(),
        "log_step_count_steps": integer(),  # 10 in TorchEasyRec, which logs more lines than most users want
        "use_dense_ema": flag(),
    },
}

_TRAIN_METRICS: Fields = {
    "auc": message("AUC", "metric"),
    "recall_at_k": message("RecallAtK", "metric"),
    "mean_absolute_error": message("MeanAbsoluteError", "metric"),
    "mean_squared_error": message("MeanSquaredError", "metric"),
    "accuracy": message("Accuracy", "metric"),
    "xauc": message("XAUC", "metric"),
}

LOSSES_AND_METRICS: Final[Mapping[str, Fields]] = {
    "LossConfig": {
        "binary_cross_entropy": message("BinaryCrossEntropy", "loss"),
        "softmax_cross_entropy": message("SoftmaxCrossEntropy", "loss"),
        "l2_loss": message("L2Loss", "loss"),
        "jrc_loss": message("JRCLoss", "loss"),
        "binary_focal_loss": message("BinaryFocalLoss", "loss"),
        "recon_loss": message("SidReconLoss", "loss"),
        "commitment_loss": message("SidCommitmentLoss", "loss"),
        "contrastive_loss": message("SidContrastiveLoss", "loss"),
    },
    "SidReconLoss": {"recon_type": string("l2")},
    "SidCommitmentLoss": {"latent_weight": many(number()), "commitment_type": string("l2")},
    "SidContrastiveLoss": {},
    "BinaryCrossEntropy": {"label_smoothing": number(0.0)},
    "SoftmaxCrossEntropy": {"label_smoothing": number(0.0)},
    "L2Loss": {},
    "JRCLoss": {"session_name": needed(string()), "alpha": number(0.5)},
    "BinaryFocalLoss": {"gamma": number(2.0), "alpha": number(0.5)},
    "MetricConfig": {
        **_TRAIN_METRICS,
        "multiclass_auc": message("MulticlassAUC", "metric"),
        "grouped_auc": message("GroupedAUC", "metric"),
        "grouped_xauc": message("GroupedXAUC", "metric"),
        "normalized_entropy": message("NormalizedEntropy", "metric"),
    },
    "TrainMetricConfig": {**_TRAIN_METRICS, "decay_rate": number(0.9), "decay_step": integer(100)},
    "AUC": {"thresholds": integer(200)},
    "MulticlassAUC": {"thresholds": integer(200), "average": string("macro")},
    "RecallAtK": {"top_k": integer(5)},
    "MeanAbsoluteError": {},
    "MeanSquaredError": {},
    "Accuracy": {"threshold": number(0.5), "top_k": integer(1)},
    "GroupedAUC": {"grouping_key": needed(string())},
    "XAUC": {"sample_ratio": number(0.001), "max_pairs": integer(), "in_batch": flag(False)},
    "GroupedXAUC": {
        "grouping_key": needed(string()),
        "max_pairs_per_group": harmless(integer(100), "all pairs of a group are counted, exactly"),
    },
    "NormalizedEntropy": {"eta": number(1e-12)},
}

MESSAGES: Final[Mapping[str, Fields]] = {
    **PIPELINE,
    **MODELS,
    **HSTU,
    **FEATURES,
    **OPTIMIZERS,
    **TRAINING,
    **LOSSES_AND_METRICS,
}
