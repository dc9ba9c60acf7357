"""Files that fit a config: every kind of feature, labels with a signal, and the command that writes them."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparrow import config, samples
from sparrow.cli import main
from tests.config.family import FAMILY
from tests.config.family.parts import config as family_config


def test_most_values_follow_the_kind_of_their_row():
    drawn = samples.Drawn.of(4000, seed=0)
    ids, labels = drawn.below("item", 1000), drawn.positive()
    assert len(set(ids.tolist())) == 2 * 8
    rates = np.array([labels[ids == each].mean() for each in np.unique(ids)])
    assert (np.minimum(rates, 1 - rates) < 0.2).all()  # an id tells the label, mostly
    other = samples.Drawn.of(4000, seed=0)
    np.testing.assert_array_equal(ids, other.below("item", 1000))


@pytest.mark.parametrize("name", FAMILY)
def test_samples_fit_every_config_of_the_family(name, tmp_path):
    path = tmp_path / "x.config"
    path.write_text(FAMILY[name])
    loaded = config.load(path, [f"{field}=rows.parquet" for field in config.path_fields(path)])
    made = samples.write(loaded, tmp_path / "out", rows=12)
    assert made == config.load(tmp_path / "out" / "config.yaml")
    table = pq.read_table(tmp_path / "out" / "train.parquet")
    assert table.num_rows == 12
    needed = {column for feature in made.data.features for column in feature.columns}
    assert needed <= set(table.column_names)


def test_the_command_writes_the_files_and_their_config(tmp_path, capsys):
    path, out = tmp_path / "dssm.config", tmp_path / "out"
    path.write_text(FAMILY["dssm"])
    assert main(["sample", str(path), str(out), "--rows", "40", "train_config.num_steps=7"]) == 0
    assert sorted(file.name for file in out.iterdir()) == [
        "config.yaml",
        "evaluate.parquet",
        "items.parquet",
        "train.parquet",
    ]
    assert pq.read_table(out / "evaluate.parquet").num_rows == 10
    assert config.load(out / "config.yaml").train.steps == 7
    assert "sparrow train" in capsys.readouterr().out


def test_a_file_of_words_that_does_not_exist_is_written(tmp_path):
    feature = 'id_feature { feature_name: "u" expression: "user:u" embedding_dim: 4 vocab_file: "nowhere.txt" }'
    text = family_config("x", [feature], MODEL)
    path = tmp_path / "x.config"
    path.write_text(text)
    loaded = config.load(path, [f"{field}=rows.parquet" for field in config.path_fields(path)])
    made = samples.write(loaded, tmp_path / "out", rows=8)
    assert len(made.data.features[0].words) == 100


MODEL = """feature_groups { group_name: "all" feature_names: "u" group_type: DEEP }
multi_tower { towers { input: "all" mlp { hidden_units: 4 } } final { hidden_units: 4 } }
metrics { auc {} } losses { binary_cross_entropy {} }"""
