"""Names that users of other libraries come with, the names here, and errors that answer with the nearest valid name.

One table for constructors and configs: names of JAX SparseCore, Keras, eFormer, optax, PyTorch, TorchRec, TensorFlow.
`answering` makes constructors and functions answer so.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar, cast

_SYNONYMS: Final = {
    # losses
    "bce": "binary_cross_entropy",
    # hyper-parameters of optimizers
    "lr learning_rate": "learning_rate lr",
    "step_size": "learning_rate decay_size",
    "b1": "beta1 beta",
    "b2 beta_2": "beta2",
    "beta_1 betas": "beta1",
    "adam_b1": "adam_beta1",
    "adam_b2": "adam_beta2",
    "epsilon": "eps",
    "epsilon_root": "eps_root",
    "decay": "alpha rho weight_decay decay_factor decay_rate",
    "rho": "alpha",
    "alpha": "rho end",
    "initial_scale initial_accumulator_value": "initial_accumulator",
    "initial_momentum_value": "initial_momentum",
    "initial_slot_value": "initial_slot",
    "max_lr_multiplier": "max_multiplier",
    "use_nesterov": "nesterov",
    "lr_power": "learning_rate_power",
    "l1_regularization_strength lambda1": "l1",
    "l2_regularization_strength lambda2": "l2",
    "trust_coefficient": "eta",
    "weight_decay_rate wd": "weight_decay",
    "mask": "weight_decay_mask",
    "dtype_momentum": "momentum_dtype mu_dtype",
    "accumulator_dtype": "mu_dtype momentum_dtype",
    "mu_dtype": "momentum_dtype state_dtype",
    "precond_lr": "preconditioner_lr",
    "clip_grad gradient_clipping": "clip_norm clip_global_norm max_gradient",
    "max_grad_norm clipnorm global_clipnorm grad_clip gradient_clip_val": "clip_norm clip_global_norm",
    "clipvalue": "clip_value max_gradient",
    "gradient_accumulation_steps accumulate_grad_batches every_k_schedule": "accumulate",
    # schedules
    "init_value": "lr warmup_learning_rate",
    "peak_value value initial_learning_rate": "lr",
    "learning_rate_end end_value end_learning_rate": "end min_learning_rate",
    "eta_min min_lr": "min_learning_rate end",
    "decay_steps": "decay_size steps t_max",
    "transition_steps": "decay_size steps",
    "total_steps": "steps t_max",
    "max_steps num_train_steps total_iters": "steps",
    "decay_rate": "decay_factor rho alpha",
    "gamma": "decay_factor",
    "milestones boundaries boundaries_and_scales": "schedule_sizes",
    "values": "learning_rates",
    "power": "exponent learning_rate_power",
    "warmup num_warmup_steps": "warmup_steps warmup_size",
    "warmup_steps": "warmup_size",
    "warmup_size": "warmup_steps",
    "warmup_init_value": "warmup_learning_rate",
    # tables and features
    "vocab_size num_embeddings input_dim num_rows": "vocabulary_size",
    "dim output_dim embedding_size embed_dim": "embedding_dim",
    "data_type": "dtype",
    "init_fn embedding_init embeddings_initializer": "initializer",
    "pooling pooling_type mode": "combiner",
    "optimizer_spec rule": "optimizer",
    "table table_name": "table_spec",
    "feature_specs feature_configs tables": "features",
    "sharding_axis axis_name": "axis",
    # one step over tables and dense parameters
    "optimizer dense_optimizer": "tx",
    "embedding": "embedder",
    "ema_decay": "ema",
    "compute_dtype mixed_precision": "precision",
    "dtype": "precision state_dtype mu_dtype momentum_dtype",
    "grad_scaler": "loss_scale",
    "skip_if_not_finite": "skip_nonfinite",
    # losses and metrics
    "label_smooth smoothing": "label_smoothing",
    "y_pred input": "logits predictions",
    "y_true target targets": "labels",
    "predictions": "logits",
    "weight sample_weight per_sample_weights": "weights",
    "num_thresholds": "thresholds",
    "k topk": "top_k",
    "temp": "temperature",
    # training on a frame
    "label y": "target",
    "validation_data validation_split eval_set test_size": "evaluate",
    "random_state": "seed",
    "num_epochs n_epochs": "epochs",
}
SYNONYMS: Final = {name: tuple(ours.split()) for names, ours in _SYNONYMS.items() for name in names.split()}
"""Names elsewhere, and the names here; the first that fits is meant."""

_UNNEEDED: Final = {
    "input_shape": "leave it out, a batch may have any size",
    "output_shape": (
        "leave it out, activations have the batch size and the embedding_dim of the table; for one row per id, set "
        "combiner=None"
    ),
    "max_ids_per_partition": "leave it out, buffers grow by themselves; capacity of Embedder.pack fixes their size",
    "max_unique_ids_per_partition suggested_coo_buffer_size_per_device": "leave it out, buffers grow by themselves",
    "enable_minibatching": "leave it out, no id is ever dropped",
    "table_sharding_strategy sharding_strategy": "leave it out, rows are spread evenly over the mesh",
    "quantization_config": (
        "lookups are not quantized, because it only simulates fewer bits in the forward pass; for half the memory "
        "set dtype='bfloat16' or 'float16', and for limits of the values min_value and max_value"
    ),
    "allow_id_dropping": "leave it out, no id is ever dropped: buffers grow by themselves",
    "features_weights": "leave it out, weights come with their ids: sp.Ragged(values, offsets, weights=...)",
    "stack_name table_names": "leave it out, tables of one dim, dtype and kind of rule share an array by themselves",
    "num_sc_per_device": "leave it out, there are no SparseCores; mesh= of sp.Embedder spreads the tables",
    "global_device_count": "leave it out, mesh= of sp.Embedder has the devices",
    "lengths": "for bags of given lengths, use sp.Ragged.from_lengths(values, lengths)",
    "include_last_offset": "for offsets as torch has them, use sp.Ragged.from_offsets(values, offsets)",
    "feature_names": "make one FeatureSpec for each feature, with table_spec=",
    "padding_idx": "leave ids out of their bag, or use FeatureSpec(invalid_ids='ignore')",
    "device": "leave it out, arrays live on JAX's default device or on the mesh of the Embedder",
    "rms_clip_threshold": "leave it out, it is not supported",
    "foreach fused": "leave it out, XLA fuses the update",
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
UNNEEDED: Final = {name: remedy for names, remedy in _UNNEEDED.items() for name in names.split()}
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


T = TypeVar("T", bound=Callable[..., Any])


def answering(made: T) -> T:
    """Make a class or a function raise TypeError with the right name for an argument that it does not have.

    The signature stays as it is. Every registered record is answering; a subclass with an ``__init__`` of its own is
    not, until it is decorated or registered.

    >>> @answering
    ... def adam(learning_rate, beta1=0.9, eps=1e-8): ...
    >>> adam(0.1, b1=0.8)
    Traceback (most recent call last):
    TypeError: adam has no argument 'b1': did you mean 'beta1'? Valid names: beta1, eps, learning_rate
    """
    inner: Any = vars(made).get("__init__") if isinstance(made, type) else made
    if inner is None or hasattr(inner, "_answers"):  # an inherited constructor answers, or was not made to
        return made
    if inspect.isfunction(inspect.unwrap(inner)) and inspect.unwrap(inner).__code__.co_flags & inspect.CO_VARKEYWORDS:
        return made

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return inner(*args, **kwargs)
        except TypeError:  # names are looked at only here: most records are never given a wrong one
            known = list(inspect.signature(inner).parameters)[isinstance(made, type) :]
            unknown = [name for name in kwargs if name not in known]
            if not unknown:
                raise
        raise TypeError(f"{made.__name__} has no argument '{unknown[0]}': {nearest(unknown[0], known)}")

    call._answers = True  # type: ignore[attr-defined]
    if not isinstance(made, type):
        return cast("T", call)
    cast("Any", made).__init__ = call
    return made
