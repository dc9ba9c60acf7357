"""Optimizers, schedules and initializers of TorchEasyRec configs are read as written."""

import pytest

from sparrow import dense, rules, schedules
from sparrow.config.torcheasyrec.tables import initializer
from sparrow.config.torcheasyrec.training import dense_optimizer, sparse_rule
from sparrow.embedding.initializers import Constant, Normal, Uniform
from tests.config.examples import block

SPARSE = {
    "sgd_optimizer { lr: 0.5 }": rules.SGD(0.5),
    "adagrad_optimizer { initial_accumulator_value: 0.1 }": rules.Adagrad(0.002, initial_accumulator=0.1),
    "adam_optimizer { beta1: 0.8 weight_decay: 0.1 }": rules.Adam(0.002, beta1=0.8, weight_decay=0.1),
    "lars_sgd_optimizer { momentum: 0.5 }": rules.LarsSGD(0.002, momentum=0.5),
    "lamb_optimizer { beta2: 0.9 }": rules.LAMB(0.002, beta2=0.9),
    "partial_rowwise_lamb_optimizer {}": rules.PartialRowwiseLAMB(0.002),
    "partial_rowwise_adam_optimizer {}": rules.PartialRowwiseAdam(0.002),
    "rowwise_adagrad_optimizer { weight_decay: 0 }": rules.RowwiseAdagrad(0.002),
    "rowwise_adagrad_optimizer { weight_decay: 0.1 weight_decay_mode: L2 }": rules.RowwiseAdagrad(
        0.002, weight_decay=0.1, weight_decay_mode="l2"
    ),
    "adadelta_optimizer {}": rules.Adadelta(0.002, rho=0.95),
    "rmsprop_optimizer { alpha: 0.9 }": rules.RMSprop(0.002, alpha=0.9),
    "sgd_optimizer { gradient_clipping: true }": rules.SGD(0.002, max_gradient=1.0),
}


@pytest.mark.parametrize("text", SPARSE)
def test_sparse_optimizers(text):
    made = block(f"{text} constant_learning_rate {{}}", "SparseOptimizer")
    assert sparse_rule(made, 1) == SPARSE[text]


DENSE = {
    "sgd_optimizer { nesterov: true }": (dense.SGD(momentum=0.9, nesterov=True), 0.0, 0.0),
    "adagrad_optimizer { initial_accumulator_value: 0.1 weight_decay: 0.2 }": (
        dense.Adagrad(initial_accumulator=0.1),
        0.2,
        0.0,
    ),
    "adam_optimizer { weight_decay: 0.2 }": (dense.Adam(), 0.2, 0.0),
    "adamw_optimizer { weight_decay: 0.2 }": (dense.AdamW(), 0.0, 0.2),
    "adadelta_optimizer { eps: 1e-5 }": (dense.Adadelta(rho=0.95, eps=1e-5), 0.0, 0.0),
    "rmsprop_optimizer {}": (dense.RMSprop(), 0.0, 0.0),
}


@pytest.mark.parametrize("text", DENSE)
def test_dense_optimizers(text):
    section = dense_optimizer(block(f"{text} constant_learning_rate {{}}", "DenseOptimizer"), 1, None)
    assert (section.optimizer, section.l2, section.weight_decay) == DENSE[text]
    assert section.learning_rate == 0.002


def test_cosine_restarts():
    text = "sgd_optimizer {lr: 1} cosine_annealing_warm_restarts_learning_rate { T_0: 8 T_mult: 2 warmup_size: 4 }"
    rule = sparse_rule(block(text, "SparseOptimizer"), accumulate=2)
    assert rule.learning_rate == schedules.cosine_annealing_warm_restarts(1.0, t_0=4, t_mult=2, warmup_size=2)


INITIALIZERS = {
    "nn.init.uniform_": Uniform(0.0, 1.0),
    "torch.nn.init.normal_, std=0.01": Normal(0.0, 0.01),
    "nn.init.trunc_normal_,0,0.1,a=-0.2": Normal(0.0, 0.1, -0.2, 2.0),
    "nn.init.constant_,val=0.5": Constant(0.5),
    "nn.init.ones_": Constant(1.0),
}


@pytest.mark.parametrize("text", INITIALIZERS)
def test_initializers(text):
    made = initializer(block(f'feature_name: "x" embedding_dim: 1 init_fn: "{text}"', "IdFeature"), "init_fn")
    assert made == INITIALIZERS[text]


@pytest.mark.parametrize(("given", "ours"), [("1", 1.0), ("inf", "inf"), ("2", 2.0)])
def test_the_norm_of_clipping(given, ours):
    clipping = block(f'clipping_type: "norm" max_gradient: 5 norm_type: {given}', "GradClipping")
    made = dense_optimizer(block("adam_optimizer { lr: 0.1 } constant_learning_rate {}", "DenseOptimizer"), 1, clipping)
    assert (made.clip_norm, made.clip_norm_type) == (5.0, ours)
