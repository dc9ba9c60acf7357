"""TorchEasyRec's zch and dynamicemb blocks become dynamic vocabularies, or are refused by name and line."""

import pytest

from sparrow import config
from sparrow.config import ConfigError, assemble
from sparrow.data import DynamicRows, IdFeature
from sparrow.embedding import Constant, HostMemory, Normal, Uniform

PIPELINE = """
train_input_path: "train.parquet"
eval_input_path: "eval.parquet"
model_dir: "run"
train_config {{
  sparse_optimizer {{ adagrad_optimizer {{ lr: 0.1 }} constant_learning_rate {{}} }}
  dense_optimizer {{ adam_optimizer {{ lr: 0.01 }} constant_learning_rate {{}} }}
  num_epochs: 1
}}
data_config {{ batch_size: 8 dataset_type: ParquetDataset fg_mode: FG_NORMAL label_fields: "clicked" }}
feature_configs {{ id_feature {{ feature_name: "user" expression: "user:user" embedding_dim: 4 {block} }} }}
feature_configs {{ raw_feature {{ feature_name: "price" expression: "item:price" }} }}
model_config {{
  feature_groups {{ group_name: "deep" feature_names: "user" feature_names: "price" group_type: DEEP }}
  multi_tower {{ towers {{ input: "deep" mlp {{ hidden_units: 8 }} }} final {{ hidden_units: 8 }} }}
  losses {{ binary_cross_entropy {{}} }}
}}
"""


def imported(block):
    return config.import_config(PIPELINE.format(block=block), "pipeline.config")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("zch { zch_size: 100 lru {} }", DynamicRows(rows=100, evict="lru")),
        ("zch { zch_size: 9 eviction_interval: 2 lfu {} }", DynamicRows(rows=9, evict="lfu")),
        ("zch { zch_size: 9 distance_lfu { decay_exponent: 1.0 } }", DynamicRows(rows=9, evict="distance_lfu")),
        (
            'zch { zch_size: 9 lru {} threshold_filtering_func: "lambda x: (x > 10, 10)" }',
            DynamicRows(rows=9, evict="lru", admit=11),
        ),
        (
            'zch { zch_size: 9 lru {} threshold_filtering_func: "lambda c: (c >= 3, 3)" }',
            DynamicRows(rows=9, evict="lru", admit=3),
        ),
        (
            'zch { zch_size: 9 lru {} threshold_filtering_func: "lambda x: probabilistic_threshold_filter(x, 0.05)" }',
            DynamicRows(rows=9, evict="lru", admit=0.05),
        ),
        ('dynamicemb { max_capacity: 9 init_table: "t/*.parquet" }', DynamicRows(rows=9, unknown="zeros")),
        ("hash_bucket_size: 7 zch { zch_size: 9 lru {} }", DynamicRows(rows=9, evict="lru")),
        ("dynamicemb { max_capacity: 9 cache_load_factor: 1.0 }", DynamicRows(rows=9, unknown="zeros")),
        (
            'dynamicemb { max_capacity: 9 score_strategy: "NO_EVICTION" }',
            DynamicRows(rows=9, evict="none", unknown="zeros"),
        ),
        ("dynamicemb { max_capacity: 70 }", DynamicRows(rows=70, unknown="zeros")),
        (
            """dynamicemb {
              max_capacity: 7 score_strategy: "LFU"
              frequency_admission_strategy { threshold: 5 counter_capacity: 90 }
            }""",
            DynamicRows(rows=7, admit=5, evict="lfu", unknown="zeros", waiting=90),
        ),
    ],
)
def test_blocks_become_dynamic_vocabularies(block, expected):
    made = imported(block)
    assert made.data.features[0] == IdFeature(
        "user", embedding_dim=4, column="user", separator="\x1d", pooling="sum", dynamic=expected
    )
    table = assemble(made).specs[0].table_spec
    assert (table.vocabulary_size, table.dynamic) == (expected.rows, expected.rules)
    assert config.loads(config.dumps(made)) == made


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ('mode: "NORMAL" std_dev: 0.05', Normal(0.0, 0.05)),
        ('mode: "NORMAL"', Normal(0.0, 0.5)),
        ("", Uniform(-0.1, 0.1)),
        ('mode: "UNIFORM" lower: -0.2', Uniform(-0.2, 0.1)),
        ('mode: "CONSTANT" value: 2', Constant(2.0)),
    ],
)
def test_rows_start_from_the_initializer(args, expected):
    made = imported(f"dynamicemb {{ max_capacity: 100 initializer_args {{ {args} }} }}")
    assert assemble(made).specs[0].table_spec.initializer == expected


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ('zch { zch_size: 9 lru {} threshold_filtering_func: "x" }', "threshold_filtering_func: not supported"),
        ("zch { zch_size: 9 }", "needs one of lfu, lru, distance_lfu"),
        ("zch { lru {} }", "zch_size"),
        ("zch { zch_size: 1 lru {} }", "dynamic: rows must be"),
        ("zch { zch_size: 9 distance_lfu { decay_exponent: 2.0 } }", "decay_exponent: not supported"),
        (
            'dynamicemb { max_capacity: 9 score_strategy: "CUSTOMIZED" }',
            "score_strategy: not supported: 'CUSTOMIZED'; its scores come from code",
        ),
        (
            'zch { zch_size: 9 lfu {} threshold_filtering_func: "average_threshold_filter" }',
            "its threshold follows the counts of one eviction_interval",
        ),
        ('dynamicemb { max_capacity: 9 initializer_args { mode: "X" } }', "mode: not supported: 'X'"),
        (
            'dynamicemb { max_capacity: 9 eval_initializer_args { mode: "NORMAL" } }',
            "eval_initializer_args: not supported: ids without a row read zeros",
        ),
        ("zch { zch_size: 9 lru {} } dynamicemb { max_capacity: 9 }", "cannot be given together with zch"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(block, words):
    with pytest.raises(ConfigError) as caught:
        imported(block)
    assert words in str(caught.value)
    assert "pipeline.config" in str(caught.value)


def test_a_share_of_the_rows_is_cached():
    made = imported("dynamicemb { max_capacity: 100 cache_load_factor: 0.5 }")
    assert assemble(made).specs[0].table_spec.memory == HostMemory(cache=0.5)
    assert config.loads(config.dumps(made)) == made


def test_a_cache_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"cache_load_factor: must be above 0"):
        imported("dynamicemb { max_capacity: 100 cache_load_factor: 0.0 }")
