"""Wrong configs: each gives one line, with the field, the value, and what to do."""

import json

import pytest
import yaml

from sparrow import config
from sparrow.config import ConfigError
from tests.config.examples import DELETE, valid

WRONG = {
    "misspelled section": (valid(trian={}), "trian: unknown field: did you mean 'train'?"),
    "misspelled field": (valid(train__batch_siz=4), "train.batch_siz: unknown field: did you mean 'batch_size'?"),
    "missing field": (valid(train__batch_size=DELETE), "train.batch_size: is required"),
    "text for a number": (valid(train__batch_size="4k"), "train.batch_size: must be an integer, got '4k'"),
    "number out of range": (valid(train__batch_size=0), "train.batch_size: must be at least 1, got 0"),
    "true for a number": (valid(train__ema=True), "train.ema: must be a number, got True"),
    "steps and epochs": (valid(train__epochs=2), "train: give either steps or epochs, got both"),
    "neither steps nor epochs": (valid(train__steps=DELETE), "train: give either steps or epochs, got neither"),
    "unknown precision": (
        valid(train__precision="fp16"),
        "train.precision: must be 'float32', 'bfloat16' or 'float16', got 'fp16'",
    ),
    "unknown rule": (
        valid(train__sparse_optimizer={"name": "rowwise_adagrd"}),
        "train.sparse_optimizer.name: unknown rule 'rowwise_adagrd': did you mean 'rowwise_adagrad'?",
    ),
    "rule without a name": (
        valid(train__sparse_optimizer={"learning_rate": 0.1}),
        "train.sparse_optimizer: a rule needs a 'name'. Valid names:",
    ),
    "unknown hyper-parameter": (
        valid(train__dense_optimizer__optimizer={"name": "adam", "beta_2": 0.9}),
        "train.dense_optimizer.optimizer.beta_2: unknown field: did you mean 'beta2'?",
    ),
    "hyper-parameter out of range": (
        valid(train__sparse_optimizer={"name": "adam", "beta1": 1.5}),
        "train.sparse_optimizer: Adam.beta1 must be a finite number at least 0 and below 1, got 1.5",
    ),
    "schedule without its sizes": (
        valid(train__dense_optimizer__learning_rate={"name": "linear", "lr": 0.1, "end": 0.0}),
        "train.dense_optimizer.learning_rate.steps: is required",
    ),
    "negative rate": (
        valid(train__dense_optimizer__learning_rate=-0.1),
        "train.dense_optimizer: learning_rate must be at least 0, got -0.1",
    ),
    "rate that is not finite": (
        valid(train__dense_optimizer__learning_rate=float("inf")),
        "train.dense_optimizer.learning_rate: must be a finite number, got inf",
    ),
    "part called main": (
        valid(train__dense_optimizer__parts={"main": {"patterns": ["x"], "optimizer": "sgd", "learning_rate": 0.1}}),
        "train.dense_optimizer: 'main' is the name of the parameters that no part takes",
    ),
    "two checkpoint policies": (
        valid(train__checkpoint={"every_steps": 10, "every_epochs": 1}),
        "train.checkpoint: every_steps (10) and every_epochs (1) exclude each other; keep one",
    ),
    "unknown loss": (
        valid(tasks__click__losses=["bce"]),
        "tasks.click.losses[0].name: unknown loss 'bce': did you mean 'binary_cross_entropy'? Valid names: ",
    ),
    "no loss": (valid(tasks__click__losses=[]), "tasks.click.losses: must not be empty"),
    "metric by group without groups": (
        valid(tasks__click__metrics=["grouped_auc"]),
        "tasks.click.metrics[0]: GroupedAUC works by group; add group_by, the column to group by",
    ),
    "groups for a metric without": (
        valid(tasks__click__metrics=[{"name": "auc", "group_by": "user"}]),
        "tasks.click.metrics[0]: AUC does not work by group; remove group_by 'user'",
    ),
    "wrong metric option": (
        valid(tasks__click__metrics=[{"name": "auc", "thresholds": "many"}]),
        "tasks.click.metrics[0].thresholds: must be an integer, got 'many'",
    ),
    "task space without its label": (
        valid(tasks__click__out_task_space_weight=0.0),
        "tasks.click: task-space weights need task_space_label, the column that marks the task's space",
    ),
    "feature without a size": (
        valid(data__features=[{"kind": "id", "name": "user", "embedding_dim": 4}]),
        "data.features[0]: feature 'user': give exactly one of num_buckets, hash_bucket_size, vocabulary and dynamic",
    ),
    "feature without a kind": (
        valid(data__features=[{"name": "user"}]),
        "data.features[0]: a feature needs a 'kind'. Valid names: bag_sequence, combo, id, raw, raw_sequence, sequence",
    ),
    "features of one name": (
        valid(data__features=[{"kind": "raw", "name": "x"}, {"kind": "raw", "name": "x"}]),
        "data: two of the features are called 'x'; names must be unique",
    ),
    "unknown source": (
        valid(data__train={"name": "parquett", "path": "x"}),
        "data.train.name: unknown source 'parquett': did you mean 'parquet'?",
    ),
    "wrong layer": (
        valid(model__architecture={"name": "deepfm", "deep": {"hidden_units": [0]}}),
        "model.architecture.deep: MLP.hidden_units must be integers of at least 1, got (0,)",
    ),
    "misspelled layer option": (
        valid(model__architecture={"name": "deepfm", "deep": {"hidden_unit": [8]}}),
        "model.architecture.deep.hidden_unit: unknown field: did you mean 'hidden_units'?",
    ),
    "early stopping without a direction": (
        valid(evaluate={"early_stopping": {"metric": "auc", "mode": "up"}}),
        "evaluate.early_stopping.mode: must be 'max' or 'min', got 'up'",
    ),
    "early stopping without evaluations": (
        valid(evaluate={"early_stopping": {"metric": "auc", "mode": "max"}}),
        "evaluate: early_stopping needs evaluations to watch; add every_steps or every_epochs",
    ),
    "two evaluation policies": (
        valid(evaluate={"every_steps": 1, "every_epochs": 1}),
        "evaluate: every_steps (1) and every_epochs (1) exclude each other; keep one",
    ),
    "average that is not kept": (
        valid(evaluate={"use_ema": True}),
        "evaluate.use_ema is true, but train.ema keeps no average; set it, for example to 0.999",
    ),
    "towers that are not the tasks": (
        valid(
            model__architecture={
                "name": "mmoe",
                "expert_mlp": {"hidden_units": [8]},
                "task_towers": [{"task": "click"}, {"task": "buy"}],
            }
        ),
        "the task_towers of the model are click, buy, the tasks are click; make them equal",
    ),
    "negatives for nobody": (
        valid(
            model__architecture={"name": "dssm", "user_tower": {"input": "wide"}, "item_tower": {"input": "deep"}},
            data__negatives={"items": {"name": "parquet", "path": "x"}, "group": "deep", "id_column": "i", "count": 4},
        ),
        "data.negatives is not used by model.architecture.negatives 'in_batch'; set 'sampled'",
    ),
    "negatives from nowhere": (
        valid(tasks__click__losses=["sampled_softmax"]),
        "sampled negatives need data.negatives, the source that they are drawn from",
    ),
    "no negatives": (
        valid(data__negatives={"items": {"name": "parquet", "path": "x"}, "group": "a", "id_column": "i", "count": 0}),
        "data.negatives.count: must be at least 1 or 'all', got 0",
    ),
    "table of another precision": (
        valid(model__tables=[{"tables": ["id_0"], "dtype": "float64"}]),
        "model.tables[0].dtype: must be 'float32', 'bfloat16' or 'float16', got 'float64'",
    ),
    "unknown initializer": (
        valid(model__tables=[{"tables": ["id_0"], "initializer": "unifrom"}]),
        "model.tables[0].initializer.name: unknown initializer 'unifrom': did you mean 'uniform'?",
    ),
    "limits the wrong way round": (
        valid(model__tables=[{"tables": ["id_0"], "min_value": 1.0, "max_value": 0.0}]),
        "model.tables[0]: min_value 1 is above max_value 0",
    ),
    "two logarithms": (
        valid(data__features=[{"kind": "raw", "name": "x", "log": True, "log10_above": 0.0}]),
        "data.features[0]: feature 'x': log and log10_above are two logarithms; keep one",
    ),
    "two kinds of weights": (
        valid(
            data__features=[
                {
                    **{"kind": "id", "name": "x", "num_buckets": 2, "embedding_dim": 4},
                    **{"weight_column": "w", "weight_separator": ":"},
                }
            ]
        ),
        "data.features[0]: feature 'x': weight_column and weight_separator exclude each other",
    ),
    "line breaks without quotes": (
        valid(data__train={"name": "csv", "path": "x", "quote": None, "newlines_in_values": True}),
        "data.train: source 'csv': newlines_in_values needs a quote around values with line breaks",
    ),
    "list for a mapping": (valid(tasks=[]), "tasks: must be a mapping of names to values, got ()"),
    "name that is a number": (valid(tasks={1: {}}), "tasks: a field's name must be a string, got 1; put it in quotes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_clear_line(name):
    data, message = WRONG[name]
    with pytest.raises(ConfigError) as error:
        config.from_mapping(data)
    line = str(error.value).splitlines()[0]
    assert line.startswith(message)
    # A misspelled required field is two problems: it is missing, and something unknown is there.
    assert len(error.value.problems) == (2 if name == "misspelled layer option" else 1)


def test_the_config_they_are_made_from_is_right():
    assert config.from_mapping(valid()).train.batch_size == 4


@pytest.mark.parametrize("name", [name for name in WRONG if name != "name that is a number"])
def test_the_same_from_yaml_with_the_line(name):
    data, message = WRONG[name]
    text = yaml.safe_dump(data, sort_keys=False)
    with pytest.raises(ConfigError) as error:
        config.loads(text, source="p.yaml")
    first = error.value.problems[0]
    assert str(error.value).splitlines()[0].startswith(f"p.yaml:{first.line}: {message}")
    if not first.path:  # two sections do not fit each other
        return
    # The line is that of the field, or of the nearest one around it.
    key = next(str(key) for key in reversed(first.path) if not isinstance(key, int))
    around = [str(key) for key in first.path if not isinstance(key, int)]
    written = text.splitlines()[first.line - 1]
    assert any(f"{parent}:" in written for parent in [key, *around]) or written.strip().startswith("-")


FILES = {
    "twice in YAML": ("yaml", "train:\n  steps: 1\n  steps: 2\n", "f:3: train.steps: is given twice, first on line 2"),
    "not YAML": ("yaml", "train: [1,\n", "f:2: is not YAML: while parsing a flow node"),
    "a list": ("yaml", "- 1", "f: a config is a mapping of sections, got [1]"),
    "nothing": ("yaml", "", "f: a config is a mapping of sections, got None"),
    "an alias in itself": ("yaml", "a: &a [*a]", "f: is nested too deeply"),
    "aliases of aliases": (
        "yaml",
        "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
        "f: holds more than 200000 values",
    ),
    "a date that is none": ("yaml", "a: 2020-99-99", "f: is not YAML: month must be in 1..12"),
    "not JSON": ("json", '{"train": }', "f:1: is not JSON: Expecting value (column 11)"),
    "twice in JSON": ("json", '{"a": 1, "a": 2}', "f: the field 'a' is given twice in one mapping"),
    "deep JSON": ("json", "[" * 100_000, "f: is nested too deeply"),
    "unknown form": ("toml", "", "f: unknown format 'toml': Valid names: config, json, yaml"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_read(name):
    form, text, message = FILES[name]
    with pytest.raises(ConfigError) as error:
        config.loads(text, form, "f")
    assert str(error.value).startswith(message)
    assert len(str(error.value).splitlines()) == 1


OVERRIDES = {
    "train.batch_siz=1": "train.batch_siz: unknown field: did you mean 'batch_size'?",
    "train.batch_size=": "train.batch_size: must be an integer, got None",
    "train.batch_size": "an override is written field.field=value or field[0].field=value, got 'train.batch_size'",
    "train..steps=1": "an override is written",
    "train[0]=1": "train: is not a list, so train[0] cannot be set",
    "tasks.click.losses[3]=jrc": "tasks.click.losses[3]: there is no such index, the length of the list is 1",
    "train.steps.x=1": "train.steps: is 3, so train.steps.x cannot be set",
    "train.steps=[": "train.steps: the override's value is not YAML: '['",
}


@pytest.mark.parametrize("text", OVERRIDES)
def test_wrong_overrides(text):
    with pytest.raises(ConfigError) as error:
        config.loads(json.dumps(valid()), "json", overrides=[text])
    assert str(error.value).startswith(OVERRIDES[text])
    assert len(str(error.value).splitlines()) == 1
