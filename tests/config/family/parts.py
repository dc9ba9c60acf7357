# ruff: noqa: E501  configs read best in one line for each part
"""The parts that configs of the family share: messages, features, groups and layers."""

from __future__ import annotations

TABLE = "odps://project/tables/clicks/ds=20240101"
HEAD = """
train_input_path: "{path}"
eval_input_path: "{path}"
model_dir: "experiments/{name}"
train_config {{
  sparse_optimizer {{ {sparse} }}
  dense_optimizer {{ {dense} }}
  {train}
}}
eval_config {{}}
{extra}
data_config {{
  batch_size: 16
  dataset_type: {dataset}
  fg_mode: {mode}
  label_fields: {labels}
  num_workers: 8
  {data}
}}
"""
ADAGRAD = "adagrad_optimizer { lr: 0.05 } constant_learning_rate {}"
ADAM = "adam_optimizer { lr: 0.01 } constant_learning_rate {}"


def config(
    name,
    features,
    model,
    *,
    path="",
    sparse=ADAGRAD,
    dense=ADAM,
    train="num_epochs: 1",
    extra="",
    dataset="ParquetDataset",
    mode="FG_DAG",
    labels='"clk"',
    data="",
):
    """A complete config."""
    fields = {"path": path, "name": name, "sparse": sparse, "dense": dense, "train": train, "extra": extra}
    head = HEAD.format(**fields, dataset=dataset, mode=mode, labels=labels, data=data)
    return (
        head + "\n".join(f"feature_configs {{ {feature} }}" for feature in features) + f"\nmodel_config {{ {model} }}\n"
    )


def ids(name, side="user", more="num_buckets: 20", dim=4):
    """An id feature."""
    return f'id_feature {{ feature_name: "{name}" expression: "{side}:{name}" embedding_dim: {dim} {more} }}'


def raw(name, side="item", more=""):
    """A raw feature."""
    return f'raw_feature {{ feature_name: "{name}" expression: "{side}:{name}" {more} }}'


def group(name, features, kind="DEEP", more=""):
    """A feature group."""
    names = "".join(f'feature_names: "{feature}" ' for feature in features)
    return f'feature_groups {{ group_name: "{name}" {names} group_type: {kind} {more} }}'


def mlp(name, *units, more=""):
    """Layers."""
    return f"{name} {{ hidden_units: [{', '.join(map(str, units))}] {more} }}"


BCE = "losses { binary_cross_entropy {} } metrics { auc {} }"
BUCKETS = "boundaries: [0.2, 0.5, 0.8] embedding_dim: 4"
SINGLE = [ids("user"), ids("item", "item"), ids("cate", "item", 'vocab_list: ["a", "b", "c"]'), raw("price")]
NAMES = ["user", "item", "cate", "price"]
CLICKS = """sequence_feature {
  sequence_name: "click_seq" sequence_length: 6 sequence_delim: "|"
  features { id_feature { feature_name: "item" expression: "item:item" num_buckets: 20 embedding_dim: 4
                          embedding_name: "item_emb" } }
  features { id_feature { feature_name: "cate" expression: "item:cate" vocab_list: ["a", "b", "c"] embedding_dim: 4 } }
  features { raw_feature { feature_name: "price" expression: "item:price" } }
  features { raw_feature { feature_name: "age" expression: "item:age" boundaries: [0.3, 0.6] embedding_dim: 4 } }
}"""
CLICK_IDS = """sequence_feature {
  sequence_name: "click_seq" sequence_length: 6 sequence_delim: "|"
  features { id_feature { feature_name: "item" expression: "item:item" num_buckets: 20 embedding_dim: 4 } }
  features { id_feature { feature_name: "cate" expression: "item:cate" vocab_list: ["a", "b", "c"] embedding_dim: 4 } }
}"""
QUERY = ["item", "cate", "price"]
CLICK_NAMES = ["click_seq__item", "click_seq__cate", "click_seq__price"]
AGED = [
    ids("item", "item", 'num_buckets: 20 embedding_name: "item_emb"'),
    *SINGLE[:1],
    *SINGLE[2:],
    raw("age", more=BUCKETS),
]
DIN_GROUPS = group("deep", NAMES) + group("seq", [*QUERY, "age", *CLICK_NAMES, "click_seq__age"], "SEQUENCE")
DIN = f"""multi_tower_din {{ towers {{ input: "deep" {mlp("mlp", 8)} }}
  din_towers {{ input: "seq" {mlp("attn_mlp", 8, 4)} }} {mlp("final", 4)} }} {BCE}"""


def tower(name, label, more="", loss="binary_cross_entropy {}", metric="auc {}"):
    """A task tower."""
    return f"""task_towers {{ tower_name: "{name}" label_name: "{label}" {mlp("mlp", 4)} losses {{ {loss} }}
      metrics {{ {metric} }} {more} }}"""


BOTH = '["clk", "buy"]'
SEQUENCES = [ids("user"), ids("item", "item", 'num_buckets: 20 embedding_name: "item_emb"'), *SINGLE[2:], CLICKS]
USER_ITEM = group("user", ["user"]) + group("item", ["item", "cate", "price"])
RECALL = "losses { softmax_cross_entropy {} } metrics { recall_at_k { top_k: 1 } } metrics { recall_at_k { top_k: 5 } }"
TOWERS = f'user_tower {{ input: "user" {mlp("mlp", 8)} }} item_tower {{ input: "item" {mlp("mlp", 8)} }}'
TDM_FEATURES = [ids("user"), ids("node", "item"), SINGLE[2], CLICK_IDS]
TDM = f"""tdm {{ multiwindow_din {{ windows_len: [1, 2, 3] {mlp("attn_mlp", 4, more='activation: "nn.PReLU"')} }}
  {mlp("final", 8, more="use_bn: true")} }} num_class: 2 losses {{ softmax_cross_entropy {{}} }} metrics {{ auc {{}} }}"""
