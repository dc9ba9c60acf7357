"""The quality check on generated ratings in MovieLens-1M's format: the protocols, and models that learn."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import quality, quality_data
from sparrow.data import ClickLog, write_criteo

USERS, MOVIES, KINDS = 60, 240, 4


def write_movielens(folder, per_user=40, seed=0):
    """Users rate movies of their own kind more often and higher than others, with some noise."""
    rng = np.random.default_rng(seed)
    ratings, movies = [], np.arange(1, MOVIES + 1)
    for user in range(1, USERS + 1):
        own = movies % KINDS == user % KINDS
        chance = np.where(own, 0.8 / own.sum(), 0.2 / (~own).sum())
        for time, movie in enumerate(rng.choice(movies, per_user, replace=False, p=chance)):
            liked = (movie % KINDS == user % KINDS) != (rng.random() < 0.1)
            ratings.append(f"{user}::{movie}::{rng.integers(4, 6) if liked else rng.integers(1, 4)}::{1000 + time}")
    rng.shuffle(ratings)
    (folder / "ratings.dat").write_text("\n".join(ratings) + "\n")
    genres = ["Action", "Comedy", "Drama", "War"]
    movies = [f"{m}::Movie {m} (1999)::{genres[m % KINDS]}" for m in range(1, MOVIES + 1)]
    (folder / "movies.dat").write_text("\n".join(movies) + "\n", encoding="latin1")
    users = [f"{u}::{'MF'[u % 2]}::{25 + 10 * (u % 3)}::{u % 20}::00000" for u in range(1, USERS + 1)]
    (folder / "users.dat").write_text("\n".join(users) + "\n")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "ml-made"
    made.mkdir()
    write_movielens(made)
    return made


def test_the_protocol_of_ranking(folder, tmp_path):
    quality_data.ranking(folder, tmp_path, seed=0)
    train, test = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("train", "test"))
    rows = [set(zip(t["user_id"].to_pylist(), t["movie_id"].to_pylist(), strict=True)) for t in (train, test)]
    assert not rows[0] & rows[1]
    assert train.num_rows == pytest.approx(8 * test.num_rows, abs=8)
    for table in (train, test):
        assert 3.0 not in table["rating"].to_pylist()
        assert [r > 3 for r in table["rating"].to_pylist()] == [label == 1 for label in table["label"].to_pylist()]


def test_the_protocol_of_matching(folder, tmp_path):
    quality_data.matching(folder, tmp_path, seed=0)
    train, test = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("train", "test"))
    assert test["user_id"].to_pylist() == list(range(1, USERS + 1))
    rated = {}
    for line in (folder / "ratings.dat").read_text().split():
        user, movie, _, time = map(int, line.split("::"))
        rated.setdefault(user, {})[movie] = time
    newest = [max(rated[user], key=rated[user].get) for user in range(1, USERS + 1)]
    assert test["movie_id"].to_pylist() == newest
    assert train.num_rows == sum(map(len, rated.values())) - USERS
    candidates = np.load(tmp_path / "candidates.npy")
    assert candidates.shape == (USERS, quality_data.CANDIDATES)
    assert all(not set(row.tolist()) & set(rated[user]) for user, row in enumerate(candidates, 1))


@pytest.mark.slow
def test_models_learn_and_the_table_has_their_figures(folder, capsys, monkeypatch):
    monkeypatch.setattr(quality, "RATINGS_1M", USERS * 40)
    made = quality.main([str(folder), "--models", "deepfm,dssm", "--epochs", "40"])
    figures = {
        row.split(" | ")[0].strip("| "): row.split(" | ")[1:3] for row in made.splitlines() if row.startswith("|")
    }
    assert float(figures["deepfm"][0]) > 0.62  # by chance 0.5
    assert float(figures["dssm"][0]) > 0.25  # by chance 0.1
    assert "published: AutoInt" in figures
    assert "ranking deepfm:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--models", "deepfn"], "unknown model 'deepfn'"), ([], "holds none of")]
)
def test_wrong_arguments(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        quality.main([str(tmp_path), *arguments])
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train.txt", "dac_sample.txt"])
def test_criteo(name, tmp_path):
    write_criteo(ClickLog(impressions=2000, fields=26, counts=13), tmp_path / name)
    made = quality.main([str(tmp_path), "--models", "dcn_v2,dssm", "--epochs", "1"])
    assert "| dcn_v2 |" in made
    assert "dssm" not in made  # no users and items
    assert "published" not in made
