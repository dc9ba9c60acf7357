"""What of a TorchEasyRec config is not supported is refused by name and line."""

import re

import pytest

from sparrow import config
from sparrow.config import ConfigError
from sparrow.config.torcheasyrec.blocks import Findings, read
from sparrow.config.torcheasyrec.groups import groups
from sparrow.config.torcheasyrec.messages import ENUMS, MESSAGES
from sparrow.config.torcheasyrec.text import parse
from tests.config.examples import EVERYTHING, block, edited


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
        "data_config.batch_size: must be an integer of at least 0, got -1",
    ),
    "steps and epochs": (
        "num_steps: 1000",
        "num_steps: 1000 num_epochs: 1",
        "train_config.num_steps: give either num_steps or num_epochs, above 0, got both",
    ),
    "two of a kind": (
        "  kernel: PYTORCH",
        "  dlrm { final { hidden_units: 1 } }",
        "model_config.dlrm: cannot be given together with deepfm of line",
    ),
    "stream": (
        "dataset_type: ParquetDataset",
        "dataset_type: KafkaDataset",
        "data_config.dataset_type: not supported: KafkaDataset; write Parquet files",
    ),
    "table of MaxCompute": (
        '"train/*.parquet, more.parquet"',
        '"odps://project/tables/t/ds=1"',
        "train_input_path: MaxCompute tables are not read; export the table to Parquet files, and add --train_input",
    ),
    "no path": (
        '"train/*.parquet, more.parquet"',
        '""',
        "train_input_path: is empty; add --train_input_path FILES",
    ),
    "other model": ("  kernel: PYTORCH", "  dc2vr {}", "model_config.dc2vr: not supported: there is no such model"),
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
        "norm_type: 0",
        "train_config.grad_clipping.norm_type: must be at least 1, or inf, got 0",
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
        "model_config.feature_groups.sequence_groups: needs an encoder",
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
    "message for a number": ("num_class: 1", "num_class {}", "model_config.num_class: must be an integer"),
    "number for a message": (
        "eval_config { num_steps: 7 log_step_count_steps: 3 use_dense_ema: false }",
        "eval_config: 3",
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


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ('feature_names: ["z", "b", "y", "a"]', ["'z'", "'y'", "'a'"]),
        ('feature_names: "b" sequence_encoders { pooling_encoder { input: "" } }', ["no sequence group ''"]),
    ],
)
def test_names_in_groups_are_refused_in_their_order(group, names):
    made = block(
        f'feature_groups {{ group_name: "all" {group} }} deepfm {{ deep {{ hidden_units: 8 }} }}', "ModelConfig"
    )
    groups(made, {}, ["b"])
    assert len(made.findings.problems) == len(names)
    assert all(name in problem.message for name, problem in zip(names, made.findings.problems, strict=True))


def test_every_refused_field_is_refused():
    """No field of the table is taken and dropped: what is not supported says so."""
    refused = [(kind, field, spec) for kind, fields in MESSAGES.items() for field, spec in fields.items()]
    count = 0
    for kind, field, spec in refused:
        if spec.kind == "refused":
            count += 1
            findings = Findings()
            read(parse(f"\n{field}: 1"), kind, findings)
            problem = next(problem for problem in findings.problems if problem.path == (field,))
            assert problem.line == 2
            assert re.match(r"not supported: \w", problem.message)
    assert count > 9


def test_the_table_names_only_what_it_has():
    for fields in MESSAGES.values():
        for spec in fields.values():
            assert spec.kind != "message" or spec.of in MESSAGES
            assert spec.kind != "enum" or spec.of in ENUMS
            assert spec.kind != "enum" or spec.repeated or spec.default in (None, *ENUMS[spec.of])
