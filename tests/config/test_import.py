"""Configs of TorchEasyRec: everything that is supported is read as written, and everything else is refused by name."""

import re

import pytest

from sparrow import config, dense, losses, metrics, rules, schedules
from sparrow.config import ConfigError
from sparrow.config.torcheasyrec.blocks import read
from sparrow.config.torcheasyrec.messages import ENUMS, MESSAGES
from sparrow.config.torcheasyrec.optimizers import dense_optimizer, sparse_rule
from sparrow.config.torcheasyrec.tables import initializer
from sparrow.config.torcheasyrec.text import parse
from sparrow.data import ComboFeature, Csv, IdFeature, Parquet, RawFeature, SequenceFeature, Split
from sparrow.embedding.initializers import Constant, Normal, Uniform
from sparrow.models import MLP, registry
from sparrow.training import LossScale
from tests.config.examples import EVERYTHING


@pytest.fixture(scope="module")
def everything():
    return config.import_config(EVERYTHING, "everything.config")


def test_everything_round_trips(everything):
    assert config.loads(config.dumps(everything)) == everything
    assert config.loads(config.dumps(everything, "json", defaults=True), "json") == everything
    assert config.loads(EVERYTHING, "config", overrides=["train.batch_size=1"]).train.batch_size == 1


def test_training(everything):
    train = everything.train
    # Two micro-batches make a step, so that sizes in TorchEasyRec's steps are halved.
    assert train.sparse_optimizer == rules.RowwiseAdagrad(
        learning_rate=schedules.exponential_decay(
            0.01,
            decay_size=100,
            decay_factor=0.9,
            staircase=False,
            warmup_size=10,
            warmup_learning_rate=1e-4,
            min_learning_rate=1e-4,
        ),
        weight_decay=0.001,
        weight_decay_mode="decouple",
        max_gradient=2.5,
    )
    main = train.dense_optimizer
    assert main.optimizer == dense.Adam(beta1=0.8, beta2=0.99, eps=1e-7, amsgrad=True)
    assert (main.l2, main.weight_decay, main.clip_norm, main.clip_value) == (0.1, 0.0, 5.0, None)
    assert main.learning_rate == schedules.manual_steps(0.003, (50, 100), (0.002, 0.001), warmup=True)
    first, second = main.parts.values()
    assert (first.patterns, first.optimizer) == (("deep/.*",), dense.AdamW())
    assert (first.weight_decay, first.l2) == (0.2, 0.0)
    assert first.learning_rate == schedules.cosine_annealing(
        0.004, t_max=3, warmup_size=1, min_learning_rate=1e-5, by_epoch=True
    )
    # A part without a schedule follows the main one, from its own base rate.
    assert second.learning_rate == schedules.manual_steps(0.5, (50, 100), (0.002, 0.001), warmup=True)
    assert second.optimizer == dense.SGD(momentum=0.8, nesterov=True)
    assert (train.steps, train.epochs, train.batch_size, train.accumulate) == (500, None, 64, 2)
    assert (train.precision, train.loss_scale) == ("float16", LossScale(1024.0, 3.0, 0.25, 100))
    assert (train.ema, train.log_every_steps, train.tensorboard) == (0.99, 25, True)
    assert train.summaries == (
        *("loss", "learning_rate", "parameter", "gradient", "gradient_norm", "global_gradient_norm"),
    )
    assert train.checkpoint == config.Checkpoint(every_steps=250, keep=3)
    assert train.table_optimizers == (config.TableOptimizer(tables=["shop"], optimizer=rules.SGD(0.0)),)
    # Evaluated at every checkpoint.
    assert everything.evaluate == config.Evaluate(
        steps=7, batch_size=128, use_ema=False, log_every_steps=3, every_steps=250
    )
    assert everything.model_dir == "experiments/everything"


def test_data(everything):
    data = everything.data
    assert (data.train, data.evaluate) == (Parquet(("train/*.parquet", "more.parquet")), Parquet("eval.parquet"))
    assert (data.shuffle_rows, data.drop_remainder) == (16 * 64, True)
    assert {feature.name: feature for feature in data.features} == {
        "user": IdFeature(
            "user",
            column="uid",
            table="people",
            num_buckets=100,
            embedding_dim=8,
            pooling="mean",
            default=7,
            separator="|",
        ),
        "friend": IdFeature(
            "friend",
            column="friend",
            table="people",
            num_buckets=100,
            embedding_dim=8,
            pooling="mean",
            separator="\x1d",
        ),
        "item": IdFeature(
            "item", column="iid", hash_bucket_size=1000, embedding_dim=8, separator="\x1d", pooling="sum"
        ),
        "shop": IdFeature(
            "shop", column="shop", vocabulary=("a", "b"), embedding_dim=8, separator="\x1d", pooling="sum"
        ),
        "city": IdFeature("city", column="city", vocabulary="c.txt", embedding_dim=8, separator="\x1d", pooling="sum"),
        "price": RawFeature("price", column="price", dim=2, separator=",", mean=1.5, std=2.0, missing=0.5),
        "clicks": RawFeature("clicks", column="clicks", separator="\x1d", log10_above=0.01, log10_default=-3.0),
        "rank": RawFeature("rank", column="rank", separator="\x1d", mean=1.0, std=10.0),
        "tags": IdFeature(
            "tags",
            column="tags",
            hash_bucket_size=20,
            embedding_dim=8,
            separator="|",
            weight_separator=":",
            pooling="sum",
        ),
        "age": RawFeature("age", column="age", boundaries=(18.0, 30.5), embedding_dim=8, separator="\x1d"),
        "user_shop": ComboFeature("user_shop", cross=("uid", "shop"), hash_bucket_size=50, embedding_dim=8),
        "seen__item": SequenceFeature(
            "seen__item",
            column="seen__iid",
            table="seen_items",
            hash_bucket_size=1000,
            embedding_dim=8,
            max_length=20,
            separator="|",
            keep="first",
            pooling="mean",
        ),
        "bought": SequenceFeature(
            "bought",
            column="bought",
            num_buckets=9,
            embedding_dim=8,
            max_length=5,
            separator=";",
            keep="first",
            pooling="sum",
        ),
    }


def test_model_and_tasks(everything):
    deep = MLP((32, 16), dropout_ratio=(0.1, 0.2), activation="gelu", use_bn=True, bias=False)
    final = MLP((8,), dropout_ratio=0.3, use_ln=True)
    assert everything.model.architecture == registry.make("deepfm", deep=deep, final=final)
    assert everything.model.wide_dim == 2
    assert everything.model.groups == {
        "wide": ("user", "item"),
        "fm": ("user", "friend", "item"),
        "deep": (
            "user",
            "item",
            "shop",
            "city",
            "price",
            "clicks",
            "rank",
            "tags",
            "age",
            "user_shop",
            "seen__item",
            "bought",
        ),
    }
    assert everything.model.tables == (
        config.TableOptions(tables=["people_wide", "item_wide"], initializer={"name": "constant", "value": 0.0}),
        config.TableOptions(tables=["item"], initializer={"name": "uniform", "low": -0.01, "high": 0.02}),
        config.TableOptions(tables=["tags"], dtype="float16"),
    )
    (task,) = everything.tasks.values()
    assert (task.label, task.sample_weight) == ("clk", "weight")
    assert task.losses == (losses.BinaryCrossEntropy(label_smoothing=0.1), losses.BinaryFocal(gamma=1.0, alpha=0.25))
    assert [use.metric for use in task.metrics] == [
        metrics.AUC(thresholds=100),
        metrics.Accuracy(threshold=0.4),
        metrics.GroupedAUC(),
        metrics.NormalizedEntropy(eta=1e-6),
        metrics.MAE(),
        metrics.MSE(),
        metrics.XAUC(sample_ratio=0.5),
        metrics.XAUC(max_pairs=1000),
        metrics.XAUC(in_batch=True),
        metrics.GroupedXAUC(),
    ]
    assert [use.group_by for use in task.metrics if use.group_by] == ["user_key", "user_key"]
    assert [use.metric for use in task.train_metrics] == [
        metrics.DecayedAUC(thresholds=50, decay_rate=0.8, decay_step=10),
        metrics.Decayed(metrics.MAE(), decay_rate=0.9, decay_step=100),
    ]


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
    block = read(parse(f"{text} constant_learning_rate {{}}"), "SparseOptimizer")
    assert sparse_rule(block, 1) == SPARSE[text]


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
    section = dense_optimizer(read(parse(f"{text} constant_learning_rate {{}}"), "DenseOptimizer"), 1, None)
    assert (section.optimizer, section.l2, section.weight_decay) == DENSE[text]
    assert section.learning_rate == 0.002


def test_cosine_restarts():
    text = "sgd_optimizer {lr: 1} cosine_annealing_warm_restarts_learning_rate { T_0: 8 T_mult: 2 warmup_size: 4 }"
    rule = sparse_rule(read(parse(text), "SparseOptimizer"), accumulate=2)
    assert rule.learning_rate == schedules.cosine_annealing_warm_restarts(1.0, t_0=4, t_mult=2, warmup_size=2)


def edited(old, new):
    assert EVERYTHING.count(old) == 1, old
    return EVERYTHING.replace(old, new)


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
    assert loaded.data.features[2] == IdFeature("p", num_buckets=3, embedding_dim=4, separator="\x03", pooling="sum")
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
            "must be a whole number in quotes",
        ),
        ("hash_bucket_size: 8", 'vocab_list: "a"', "not supported with fg_mode FG_NONE"),
        ("hash_bucket_size: 8", "", "give one of num_buckets, hash_bucket_size, vocab_list and vocab_file, got none"),
        ("hash_bucket_size: 8", "hash_bucket_size: 8 value_dim: 2", "not supported: ids may be one or any number"),
        ("with_header: true", "", "is required for CSV files without a header"),
        (
            "with_header: true",
            'input_fields_str: "a:INT64" input_fields { input_name: "a" }',
            "cannot stand beside input_fields; keep one",
        ),
        ("dataset_type: CsvDataset", "dataset_type: ParquetDataset", "belongs to CsvDataset"),
        ("CsvDataset", "CsvDataset fg_mode: FG_DAG", "is required: the column that the feature is made from"),
        ("CsvDataset", "CsvDataset shuffle_buffer_size: 3", "has no effect without shuffle: true"),
        ('"clk"]', '"clk", "buy"]', "one is used, got 2: clk, buy; remove the others"),
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
    assert loaded.tasks["clk"].losses == (losses.InBatchSoftmax(temperature=0.1),)
    assert (loaded.model.architecture.similarity, loaded.model.architecture.negatives) == ("cosine", "in_batch")
    loaded = config.import_config(
        minimal(
            f"""{groups} multi_tower {{ towers {towers[0]} towers {towers[1]} final {{ hidden_units: 2 }} }}
            losses {{ binary_cross_entropy {{}} }}"""
        )
    )
    assert [tower.input for tower in loaded.model.architecture.towers] == ["a", "b"]


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


def test_sampled_negatives():
    loaded = config.import_config(sampled_dssm())
    assert loaded.data.negatives == config.Negatives(
        items=Split(Csv("items.txt", separator="\t", quote=None), "attrs:string", "\x02", ("i", "p")),
        group="b",
        id_column="i",
        items_id_column="id:int64",
        weight_column="weight:float",
        count=8,
        evaluate_count=30,
    )
    assert loaded.tasks["clk"].losses == (losses.SampledSoftmax(temperature=0.5),)
    assert loaded.model.architecture.negatives == "sampled"
    assert config.loads(config.dumps(loaded)) == loaded
    in_parquet = config.import_config(sampled_dssm(SAMPLED.replace("items.txt", "items.parquet"))).data.negatives
    assert (in_parquet.items.source, in_parquet.items_id_column) == (Parquet("items.parquet"), "id")


@pytest.mark.parametrize(
    ("sampler", "options", "message"),
    [
        ("", "", "model_config.dssm: needs a negative_sampler in data_config, or in_batch_negative: true"),
        (SAMPLED, "in_batch_negative: true", "model_config.dssm.in_batch_negative: cannot stand beside the"),
        (SAMPLED.replace('attr_fields: ["i", "p"]', ""), "", "data_config.negative_sampler.attr_fields: is required"),
        (SAMPLED.replace("num_sample: 8", "num_sample: 0"), "", "data_config.negative_sampler: must be at least 1"),
        ("hard_negative_sampler {}", "", "data_config.hard_negative_sampler: not supported: of the samplers only"),
    ],
)
def test_wrong_samplers(sampler, options, message):
    with pytest.raises(ConfigError) as error:
        config.import_config(sampled_dssm(sampler, options))
    assert re.sub(r"^line \d+: ", "", str(error.value)).startswith(message)


def line_of(text, needle):
    return text[: text.index(needle)].count("\n") + 1


REFUSED = {
    "unknown field": (
        "num_steps: 1000",
        "num_step: 1000",
        "train_config.num_step: unknown field: did you mean 'num_steps'?",
    ),
    "wrong type": (
        "batch_size: 64",
        "batch_size: -1",
        "data_config.batch_size: must be a whole number of at least 0, got -1",
    ),
    "steps and epochs": (
        "num_steps: 1000",
        "num_steps: 1000 num_epochs: 1",
        "train_config.num_steps: give either num_steps or num_epochs, above 0, got both",
    ),
    "twice": ("num_class: 1", "num_class: 1 num_class: 2", "model_config.num_class: is given twice"),
    "two of a kind": (
        "  kernel: PYTORCH",
        "  dlrm { final { hidden_units: 1 } }",
        "model_config.dlrm: cannot stand beside deepfm of line",
    ),
    "other dataset": (
        "dataset_type: ParquetDataset",
        "dataset_type: OdpsDataset",
        "data_config.dataset_type: not supported: OdpsDataset; export the data to Parquet",
    ),
    "other model": ("  kernel: PYTORCH", "  dbmtl {}", "model_config.dbmtl: not supported: the models are deepfm,"),
    "decay of no effect": (
        "weight_decay_mode: DECOUPLE",
        "",
        "train_config.sparse_optimizer.rowwise_adagrad_optimizer.weight_decay: 0.001 has no effect with",
    ),
    "clipping of no effect": (
        "gradient_clipping: true max_gradient",
        "max_gradient",
        "train_config.sparse_optimizer.rowwise_adagrad_optimizer.max_gradient: has no effect without",
    ),
    "parts of one pattern": (
        '"logits/.*"',
        '"deep/.*"',
        "train_config.dense_optimizer.part_optimizers.regex_pattern: is the pattern of an earlier part",
    ),
    "average that is not kept": (
        "ema { decay: 0.99 }",
        "",
        "evaluate.use_ema is true, but train.ema keeps no average",
    ),
    "other norm": (
        "norm_type: 2",
        "norm_type: 1",
        "train_config.grad_clipping.norm_type: not supported: only the norm 2",
    ),
    "global clipping": (
        "enable_global_grad_clip: false",
        "enable_global_grad_clip: true",
        "train_config.grad_clipping.enable_global_grad_clip: not supported",
    ),
    "precision": (
        'mixed_precision: "FP16"',
        'mixed_precision: "FP8"',
        "train_config.mixed_precision: must be 'BF16', 'FP16' or left out, got 'FP8'",
    ),
    "steps that do not divide": (
        "num_steps: 1000",
        "num_steps: 1001",
        "train_config.num_steps: counts micro-batches, of which gradient_accumulation_steps makes 2 a step; 1001",
    ),
    "what a record refuses": (
        "decay_factor: 0.9",
        "decay_factor: 0",
        "train_config.sparse_optimizer.exponential_decay_learning_rate: ExponentialDecay.decay_factor must be a finite",
    ),
    "unknown summary": (
        '"gradient_norm"',
        '"gradients"',
        "train_config.tensorboard_summaries: unknown summary 'gradients': did you mean 'gradient'?",
    ),
    "unknown activation": (
        '"nn.GELU"',
        '"nn.Gelu"',
        "model_config.deepfm.deep.activation: must be one of 'nn.ReLU'",
    ),
    "sequence without pooling": (
        'sequence_encoders { pooling_encoder { input: "bought" pooling_type: "sum" } }',
        "",
        "model_config.feature_groups.sequence_groups: needs a pooling_encoder",
    ),
    "init_fn": (
        "num_buckets: 9",
        'num_buckets: 9 init_fn: "nn.init.orthogonal_"',
        "feature_configs.sequence_id_feature.init_fn: not supported: 'nn.init.orthogonal_'; the functions are nn.init.",
    ),
    "init_fn with a wrong argument": (
        "a=-0.01,b=0.02",
        "low=-0.01",
        "feature_configs.id_feature.init_fn: nn.init.uniform_ takes a, b, got 'low=-0.01'",
    ),
    "init_fn out of range": (
        "a=-0.01,b=0.02",
        "0.5,0.1",
        "feature_configs.id_feature.init_fn: uniform: low 0.5 is above high 0.1",
    ),
    "precision of a table": (
        '"FP16" }',
        '"INT8" }',
        "feature_configs.id_feature.data_type: not supported: 'INT8'; FP32",
    ),
    "a table of two minds": (
        'pooling: "mean" }',
        'pooling: "mean" data_type: "FP16" }',
        "feature_configs.id_feature.data_type: differs between features that share the table 'people'",
    ),
    "weights of a sequence": (
        "num_buckets: 9",
        "num_buckets: 9 weighted: true",
        "feature_configs.sequence_id_feature.weighted: not supported",
    ),
    "normalizer": (
        "method=zscore",
        "method=expression",
        "feature_configs.raw_feature.normalizer: not supported: 'method=expression,",
    ),
    "normalizer of other numbers": (
        "threshold=1e-2,",
        "",
        "feature_configs.raw_feature.normalizer: log10 takes threshold and default, got",
    ),
    "normalizer of nothing": (
        "min=1,max=11",
        "min=1,max=1",
        "feature_configs.raw_feature.normalizer: min must be below max",
    ),
    "message for a number": ("num_class: 1", "num_class {}", "model_config.num_class: must be a whole number"),
    "number for a message": (
        "eval_config {",
        "eval_config: 3 model_dir {",
        "eval_config: is a message, written eval_config",
    ),
    "enum": (
        "group_type: WIDE",
        "group_type: WIDER",
        "model_config.feature_groups.group_type: must be one of DEEP, WIDE",
    ),
    "missing": ('label_fields: "clk"', "", "data_config.label_fields: is required"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_and_line(name):
    old, new, message = REFUSED[name]
    text = edited(old, new)
    if name == "average that is not kept":
        text = text.replace("use_dense_ema: false", "use_dense_ema: true")
    with pytest.raises(ConfigError) as error:
        config.import_config(text, "x.config")
    assert re.sub(r"^x\.config:\d+: ", "", str(error.value)).startswith(message)
    (problem,) = error.value.problems
    # The line is that of the edit, or of the message around it.
    lines = text.splitlines()
    if not problem.path:  # two sections do not fit each other
        return
    assert problem.line <= line_of(EVERYTHING, old) <= problem.line + 20
    assert any(str(key) in lines[problem.line - 1] for key in problem.path)


def test_every_refused_field_is_refused():
    """No field of the table is taken and dropped: what is not supported says so."""
    refused = [(kind, field, spec) for kind, fields in MESSAGES.items() for field, spec in fields.items()]
    count = 0
    for kind, field, spec in refused:
        if spec.kind == "refused":
            count += 1
            with pytest.raises(ConfigError, match=rf"^line 2: {field}: not supported: \w"):
                read(parse(f"\n{field}: 1"), kind)
    assert count > 80


def test_the_table_names_only_what_it_has():
    for fields in MESSAGES.values():
        for spec in fields.values():
            assert spec.kind != "message" or spec.of in MESSAGES
            assert spec.kind != "enum" or spec.of in ENUMS
            assert spec.kind != "enum" or spec.default in (None, *ENUMS[spec.of])


EXCLUDED = {
    *("num_epochs", "save_checkpoints_epochs"),  # stand in for steps
    *("delimiter", "with_header", "input_fields_str"),  # of CSV files
    "negative_sampler",  # of DSSM
    "fg_encoded_default_value",  # of encoded columns
}


def test_the_example_holds_every_supported_field():
    """The example says what it claims; the kinds that exclude those it uses have tests of their own."""
    elsewhere = {
        *(
            "DLRM",
            "WideAndDeep",
            "MultiTower",
            "Tower",
            "MMoE",
            "TaskTower",
            "DSSM",
            "NegativeSampler",
            "MulticlassAUC",
            "JRCLoss",
        ),
        *("SoftmaxCrossEntropy", "L2Loss", "RecallAtK"),
        *(kind for kind in MESSAGES if kind.startswith("Fused") and kind != "FusedRowWiseAdagradOptimizer"),
        *("AdagradOptimizer", "AdadeltaOptimizer", "RMSpropOptimizer", "ConstantLR", "CosineAnnealingWarmRestartsLR"),
    }
    for kind in MESSAGES.keys() - elsewhere:
        for field, spec in MESSAGES[kind].items():
            if spec.kind != "refused" and not spec.choice and field not in EXCLUDED:
                assert re.search(rf"\b{field}\b", EVERYTHING), (kind, field)


def test_columns_in_one_text():
    groups = 'feature_groups { group_name: "a" feature_names: ["u", "i", "p"] }'
    model = f'{groups} multi_tower {{ towers {{ input: "a" }} final {{ hidden_units: 2 }} }} losses {{ l2_loss {{}} }}'
    text = minimal(model).replace("with_header: true", 'input_fields_str: "u:INT64; i:BIGINT;p:FLOAT;clk:INT32;"')
    assert config.import_config(text).data.train.columns == ("u", "i", "p", "clk")


INITIALIZERS = {
    "nn.init.uniform_": Uniform(0.0, 1.0),
    "torch.nn.init.normal_, std=0.01": Normal(0.0, 0.01),
    "nn.init.trunc_normal_,0,0.1,a=-0.2": Normal(0.0, 0.1, -0.2, 2.0),
    "nn.init.constant_,val=0.5": Constant(0.5),
    "nn.init.ones_": Constant(1.0),
}


@pytest.mark.parametrize("text", INITIALIZERS)
def test_initializers(text):
    made = initializer(read(parse(f'feature_name: "x" embedding_dim: 1 init_fn: "{text}"'), "IdFeature"), "init_fn")
    assert made == INITIALIZERS[text]
