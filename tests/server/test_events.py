"""Users with a key: their histories are states, which candidates read and new events continue."""

import asyncio
import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparrow import serving
from sparrow.server import Limits
from sparrow.server.known_users import KnownUsers
from sparrow.serving import States
from tests.exports import test_states
from tests.server.test_server import post, serving_of

LIMITS = Limits(user_seconds=600, batch_rows=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("events")
    pq.write_table(test_states.rows(128), made / "train.parquet")
    for name in ("hstu_ranker", "deepfm"):
        run = test_states.runs.train(test_states.described(made, name))
        run.export(made / name, states=name != "deepfm")
    return made


def asked(folder, *requests, limits=LIMITS):
    async def ask():
        async with serving_of(folder, limits) as client:
            return [await post(client, json.dumps(body).encode(), path) for path, body in requests]

    return asyncio.run(ask())


def test_candidates_of_known_users_and_new_events(folder):
    model, users = serving.load(folder / "hstu_ranker"), test_states.rows(2, seed=5, longest=20)
    seen = users["seen"].to_pylist()
    items, prices = [1, 2, 3], [0.1, 0.2, 0.3]
    candidates = {"item": items, "price": prices}
    keys = ["a", "a", "b"]
    of = [0, 0, 1]

    def expected(histories):
        return model.predict({"seen": [histories[user] for user in of], **candidates})["click"]

    complete = {"columns": {"seen": [seen[user] for user in of], **candidates}, "keys": keys}
    short = {"columns": candidates, "keys": keys}
    events = {"columns": {"seen": [[7, 8], [9], [1]]}, "keys": ["b", "a", "nobody"]}
    unknown, first, again, appended, later, plain = asked(
        folder / "hstu_ranker",
        ("/predict", short),
        ("/predict", complete),
        ("/predict", short),
        ("/v1/events", events),
        ("/predict", short),
        ("/predict", {"columns": complete["columns"]}),
    )
    assert unknown[0] == 404
    assert "send their histories too" in unknown[1]["error"]
    for answer in (first, again, plain):
        assert answer[0] == 200, answer
        np.testing.assert_allclose(answer[1]["predictions"]["click"], expected(seen), rtol=1e-5, atol=1e-6)
    assert appended[1]["known"] == [True, True, False]
    np.testing.assert_allclose(
        later[1]["predictions"]["click"], expected([[*seen[0], 9], [*seen[1], 7, 8]]), rtol=1e-5, atol=1e-6
    )


def test_a_history_without_space_is_forgotten(folder):
    full = {"columns": {"seen": [[1] * test_states.LENGTH], "item": [1], "price": [0.5]}, "keys": ["a"]}
    short = {"columns": {"item": [1], "price": [0.5]}, "keys": ["a"]}
    answers = asked(
        folder / "hstu_ranker",
        ("/predict", full),
        ("/v1/events", {"columns": {"seen": [[2]]}, "keys": ["a"]}),
        ("/predict", short),
    )
    assert [answer[0] for answer in answers] == [200, 200, 404]
    assert answers[1][1]["known"] == [False]


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("/v1/events", {"columns": {"seen": [[1], [2]]}, "keys": ["a", "a"]}, 400, "each user once"),
        ("/v1/events", {"columns": {"seen": [[1]]}}, 400, "keys must be a list"),
        ("/v1/events", {"columns": {"seen": [[1]]}, "keys": ["a", "b"]}, 400, "2 keys for 1 rows"),
        ("/predict", {"columns": {"item": [1], "price": [1.0]}, "keys": ["a", "b"]}, 400, "2 keys for 1 rows"),
    ],
)
def test_bad_requests(folder, path, body, status, why):
    ((found, answer, *_),) = asked(folder / "hstu_ranker", (path, body))
    assert (found, why in answer["error"]) == (status, True), answer


def test_several_workers_take_no_events(folder):
    body, limits = {"columns": {"seen": [[1]]}, "keys": ["a"]}, dataclasses.replace(LIMITS, workers=2)
    ((status, answer, *_),) = asked(folder / "hstu_ranker", ("/v1/events", body), limits=limits)
    assert (status, "each of the 2 workers keeps its own users" in answer["error"]) == (409, True), answer


def test_exports_without_states_take_no_keys(folder):
    answers = asked(
        folder / "deepfm",
        ("/predict", {"columns": {"item": [1]}, "keys": ["a"]}),
        ("/v1/events", {"columns": {"seen": [[1]]}, "keys": ["a"]}),
    )
    assert answers[0][0] == 400
    assert "sparrow export --states" in answers[0][1]["error"]
    assert answers[1][0] == 404


def test_users_go_by_bytes_too():
    states = States(np.array([[1.0, 2.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]], np.float32), np.array([2, 3]), None)
    users = KnownUsers(seconds=60, most=9, most_bytes=8)
    users.add("m", ["a", "b"], None, states=states)
    assert users.find("m", ["a"]) is None
    np.testing.assert_array_equal(users.find("m", ["b"]).states.values, states.values[1:])
