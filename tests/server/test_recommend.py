"""Recommendations over HTTP: the items of the index, in JSON and Arrow; wishes that cannot be met get one sentence."""

import asyncio
import json

import pyarrow as pa
import pytest

from sparrow import exports, serving
from sparrow.runs.vectors.recommending import item_index
from sparrow.server import Limits
from tests.exports.cases import WORDS, config, program_and_state, rows
from tests.server.test_server import ARROW, JSON, as_arrow, as_json, of_arrow, post, serving_of

PATH = "/v1/recommend"
LIMITS = Limits(rows=40, recommended_rows=8, items=50, values=200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("recommended")
    (made / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    program, state = program_and_state(config("dssm", made / "words.txt"))
    catalogue = rows(30).append_column("even", pa.array([n % 2 for n in range(30)]))
    index = item_index(program, state, catalogue, attributes=["even"])
    exports.export(program, state, made / "with", index=index)
    exports.export(program, state, made / "without")
    return made


def asked(folder, requests, limits=LIMITS):
    async def ask():
        async with serving_of(folder, limits) as client:
            return await asyncio.gather(*(post(client, *request) for request in requests))

    return asyncio.run(ask())


def body(table, **options):
    return json.dumps({"rows": table.to_pylist(), **options}).encode()


def test_answers_are_those_of_the_export(folder):
    model, users = serving.load(folder / "with"), rows(5)
    found = model.recommend(users, 3).to_pandas()
    best = found["item"].tolist()[0]
    expected = [found[found.columns[1]].tolist()[3 * row : 3 * row + 3] for row in range(5)]
    first, arrow, filtered, *_ = asked(
        folder / "with",
        [
            (body(users, k=3), PATH),
            (as_arrow(users), f"{PATH}?k=3", ARROW),
            (body(users, k=2, where={"even": 0}, exclude=[[best], *[[]] * 4]), PATH),
        ],
    )
    assert first[0] == 200
    assert first[1]["items"] == expected
    assert [len(scores) for scores in first[1]["scores"]] == [3] * 5
    table = of_arrow(arrow[1])
    assert table.column_names == ["row", "item", "score", "rank"]
    assert table["item"].to_pylist() == [item for row in expected for item in row]
    wanted = model.recommend(users, 2, where={"even": 0}, exclude=[[best], *[[]] * 4])
    assert [item for row in filtered[1]["items"] for item in row] == wanted["item"].to_pylist()


WISHES = [
    ({"k": 0}, 400, "k must be an integer from 1 to 50, got 0"),
    ({"k": 51}, 400, "k must be an integer from 1 to 50, got 51"),
    ({"k": True}, 400, "k must be an integer"),
    ({"exclude": [3]}, 400, "exclude must hold a list of ids for each row"),
    ({"exclude": [[1]]}, 400, "exclude has 1 lists for 2 queries"),
    ({"allow": [[1]]}, 400, "allow must be a list of ids"),
    ({"allow": list(range(201))}, 413, "a request may have 200 values in lists"),
    ({"where": {"odd": 1}}, 400, "items have no attribute 'odd'"),
    ({"where": {"even": "x"}}, 400, "attribute 'even' holds int64"),
    ({"where": {"even": 2**70}}, 400, "attribute 'even' holds int64"),
    ({"where": [1]}, 400, "where must be an object"),
    ({"other": 1}, 400, "the body must be"),
]


@pytest.fixture(scope="module")
def answers(folder):
    """The answers of one server to all of them."""
    return asked(folder / "with", [(body(rows(2), **options), PATH) for options, _, _ in WISHES])


@pytest.mark.parametrize("number", range(len(WISHES)), ids=[why for *_, why in WISHES])
def test_wishes_that_cannot_be_met_get_one_sentence(answers, number):
    (found, answer), (_, status, why) = answers[number], WISHES[number]
    assert (found, answer["error"][: len(why)]) == (status, why)


def test_rows_are_bounded_and_an_export_without_items_says_so(folder):
    ((many, answer), (bad_k, _)) = asked(
        folder / "with", [(as_json(rows(9)), PATH, JSON), (as_json(rows(1)), f"{PATH}?k=x", JSON)]
    )
    assert (many, bad_k) == (413, 400)
    assert "a request may have 8 rows, got 9" in answer["error"]
    ((status, answer),) = asked(folder / "without", [(as_json(rows(1)), PATH, JSON)])
    assert status == 404
    assert answer["error"] == "the export has no items to recommend; write it with sparrow export --index"
