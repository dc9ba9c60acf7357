"""Names that users of other libraries come with, the names here, and the nearest valid name for errors.

One table for constructors and configs: names of JAX SparseCore, Keras, eFormer, optax, PyTorch, TorchRec, TensorFlow.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Final

SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    # losses
    "bce": ("binary_cross_entropy",),
    # hyper-parameters of optimizers
    "lr": ("learning_rate", "lr"),
    "learning_rate": ("learning_rate", "lr"),
    "step_size": ("learning_rate", "decay_size"),
    "b1": ("beta1", "beta"),
    "b2": ("beta2",),
    "beta_1": ("beta1",),
    "beta_2": ("beta2",),
    "betas": ("beta1",),
    "adam_b1": ("adam_beta1",),
    "adam_b2": ("adam_beta2",),
    "epsilon": ("eps",),
    "epsilon_root": ("eps_root",),
    "decay": ("alpha", "rho", "weight_decay", "decay_factor", "decay_rate"),
    "rho": ("alpha",),
    "alpha": ("rho", "end"),
    "initial_scale": ("initial_accumulator",),
    "initial_accumulator_value": ("initial_accumulator",),
    "initial_momentum_value": ("initial_momentum",),
    "initial_slot_value": ("initial_slot",),
    "max_lr_multiplier": ("max_multiplier",),
    "use_nesterov": ("nesterov",),
    "lr_power": ("learning_rate_power",),
    "l1_regularization_strength": ("l1",),
    "l2_regularization_strength": ("l2",),
    "lambda1": ("l1",),
    "lambda2": ("l2",),
    "trust_coefficient": ("eta",),
    "weight_decay_rate": ("weight_decay",),
    "wd": ("weight_decay",),
    "mask": ("weight_decay_mask",),
    "dtype_momentum": ("momentum_dtype", "mu_dtype"),
    "accumulator_dtype": ("mu_dtype", "momentum_dtype"),
    "mu_dtype": ("momentum_dtype", "state_dtype"),
    "precond_lr": ("preconditioner_lr",),
    "clip_grad": ("clip_norm", "clip_global_norm", "max_gradient"),
    "max_grad_norm": ("clip_norm", "clip_global_norm"),
    "clipnorm": ("clip_norm", "clip_global_norm"),
    "global_clipnorm": ("clip_norm", "clip_global_norm"),
    "grad_clip": ("clip_norm", "clip_global_norm"),
    "clipvalue": ("clip_value", "max_gradient"),
    "gradient_clip_val": ("clip_norm", "clip_global_norm"),
    "gradient_clipping": ("clip_norm", "clip_global_norm", "max_gradient"),
    "gradient_accumulation_steps": ("accumulate",),
    "accumulate_grad_batches": ("accumulate",),
    "every_k_schedule": ("accumulate",),
    # schedules
    "init_value": ("lr", "warmup_learning_rate"),
    "peak_value": ("lr",),
    "value": ("lr",),
    "initial_learning_rate": ("lr",),
    "learning_rate_end": ("end", "min_learning_rate"),
    "end_value": ("end", "min_learning_rate"),
    "end_learning_rate": ("end", "min_learning_rate"),
    "eta_min": ("min_learning_rate", "end"),
    "min_lr": ("min_learning_rate", "end"),
    "decay_steps": ("decay_size", "steps", "t_max"),
    "transition_steps": ("decay_size", "steps"),
    "total_steps": ("steps", "t_max"),
    "max_steps": ("steps",),
    "num_train_steps": ("steps",),
    "total_iters": ("steps",),
    "decay_rate": ("decay_factor", "rho", "alpha"),
    "gamma": ("decay_factor",),
    "milestones": ("schedule_sizes",),
    "boundaries": ("schedule_sizes",),
    "boundaries_and_scales": ("schedule_sizes",),
    "values": ("learning_rates",),
    "power": ("exponent", "learning_rate_power"),
    "warmup": ("warmup_steps", "warmup_size"),
    "warmup_steps": ("warmup_size",),
    "warmup_size": ("warmup_steps",),
    "num_warmup_steps": ("warmup_steps", "warmup_size"),
    "warmup_init_value": ("warmup_learning_rate",),
    # tables and features
    "vocab_size": ("vocabulary_size",),
    "num_embeddings": ("vocabulary_size",),
    "input_dim": ("vocabulary_size",),
    "num_rows": ("vocabulary_size",),
    "dim": ("embedding_dim",),
    "output_dim": ("embedding_dim",),
    "embedding_size": ("embedding_dim",),
    "embed_dim": ("embedding_dim",),
    "data_type": ("dtype",),
    "init_fn": ("initializer",),
    "embedding_init": ("initializer",),
    "embeddings_initializer": ("initializer",),
    "pooling": ("combiner",),
    "pooling_type": ("combiner",),
    "mode": ("combiner",),
    "optimizer_spec": ("optimizer",),
    "rule": ("optimizer",),
    "table": ("table_spec",),
    "table_name": ("table_spec",),
    "feature_specs": ("features",),
    "feature_configs": ("features",),
    "tables": ("features",),
    "sharding_axis": ("axis",),
    "axis_name": ("axis",),
    # one step over tables and dense parameters
    "optimizer": ("tx",),
    "dense_optimizer": ("tx",),
    "embedding": ("embedder",),
    "ema_decay": ("ema",),
    "compute_dtype": ("precision",),
    "mixed_precision": ("precision",),
    "dtype": ("precision", "state_dtype", "mu_dtype", "momentum_dtype"),
    "grad_scaler": ("loss_scale",),
    "skip_if_not_finite": ("skip_nonfinite",),
    # losses and metrics
    "label_smooth": ("label_smoothing",),
    "smoothing": ("label_smoothing",),
    "y_pred": ("logits", "predictions"),
    "y_true": ("labels",),
    "input": ("logits", "predictions"),
    "predictions": ("logits",),
    "target": ("labels",),
    "targets": ("labels",),
    "weight": ("weights",),
    "sample_weight": ("weights",),
    "per_sample_weights": ("weights",),
    "num_thresholds": ("thresholds",),
    "k": ("top_k",),
    "topk": ("top_k",),
    "temp": ("temperature",),
    # training on a frame
    "label": ("target",),
    "y": ("target",),
    "validation_data": ("evaluate",),
    "validation_split": ("evaluate",),
    "eval_set": ("evaluate",),
    "test_size": ("evaluate",),
    "random_state": ("seed",),
    "num_epochs": ("epochs",),
    "n_epochs": ("epochs",),
}
"""Names elsewhere, and the names here; the first that fits is meant."""

UNNEEDED: Final[dict[str, str]] = {
    "input_shape": "leave it out, a batch may have any size",
    "output_shape": (
        "leave it out, activations have the batch size and the embedding_dim of the table; for one row per id, set "
        "combiner=None"
    ),
    "max_ids_per_partition": "leave it out, buffers grow by themselves; capacity of Embedder.pack fixes their size",
    "max_unique_ids_per_partition": "leave it out, buffers grow by themselves",
    "suggested_coo_buffer_size_per_device": "leave it out, buffers grow by themselves",
    "enable_minibatching": "leave it out, no id is ever dropped",
    "table_sharding_strategy": "leave it out, rows are spread evenly over the mesh",
    "sharding_strategy": "leave it out, rows are spread evenly over the mesh",
    "quantization_config": (
        "lookups are not quantized, because it only simulates fewer bits in the forward pass; for half the memory set "
        "dtype='bfloat16' or 'float16', and for limits of the values min_value and max_value"
    ),
    "allow_id_dropping": "leave it out, no id is ever dropped: buffers grow by themselves",
    "features_weights": "leave it out, weights come with their ids: sp.Ragged(values, offsets, weights=...)",
    "stack_name": "leave it out, tables of one dim, dtype and kind of rule share an array by themselves",
    "table_names": "leave it out, tables of one dim, dtype and kind of rule share an array by themselves",
    "num_sc_per_device": "leave it out, there are no SparseCores; mesh= of sp.Embedder spreads the tables",
    "global_device_count": "leave it out, mesh= of sp.Embedder has the devices",
    "lengths": "for bags of given lengths, use sp.Ragged.from_lengths(values, lengths)",
    "include_last_offset": "for offsets as torch has them, use sp.Ragged.from_offsets(values, offsets)",
    "feature_names": "make one FeatureSpec for each feature, with table_spec=",
    "padding_idx": "leave ids out of their bag, or use FeatureSpec(invalid_ids='ignore')",
    "device": "leave it out, arrays live on JAX's default device or on the mesh of the Embedder",
    "rms_clip_threshold": "leave it out, it is not supported",
    "foreach": "leave it out, XLA fuses the update",
    "fused": "leave it out, XLA fuses the update",
    "capturable": "leave it out, steps are compiled",
    "differentiable": "leave it out, updates are not differentiated",
    "maximize": "leave it out, and negate the loss",
    "params": "leave it out, init takes the parameters",
    "last_epoch": "leave it out, schedules are functions of the step that the state holds",
    "reduction": "losses return one value per example; sparrow.losses.reduce makes the mean",
    "from_logits": "leave it out, losses take logits and metrics take predictions",
    "pos_weight": "give the examples weights, in losses.reduce or sample_weight of a task",
    "multi_label": "leave it out, give each label a task of its own",
}
"""Names elsewhere that nothing here stands for, and the remedy."""


def meant(name: str, valid: Collection[str]) -> str | None:
    """Return the valid name that ``name`` stands for elsewhere; None: it is not known.

    >>> meant("b1", ["beta1", "eps"]), meant("T_max", ["t_max"]), meant("b1", ["eps"])
    ('beta1', 't_max', None)
    """
    return next((ours for ours in (*SYNONYMS.get(name, ()), name.lower()) if ours in valid and ours != name), None)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the tail of an error message: the name that is meant, or the nearest one, and all valid names.

    >>> nearest("adm", ["adam", "sgd"])
    "did you mean 'adam'? Valid names: adam, sgd"
    >>> nearest("b1", ["beta1", "eps"])
    "did you mean 'beta1'? Valid names: beta1, eps"
    """
    valid = sorted(candidates)
    known = f"Valid names: {', '.join(valid) or 'none'}"
    close = meant(name, valid)
    if close is None and name in UNNEEDED:
        return f"{UNNEEDED[name]}. {known}"
    close = close or next(iter(difflib.get_close_matches(name, valid, n=1)), None)
    return known if close is None else f"did you mean '{close}'? {known}"
