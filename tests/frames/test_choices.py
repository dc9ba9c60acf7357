"""A log of choices, without a target: user and item are enough to fit, and to recommend."""

import io

import numpy as np
import pandas as pd
import pytest

import sparrow as sp
from sparrow.errors import ConfigError, DataError


def log(rows=400):
    user = np.arange(rows) % 20
    return pd.DataFrame(
        {"user": user + 1000, "item": [f"m{n}" for n in (user * 7 + np.arange(rows) // 20) % 30], "at": 5}
    )


def test_a_log_of_choices_is_fitted_and_recommends():
    output = io.StringIO()
    run = sp.fit(log(), user="user", item="item", epochs=1, stream=output)
    lines = output.getvalue().splitlines()
    assert "at    int64         left out: it is neither in user= nor in item=" in lines
    assert any(line.startswith("every row is a choice, by in_batch_softmax") for line in lines)
    assert run.config.tasks["match"].label == ""
    found = run.recommend(pd.DataFrame({"user": [1003, 7]}), k=5, exclude_seen=True)
    assert list(found.columns) == ["user", "item", "score", "rank"]
    assert found["user"].tolist() == [1003] * 5 + [7] * 5
    rows = log()
    assert not set(found["item"][:5]) & set(rows[rows["user"] == 1003]["item"][:1])


def test_seen_items_are_also_those_of_rows_that_are_held_out():
    rows = log()
    own = set(rows[rows["user"] == 1003]["item"])
    for options in ({"evaluate": 0.5}, {"time": "at", "evaluate": True}):
        run = sp.fit(rows, user="user", item="item", epochs=1, stream=io.StringIO(), **options)
        users = pd.DataFrame({"user": [1003], "item_history": [["m1"]]})
        found = run.recommend(users, k=30, exclude_seen=True)
        assert len(own) > 1
        assert set(found["item"]) == set(rows["item"]) - own


def test_a_label_is_left_out_by_losses_of_two_towers_alone():
    made = sp.guess(log(), user=["user"], item=["item"])
    assert "label" not in made.yaml()
    with pytest.raises(ValueError, match=r"label is required, the column that holds the label"):
        sp.config.Task(losses=["l2"])


@pytest.mark.parametrize("given", [{}, {"user": "user"}, {"item": "item"}])
def test_without_a_target_user_and_item_are_needed(given):
    with pytest.raises(ConfigError, match="give target=, the column to predict; or, for a log of choices"):
        sp.guess(log(), **given)


def test_a_log_of_choices_is_for_models_that_match():
    with pytest.raises(ConfigError, match="is for the models dssm, dssm_v2, sasrec, hstu_match; choose one, or give"):
        sp.guess(log(), user="user", item="item", model="deepfm")


def test_a_column_that_does_not_exist():
    with pytest.raises(ConfigError, match="there is no column 'usr': did you mean 'user'"):
        sp.guess(log(), user="usr", item="item")


def test_the_first_columns_of_user_and_item_are_ids_whatever_their_names_and_values():
    rng = np.random.default_rng(0)
    frame = {"member": rng.integers(0, 5000, 20_000) * 7919 % 100_003, "amount": rng.integers(0, 3000, 20_000) * 13.0}
    made = sp.guess(frame, user="member", item="amount")
    assert all("ids" in reading.words for reading in made.readings)


def test_ids_with_fractions_get_one_sentence_and_a_given_kind_is_kept():
    frame = log().assign(user=np.arange(400) + 0.5)
    with pytest.raises(ConfigError, match=r"begin with ids, integers or strings; 'user' is numbers 0\.5 to"):
        sp.guess(frame, user="user", item="item")
    kept = sp.guess(log(), user="user", item="item", features={"user": {"embedding_dim": 3}})
    assert kept.config.data.features[0].embedding_dim == 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"item": "user"}, "user= and item= both name the column 'user'; keep it in one of them"),
        ({"item": "tags"}, "user= and item= begin with ids, integers or strings; 'tags' is bags of ids"),
        ({"target": "tags"}, r"'tags' must hold numbers, got list<.*> such as \[\['a', 'b'\]\]; convert"),
        ({"model": 3}, "model must be a name, or a mapping with the name and options, got 3"),
        ({"model": {"deep": {}}}, "model must be a name, or a mapping with the name and options, got {'deep'"),
        ({"overrides": "train.epochs=3"}, r"overrides must be a list such as \['train.epochs=3'\], got a string"),
    ],
)
def test_wrong_arguments_get_one_sentence(options, why):
    with pytest.raises(ConfigError, match=why):
        sp.guess(log().assign(tags=[["a", "b"]] * 400), **{"user": "user", "item": "item", **options})


def test_an_empty_path_is_not_this_folder():
    with pytest.raises(DataError, match="no path is given; name a file"):
        sp.guess("", user="user", item="item")


def test_towers_of_choices_compare_by_cosine_unless_another_similarity_is_chosen():
    (loss,) = sp.guess(log(), user="user", item="item").config.tasks["match"].losses
    assert loss.temperature == 0.2
    plain = sp.guess(log(), user="user", item="item", model={"name": "dssm", "similarity": "inner_product"})
    assert plain.config.tasks["match"].losses[0].temperature == 1.0
