"""Models of TorchEasyRec configs, with the columns and negatives that they need."""

import re

import pytest

from sparrow import config, dense, losses, metrics, rules
from sparrow.config import ConfigError
from sparrow.data import Csv, IdFeature, Parquet, Split
from sparrow.models import MLP, registry
from tests.config.examples import EVERYTHING, SAMPLED, minimal, sampled_dssm

OTHER_MODELS = {
    "dlrm { dense_mlp { hidden_units: 8 } final { hidden_units: 4 } arch_with_sparse: false }": registry.make(
        "dlrm", dense_mlp=MLP((8,)), final=MLP((4,)), arch_with_sparse=False
    ),
    "wide_and_deep { deep { hidden_units: 8 } }": registry.make("wide_and_deep", deep=MLP((8,))),
}


@pytest.mark.parametrize("text", OTHER_MODELS)
def test_other_models(text):
    deepfm = EVERYTHING[EVERYTHING.index("  deepfm {") : EVERYTHING.index("  kernel:")]
    changed = EVERYTHING.replace(deepfm, text)
    if "dlrm" in text:
        changed = changed.replace("group_type: WIDE", "group_type: DEEP")
    assert config.import_config(changed).model.architecture == OTHER_MODELS[text]


def test_mmoe():
    loaded = config.import_config(
        minimal(
            """feature_groups { group_name: "all" feature_names: ["u", "i", "p"] }
            mmoe {
              expert_mlp { hidden_units: [8, 4] } gate_mlp { hidden_units: 3 } num_expert: 2
              task_towers { tower_name: "ctr" label_name: "clk" mlp { hidden_units: 2 }
                            losses { jrc_loss { session_name: "s" alpha: 0.4 } } num_class: 2
                            metrics { multiclass_auc { average: "weighted" } } }
              task_towers { tower_name: "cvr" label_name: "buy" weight: 0.5 sample_weight_name: "w"
                            task_space_indicator_label: "clk" out_task_space_weight: 0.1 in_task_space_weight: 2
                            losses { l2_loss {} } train_metrics { accuracy {} } }
            }""",
            '"clk", "buy"',
        )
    )
    towers = loaded.model.architecture.task_towers
    assert [(tower.task, tower.mlp, tower.num_classes) for tower in towers] == [
        ("ctr", MLP((2,)), 2),
        ("cvr", None, 1),
    ]
    assert loaded.tasks == {
        "ctr": config.Task(
            label="clk",
            losses=[losses.JRC("s", 0.4)],
            metrics=[metrics.MulticlassAUC(num_classes=2, average="weighted")],
        ),
        "cvr": config.Task(
            label="buy",
            losses=["l2"],
            weight=0.5,
            sample_weight="w",
            task_space_label="clk",
            in_task_space_weight=2.0,
            out_task_space_weight=0.1,
            train_metrics=[metrics.Decayed(metrics.Accuracy())],
        ),
    }
    assert config.loads(config.dumps(loaded)) == loaded
    # Sparse Adagrad and dense Adam at 1e-3, constant: the optimizers of TorchEasyRec's own examples.
    assert loaded.train.sparse_optimizer == rules.Adagrad(0.001)
    assert (loaded.train.dense_optimizer.optimizer, loaded.train.dense_optimizer.learning_rate) == (dense.Adam(), 0.001)
    # Encoded columns hold ids, and go by the feature's name.
    assert loaded.data.features[1] == IdFeature(
        "i", column="i", num_buckets=8, embedding_dim=4, separator="\x03", pooling="sum"
    )
    assert loaded.data.features[2] == IdFeature(
        "p", column="p", num_buckets=3, embedding_dim=4, separator="\x03", pooling="sum"
    )
    assert len(config.assemble(loaded).specs) == 3
    # Without data to evaluate on there is no evaluation.
    assert loaded.evaluate == config.Evaluate()
    assert loaded.train.checkpoint == config.Checkpoint(every_steps=1000, keep=None)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("hash_bucket_size: 8", 'hash_bucket_size: 8 fg_encoded_default_value: "3"', 3),
        (
            "hash_bucket_size: 8",
            'hash_bucket_size: 8 fg_encoded_default_value: "x"',
            "must be an integer in quotes",
        ),
        ("hash_bucket_size: 8", "", "give one of num_buckets, hash_bucket_size, vocab_list, vocab_dict, vocab_file,"),
        ("with_header: true", "", "is required for CSV files without a header"),
        (
            "with_header: true",
            'input_fields_str: "a:INT64" input_fields { input_name: "a" }',
            "cannot be given together with input_fields; keep one",
        ),
        ("CsvDataset", "CsvDataset fg_mode: FG_DAG", "is required: the column that the feature is made from"),
    ],
)
def test_encoded_columns(old, new, expected):
    groups = 'feature_groups { group_name: "a" feature_names: ["u", "i", "p"] }'
    model = f'{groups} multi_tower {{ towers {{ input: "a" }} final {{ hidden_units: 2 }} }} losses {{ l2_loss {{}} }}'
    text = minimal(model).replace(old, new)
    assert text != minimal(model)
    if isinstance(expected, int):
        assert config.import_config(text).data.features[1].default == expected
    else:
        with pytest.raises(ConfigError, match=f": {re.escape(expected)}"):
            config.import_config(text)


def test_dssm_and_multi_tower():
    groups = 'feature_groups { group_name: "a" feature_names: "u" } '
    groups += 'feature_groups { group_name: "b" feature_names: ["i", "p"] } '
    towers = '{ input: "a" mlp { hidden_units: 4 } }', '{ input: "b" }'
    loaded = config.import_config(
        minimal(
            f"""{groups} dssm {{ user_tower {towers[0]} item_tower {towers[1]} output_dim: 2 similarity: COSINE
            temperature: 0.1 in_batch_negative: true }} losses {{ softmax_cross_entropy {{}} }}
            metrics {{ recall_at_k {{ top_k: 1 }} }}"""
        )
    )
    assert loaded.tasks["clk"].losses == (losses.InBatchSoftmax(temperature=0.1, log_q=False),)
    assert (loaded.model.architecture.similarity, loaded.model.architecture.negatives) == ("cosine", "in_batch")
    loaded = config.import_config(
        minimal(
            f"""{groups} multi_tower {{ towers {towers[0]} towers {towers[1]} final {{ hidden_units: 2 }} }}
            losses {{ binary_cross_entropy {{}} }}"""
        )
    )
    assert [tower.input for tower in loaded.model.architecture.towers] == ["a", "b"]


def test_columns_in_one_text():
    groups = 'feature_groups { group_name: "a" feature_names: ["u", "i", "p"] }'
    model = f'{groups} multi_tower {{ towers {{ input: "a" }} final {{ hidden_units: 2 }} }} losses {{ l2_loss {{}} }}'
    text = minimal(model).replace("with_header: true", 'input_fields_str: "u:INT64; i:BIGINT;p:FLOAT;clk:INT32;"')
    assert config.import_config(text).data.train.columns == ("u", "i", "p", "clk")


def test_sampled_negatives():
    loaded = config.import_config(sampled_dssm())
    assert loaded.data.negatives == config.Negatives(
        items=Split(
            Csv("items.txt", columns=("id", "weight", "attrs"), header=True, separator="\t", quote=None),
            *("attrs", "\x02", ("i", "p")),
        ),
        group="b",
        id_column="i",
        items_id_column="id",
        weight_column="weight",
        count=8,
        evaluate_count=30,
    )
    assert loaded.tasks["clk"].losses == (losses.SampledSoftmax(temperature=0.5, log_q=False),)
    assert loaded.model.architecture.negatives == "sampled"
    assert config.loads(config.dumps(loaded)) == loaded
    in_parquet = config.import_config(sampled_dssm(SAMPLED.replace("items.txt", "items.parquet"))).data.negatives
    assert (in_parquet.items.source, in_parquet.items_id_column) == (Parquet("items.parquet"), "id")


@pytest.mark.parametrize(
    ("sampler", "options", "message"),
    [
        ("", "", "model_config.dssm: needs a negative_sampler in data_config, or in_batch_negative: true"),
        (SAMPLED, "in_batch_negative: true", "model_config.dssm.in_batch_negative: cannot be given together with the"),
        (SAMPLED.replace('attr_fields: ["i", "p"]', ""), "", "data_config.negative_sampler.attr_fields: is required"),
        (SAMPLED.replace("num_sample: 8", "num_sample: 0"), "", "data_config.negative_sampler: must be at least 1"),
    ],
)
def test_wrong_samplers(sampler, options, message):
    with pytest.raises(ConfigError) as error:
        config.import_config(sampled_dssm(sampler, options))
    assert re.sub(r"^line \d+: ", "", str(error.value)).startswith(message)
