"""Configs that the tests share."""

import copy

from sparrow.config.torcheasyrec.blocks import Findings, read
from sparrow.config.torcheasyrec.text import parse

VALID = {
    "train": {
        "sparse_optimizer": {"name": "rowwise_adagrad", "learning_rate": 0.05},
        "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
        "batch_size": 4,
        "steps": 3,
    },
    "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}},
    "data": {
        "train": {"name": "clicks", "impressions": 64, "fields": 2, "ids": 10},
        "evaluate": {"name": "clicks", "impressions": 8, "fields": 2, "ids": 10, "start": 100},
        "features": [
            {"kind": "id", "name": "id_0", "num_buckets": 10, "embedding_dim": 4},
            {"kind": "id", "name": "id_1", "num_buckets": 10, "embedding_dim": 4},
            {"kind": "raw", "name": "chance", "column": "probability", "log": True},
        ],
    },
    "model": {
        "architecture": {"name": "deepfm", "deep": {"hidden_units": [8]}},
        "groups": {"wide": ["id_0", "id_1"], "fm": ["id_0", "id_1"], "deep": ["id_0", "id_1", "chance"]},
    },
}


def valid(**changes):
    """The valid config with fields changed: ``train__steps=5``; DELETE takes a field away."""
    data = copy.deepcopy(VALID)
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = data
        for key in parents:
            node = node[key]
        if value is DELETE:
            del node[last]
        else:
            node[last] = value
    return data


DELETE = object()


def block(text, kind):
    """A message of TorchEasyRec; its problems are raised."""
    findings = Findings()
    made = read(parse(text), kind, findings)
    findings.raise_problems()
    return made


EVERYTHING = r"""
# Every message and field that is supported, most of them with a value that is not the default.
train_input_path: "train/*.parquet, more.parquet"
eval_input_path: "eval.parquet"
model_dir: 'experiments/everything'
train_config {
  sparse_optimizer {
    rowwise_adagrad_optimizer {
      lr: 0.01 weight_decay: 0.001 weight_decay_mode: DECOUPLE gradient_clipping: true max_gradient: 2.5
    }
    exponential_decay_learning_rate {
      decay_size: 200 decay_factor: 0.9 staircase: false warmup_learning_rate: 1e-4 warmup_size: 20
      min_learning_rate: 0.0001 by_epoch: false
    }
  }
  dense_optimizer {
    adam_optimizer { lr: 0.003 beta1: 0.8 beta2: 0.99 weight_decay: 0.1 eps: 1e-7 amsgrad: true fused: true }
    manual_step_learning_rate { schedule_sizes: [100, 200] learning_rates: [0.002, 0.001] warmup: true }
    part_optimizers {
      adamw_optimizer { lr: 0.004 weight_decay: 0.2 }
      regex_pattern: "deep/.*"
      cosine_annealing_learning_rate { T_max: 3 min_learning_rate: 1e-5 warmup_size: 1 by_epoch: true }
    }
    part_optimizers { sgd_optimizer { lr: 0.5 momentum: 0.8 dampening: 0 nesterov: true } regex_pattern: "logits/.*" }
    ema { decay: 0.99 }
  }
  num_steps: 1000
  save_checkpoints_steps: 500
  keep_checkpoint_max: 3
  log_step_count_steps: 50
  use_tensorboard: true
  tensorboard_summaries: ["parameter", "gradient", "gradient_norm"]
  tensorboard_summaries: "global_gradient_norm"
  mixed_precision: "FP16"
  grad_scaler { init_scale: 1024 growth_factor: 3 backoff_factor: 0.25 growth_interval: 100 }
  gradient_accumulation_steps: 2
  grad_clipping { clipping_type: "norm" max_gradient: 5 norm_type: 2 enable_global_grad_clip: false }
}
eval_config { num_steps: 7 log_step_count_steps: 3 use_dense_ema: false }
data_config {
  batch_size: 64
  eval_batch_size: 128
  dataset_type: ParquetDataset
  fg_mode: FG_DAG
  fg_encoded_multival_sep: "\x03"
  label_fields: "clk"
  sample_weight_fields: "weight"
  input_fields { input_name: "user" input_type: INT64 }
  num_workers: 4 pin_memory: false fg_threads: 2 in_order: true
  drop_remainder: true
  shuffle: true
  shuffle_buffer_size: 16
}
feature_configs {
  id_feature {
    feature_name: "user" expression: "user:uid" embedding_name: "people" embedding_dim: 8 num_buckets: 100
    pooling: "mean" default_value: "7" separator: "|" value_dim: 1
  }
}
feature_configs {
  id_feature { feature_name: "friend" expression: "user:friend" embedding_name: "people" embedding_dim: 8
               num_buckets: 100 pooling: "mean" }
}
feature_configs { id_feature { feature_name: "item" expression: "item:iid" embedding_dim: 8 hash_bucket_size: 1000
                               init_fn: "nn.init.uniform_,a=-0.01,b=0.02" } }
feature_configs {
  id_feature { feature_name: "shop" expression: "shop" embedding_dim: 8 vocab_list: ["a", "b"] trainable: false }
}
feature_configs { id_feature { feature_name: "city" expression: "user:city" embedding_dim: 8 vocab_file: "c.txt" } }
feature_configs {
  raw_feature {
    feature_name: "price" expression: "item:price" value_dim: 2 separator: ","
    normalizer: "method=zscore,mean=1.5,standard_deviation=2.0" default_value: "0.5"
  }
}
feature_configs {
  raw_feature { feature_name: "clicks" expression: "item:clicks" normalizer: "method=log10,threshold=1e-2,default=-3" }
}
feature_configs {
  raw_feature { feature_name: "rank" expression: "item:rank" normalizer: "method=minmax,min=1,max=11" }
}
feature_configs {
  id_feature { feature_name: "tags" expression: "item:tags" embedding_dim: 8 hash_bucket_size: 20 separator: "|"
               weighted: true data_type: "FP16" }
}
feature_configs { raw_feature { feature_name: "age" expression: "user:age" boundaries: [18, 30.5] embedding_dim: 8 } }
feature_configs {
  combo_feature { feature_name: "user_shop" expression: "user:uid" expression: "item:shop" hash_bucket_size: 50
                  embedding_dim: 8 }
}
feature_configs {
  sequence_feature {
    sequence_name: "seen" sequence_length: 20 sequence_delim: "|"
    features { id_feature { feature_name: "item" expression: "item:iid" embedding_name: "seen_items" embedding_dim: 8
                            hash_bucket_size: 1000 } }
  }
}
feature_configs {
  sequence_id_feature { feature_name: "bought" expression: "user:bought" embedding_dim: 8 num_buckets: 9
                        sequence_length: 5 sequence_delim: ";" }
}
model_config {
  feature_groups { group_name: "wide" feature_names: ["user", "item"] group_type: WIDE }
  feature_groups { group_name: "fm" feature_names: "user" feature_names: "friend" feature_names: "item" }
  feature_groups {
    group_name: "deep"
    feature_names: ["user", "item", "shop", "city", "price", "clicks", "rank", "tags", "age", "user_shop"]
    group_type: DEEP
    sequence_groups { group_name: "seen" feature_names: "seen__item" }
    sequence_groups { group_name: "bought" feature_names: "bought" }
    sequence_encoders { pooling_encoder { name: "s" input: "seen" pooling_type: "mean" } }
    sequence_encoders { pooling_encoder { input: "bought" pooling_type: "sum" } }
  }
  deepfm {
    deep { hidden_units: [32, 16] dropout_ratio: [0.1, 0.2] activation: "nn.GELU" use_bn: true bias: false }
    final { hidden_units: 8 dropout_ratio: 0.3 use_ln: true }
    wide_embedding_dim: 2
    wide_init_fn: "nn.init.zeros_"
  }
  kernel: PYTORCH
  num_class: 1
  losses { binary_cross_entropy { label_smoothing: 0.1 } }
  losses { binary_focal_loss { gamma: 1 alpha: 0.25 } }
  metrics { auc { thresholds: 100 } }
  metrics { accuracy { threshold: 0.4 top_k: 1 } }
  metrics { grouped_auc { grouping_key: "user_key" } }
  metrics { normalized_entropy { eta: 1e-6 } }
  metrics { mean_absolute_error {} }
  metrics { mean_squared_error {} }
  metrics { xauc { sample_ratio: 0.5 } }
  metrics { xauc { max_pairs: 1000 } }
  metrics { xauc { in_batch: true } }
  metrics { grouped_xauc { grouping_key: "user_key" } }
  train_metrics { auc { thresholds: 50 } decay_rate: 0.8 decay_step: 10 }
  train_metrics { mean_absolute_error {} }
}
"""


def edited(old, new):
    assert EVERYTHING.count(old) == 1, old
    return EVERYTHING.replace(old, new)


def minimal(model, label_fields='"clk"'):
    """The smallest config around a model_config."""
    return f"""
train_input_path: "a.csv"
train_config {{
  sparse_optimizer {{ adagrad_optimizer {{ lr: 0.001 }} constant_learning_rate {{}} }}
  dense_optimizer {{ adam_optimizer {{ lr: 0.001 }} constant_learning_rate {{}} }}
  num_epochs: 1
}}
data_config {{ dataset_type: CsvDataset with_header: true delimiter: "\\t" label_fields: [{label_fields}] }}
feature_configs {{ id_feature {{ feature_name: "u" embedding_dim: 4 num_buckets: 9 }} }}
feature_configs {{ id_feature {{ feature_name: "i" embedding_dim: 4 hash_bucket_size: 8 }} }}
feature_configs {{ raw_feature {{ feature_name: "p" boundaries: [1, 2] embedding_dim: 4 }} }}
model_config {{ {model} }}
"""


SAMPLED = """
  negative_sampler {
    input_path: "items.txt" num_sample: 8 num_eval_sample: 30 attr_fields: ["i", "p"] item_id_field: "i"
    attr_delimiter: "\\x02"
  }
"""


def sampled_dssm(sampler=SAMPLED, options="temperature: 0.5"):
    groups = 'feature_groups { group_name: "a" feature_names: "u" } '
    groups += 'feature_groups { group_name: "b" feature_names: ["i", "p"] } '
    towers = 'user_tower { input: "a" mlp { hidden_units: 16 } } item_tower { input: "b" mlp { hidden_units: 16 } }'
    model = f"{groups} dssm {{ {towers} output_dim: 8 {options} }} losses {{ softmax_cross_entropy {{}} }} "
    text = minimal(model + "metrics { recall_at_k { top_k: 1 } }")
    return text.replace("data_config {", f"data_config {{ {sampler}")
