"""Fields of a TorchEasyRec config from the command line, and the report of what became of each."""

import json

import pytest

from sparrow import config
from sparrow.cli import main
from sparrow.config import ConfigError, StartFrom
from sparrow.config.sections.train import BestBy
from sparrow.config.torcheasyrec import Edit, from_json, from_override, import_config, is_edit, read_config
from sparrow.data import Parquet
from tests.config.examples import EVERYTHING, edited, minimal
from tests.config.family import FAMILY
from tests.config.family.parts import TABLE

MMOE = FAMILY["mmoe"]
PATHS = [Edit("train_input_path", "a.parquet"), Edit("eval_input_path", "b.parquet")]


def imported(*edits, text=EVERYTHING):
    return import_config(text, "x.config", [from_override(edit) for edit in edits])


def test_fields_are_set():
    made = imported(
        "train_config.num_steps=20",
        "train_config.sparse_optimizer.rowwise_adagrad_optimizer.lr=0.5",
        "data_config.label_fields=[clicked]".replace("clicked", '"clicked"'),
        "model_dir=runs/new",
        "eval_config={ num_steps: 3 }",
    )
    assert (made.train.steps, made.train.sparse_optimizer.learning_rate.lr) == (10, 0.5)
    assert (made.model_dir, made.evaluate.steps) == ("runs/new", 3)
    assert list(made.tasks) == ["clicked"]


def test_entries_of_lists_are_chosen():
    names = [feature.name for feature in imported().data.features]

    def dims(*edits):
        return {feature.name: feature.width for feature in imported(*edits).data.features}

    by_name = dims(
        "feature_configs[id_feature.feature_name=item].id_feature.embedding_dim=16",
        "model_config.feature_groups[1].feature_names=user",
    )
    assert (by_name["item"], by_name["user"]) == (16, 8)
    first = names.index("item")
    assert (
        dims(
            f"feature_configs[{first}].id_feature.embedding_dim=16", "model_config.feature_groups[1].feature_names=user"
        )
        == by_name
    )
    assert imported("model_config.metrics[0].auc.thresholds=7").tasks["clk"].metrics[0].metric.thresholds == 7


def test_one_of_a_choice_replaces_the_other():
    made = imported("train_config.sparse_optimizer.sgd_optimizer.lr=0.25")
    assert type(made.train.sparse_optimizer).__name__ == "SGD"


def test_the_command_line_decides_between_steps_and_epochs():
    assert imported("train_config.num_epochs=2").train.epochs == 2
    with pytest.raises(ConfigError, match="give either num_steps or num_epochs, above 0, got both"):
        import_config(edited("num_steps: 1000", "num_steps: 1000 num_epochs: 1"))


def test_json_edits():
    assert from_json('{"a.b; c": "1;x", "d": [1, 2]}') == [Edit("a.b", "1"), Edit("c", "x"), Edit("d", "[1, 2]")]
    for wrong, message in (
        ("{", "is not JSON"),
        ("[1]", "must be an object of paths and values"),
        ('{"a;b": 1}', "has 2 paths"),
    ):
        with pytest.raises(ConfigError, match=message):
            from_json(wrong)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("train_config.num_step=1", "unknown field 'num_step': did you mean 'num_steps'"),
        ("train_config.num_steps.x=1", "'num_steps' holds no fields"),
        ("feature_configs.id_feature.embedding_dim=1", "'feature_configs' is a list; choose entries"),
        ("feature_configs[99].id_feature.embedding_dim=1", r"no entry of 'feature_configs' is selected by \[99\]"),
        ("train_config[0].num_steps=1", "'train_config' is not a list"),
        ("train_config.num_steps=many", "train_config.num_steps: must be an integer of at least 0, got many"),
        ("train_config..num_steps=1", "a field is written a.b"),
        ("feature_configs[id_feature.value_dim.x=1].id_feature.value_dim=1", "unknown field 'x': Valid names: none"),
        ("train_config.delta_embedding_dump_config=x", "not supported: dumps of changed rows"),
    ],
)
def test_wrong_edits(edit, message):
    with pytest.raises(ConfigError, match=message):
        imported(edit)


def test_ours_and_theirs_are_told_apart():
    text = config.loads(EVERYTHING, "config", overrides=["train_config.num_steps=20", "train.batch_size=8"])
    assert (text.train.steps, text.train.batch_size) == (10, 8)
    assert not is_edit("train.steps=1")


def test_a_config_of_maxcompute_runs_on_parquet():
    assert TABLE in MMOE
    made = import_config(MMOE, edits=PATHS)
    assert (made.data.train, made.data.evaluate) == (Parquet("a.parquet"), Parquet("b.parquet"))
    with pytest.raises(ConfigError) as error:
        import_config(MMOE, "x.config")
    lines = str(error.value).splitlines()
    assert len(lines) == 2
    assert all("MaxCompute tables are not read" in line for line in lines)
    assert "--train_input_path" in lines[0]
    assert "--eval_input_path" in lines[1]


def test_without_data_to_evaluate_nothing_is_evaluated():
    imported_ = read_config(FAMILY["deepfm"], edits=PATHS[:1])
    assert imported_.config.data.evaluate is None
    assert any(outcome.path == ("eval_input_path",) and outcome.is_note for outcome in imported_.outcomes)


def test_all_problems_at_once_with_their_lines():
    text = edited("num_steps: 1000", "num_step: 1000").replace("num_buckets: 9", "num_buckets: 9 weighted: true")
    text = text.replace('mixed_precision: "FP16"', "is_profiling: 7").replace('"nn.GELU"', '"nn.Gelu"')
    with pytest.raises(ConfigError) as error:
        import_config(text, "x.config")
    found = {problem.path[-1]: problem.line for problem in error.value.problems}
    lines = text.splitlines()
    assert set(found) == {"num_step", "is_profiling", "weighted", "activation"}
    assert all(field in lines[line - 1] for field, line in found.items())
    assert list(found.values()) == sorted(found.values())


def test_fine_tuning_starts_from_a_run():
    assert imported("train_config.fine_tune_checkpoint=runs/old").train.start_from == StartFrom(folder="runs/old")
    made = imported("train_config.fine_tune_checkpoint=runs/old/model.ckpt-300").train.start_from
    assert made == StartFrom(folder="runs/old", step=300)


def test_export_config_names_the_best_checkpoint():
    best = 'export_config { exporter_type: "best" best_exporter_metric: "auc_ctr" metric_larger_is_better: true }'
    made = import_config(best + MMOE, edits=PATHS).train.checkpoint.best_by
    assert made == BestBy(metric="ctr/auc", mode="max")
    with pytest.raises(ConfigError, match="there is no metric 'auc'; the metrics are auc_ctr, auc_cvr"):
        import_config(best.replace("auc_ctr", "auc") + MMOE, edits=PATHS)
    with pytest.raises(ConfigError, match="exported in the precision of its training"):
        import_config('export_config { mixed_precision: "BF16" }' + MMOE, edits=PATHS)
    assert import_config("export_config {}" + MMOE, edits=PATHS).train.checkpoint.best_by is None


def test_the_report_names_the_outcome_of_each_field(tmp_path, capsys):
    path = tmp_path / "x.config"
    path.write_text(edited("shuffle: true", "shuffle: false"))
    assert main(["import-config", str(path), "--report", "--eval_input_path", "e.parquet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("data_config.batch_size: 64: sets train" in line for line in lines)
    assert any("data_config.num_workers: 4: no effect: Sparrow chooses" in line for line in lines)
    assert any("shuffle_buffer_size: 16: no effect: shuffle is false" in line for line in lines)
    assert "command line: eval_input_path: 'e.parquet': sets data" in lines
    path.write_text(edited("num_steps: 1000", "num_step: 1000"))
    assert main(["import-config", str(path), "--report"]) == 2
    assert "num_step: unknown field" in capsys.readouterr().err
    other = tmp_path / "x.yaml"
    other.write_text("{}")
    assert main(["import-config", str(other), "--report"]) == 2


def test_the_command_line_in_torcheasyrecs_words(tmp_path, capsys):
    path = tmp_path / "x.config"
    path.write_text(FAMILY["mask_net"])
    arguments = ["--train_input_path", "t.parquet", "--eval-input-path", "e.parquet", "--fine_tune_checkpoint", "old"]
    edits = json.dumps({"train_config.num_epochs": 3})
    assert main(["import-config", str(path), *arguments, "--edit_config_json", edits, "data_config.batch_size=7"]) == 0
    streams = capsys.readouterr()
    made = config.loads(streams.out)
    assert (made.data.train.path, made.data.evaluate.path) == ("t.parquet", "e.parquet")
    assert (made.train.start_from.folder, made.train.epochs, made.train.batch_size) == ("old", 3, 7)
    assert "note:" in streams.err
    yaml = tmp_path / "x.yaml"
    yaml.write_text(streams.out)
    assert main(["import-config", str(yaml), "--train_input_path", "u.parquet", "--fine_tune_checkpoint", "older"]) == 0
    again = config.loads(capsys.readouterr().out)
    assert (again.data.train.path, again.train.start_from.folder) == ("u.parquet", "older")
    assert main(["import-config", str(yaml), "--edit_config_json", edits]) == 2
    assert "changes configs of TorchEasyRec only" in capsys.readouterr().err


def test_fields_without_effect_are_noted():
    notes = []
    text = minimal(
        """feature_groups { group_name: "a" feature_names: ["u", "i", "p"] }
        multi_tower { towers { input: "a" } final { hidden_units: 2 } } losses { l2_loss {} } kernel: TRITON"""
    ).replace("dataset_type", "pin_memory: true in_order: true num_workers: 3 odps_data_quota_name: 'x' dataset_type")
    config.loads(text, "config", "x.config", note=notes.append)
    assert [note.split(": ")[2] for note in notes] == [
        *(
            "data_config.pin_memory",
            "data_config.in_order",
            "data_config.num_workers",
            "data_config.odps_data_quota_name",
        ),
        "model_config.kernel",
    ]
