"""Recommendations over HTTP: the items of the index, in JSON and Arrow; wishes that cannot be met get one sentence."""

import asyncio
import json

import numpy as np
import pyarrow as pa
import pytest

from sparrow import config as configs
from sparrow import exports, runs, serving
from sparrow.data import DataError
from sparrow.runs.vectors.recommending import item_index
from sparrow.server import Limits
from tests.exports.cases import WORDS, config, program_and_state, rows
from tests.runs import test_generative, test_samplers
from tests.server.test_server import ARROW, JSON, as_arrow, as_json, of_arrow, post, serving_of

PATH = "/v1/recommend"
LIMITS = Limits(rows=40, recommended_rows=8, items=50, values=200, batch_rows=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("recommended")
    (made / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    program, state = program_and_state(config("dssm", made / "words.txt"))
    catalog = rows(30).append_column("even", pa.array([n % 2 for n in range(30)]))
    index = item_index(program, state, catalog, attributes=["even"])
    exports.export(program, state, made / "with", index=index)
    described = item_index(program, state, catalog, attributes=["colors", "prices"])
    exports.export(program, state, made / "described", index=described)
    exports.export(*program_and_state(config("deepfm", made / "words.txt")), made / "ranker")
    exports.export(program, state, made / "without")
    return made


def asked(folder, requests, limits=LIMITS, **options):
    async def ask():
        async with serving_of(folder, limits, **options) as client:
            return [await post(client, *request) for request in requests]

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
    ({"allow": list(range(201))}, 413, "a request may have at most 200 values in lists"),
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
    assert "a request may have at most 8 rows, got 9" in answer["error"]
    ((status, answer),) = asked(folder / "without", [(as_json(rows(1)), PATH, JSON)])
    assert status == 404
    assert answer["error"] == "the export has no items to recommend; write it with sparrow export --index"


def ranked(folder, users, candidates, k):
    """The best items by the ranker, pair by pair: the statement."""
    first, second = serving.load(folder / "described"), serving.load(folder / "ranker")
    items = dict(zip(first.index.ids.to_pylist(), first.index.attributes.to_pylist(), strict=True))
    found = first.recommend(users, candidates).to_pylist()
    for row, user in enumerate(users.to_pylist()):
        names = [one["item"] for one in found[row * candidates : (row + 1) * candidates]]
        pairs = pa.Table.from_pylist([{**user, "item": name, **items[name]} for name in names], users.schema)
        scores = second.predict(pairs)["click"].tolist()
        yield sorted(zip(scores, names, strict=True), key=lambda pair: -pair[0])[:k]


def test_a_second_model_orders_the_items_of_the_first(folder):
    users, limits = rows(5), Limits(items=50, ranked=40, batch_rows=8)
    expected = list(ranked(folder, users, 6, 3))
    without = users.drop(["item", "colors", "prices"])  # these come from the catalog
    answers = asked(
        folder / "described",
        [(body(without, k=3), PATH), (as_arrow(without), f"{PATH}?k=3", ARROW), (body(rows(7)), PATH)],
        limits,
        ranker=folder / "ranker",
        candidates=6,
    )
    assert answers[0][0] == 200, answers[0][1]
    assert answers[0][1]["items"] == [[name for _, name in own] for own in expected]
    for scores, own in zip(answers[0][1]["scores"], expected, strict=True):
        assert scores == pytest.approx([score for score, _ in own], abs=1e-6)
    assert of_arrow(answers[1][1])["item"].to_pylist() == [name for own in expected for _, name in own]
    assert answers[2] == (413, {"error": "a request may have at most 4 rows, got 7; send them in several requests"})
    first, second = serving.load(folder / "described"), serving.load(folder / "ranker")
    own = first.recommend(users, 3, rank=serving.Ranker(second, first.index), candidates=6)
    assert own["item"].to_pylist() == [name for own in expected for _, name in own]


def test_a_ranker_that_does_not_fit_is_refused_in_one_sentence(folder):
    first, second = serving.load(folder / "with"), serving.load(folder / "ranker")
    with pytest.raises(ValueError, match="the ranker has no task 'clck': did you mean 'click'"):
        serving.Ranker(second, first.index, "clck")
    with pytest.raises(DataError, match="has no items that a ranker could order; write it with --index"):
        asked(folder / "without", [], ranker=folder / "ranker")


@pytest.mark.parametrize("ranker", [None, "ranker"])
def test_known_users_are_found_by_key(folder, ranker):
    users, limits = rows(3), Limits(user_seconds=60, known_users=3, batch_rows=8)
    options = {} if ranker is None else {"ranker": folder / ranker, "candidates": 6}
    only_keys = json.dumps({"keys": ["c", "a"], "k": 4}).encode()
    unknown, first, again, changed, more, forgotten, wrong = asked(
        folder / "described",
        [
            (only_keys, PATH),
            (body(users, k=4, keys=["a", "b", "c"]), PATH),
            (only_keys, PATH),
            (body(users.slice(1, 1), k=4, keys=["a"]), PATH),  # known: the row is not computed
            (body(users.slice(0, 1), k=4, keys=["d"]), PATH),
            (only_keys, PATH),  # a had to go for d
            (body(users, keys=["a"]), PATH),
        ],
        limits,
        **options,
    )
    assert unknown == (404, {"error": "some of these users are not known any more; send their rows too"})
    assert first[0] == 200, first[1]
    assert again[1]["items"] == [first[1]["items"][2], first[1]["items"][0]]
    assert changed[1]["items"] == [first[1]["items"][0]]
    assert more[1]["items"] == [first[1]["items"][0]]
    assert forgotten[0] == 404
    assert wrong == (400, {"error": "keys has 1 keys for 3 rows; give one key per row"})


def test_keys_need_a_server_that_keeps_users(folder):
    ((status, answer),) = asked(folder / "with", [(body(rows(1), keys=[1]), PATH)])
    assert status == 400
    assert "start it with sparrow serve --user-seconds 600" in answer["error"]


def test_users_never_seen_and_empty_histories_get_the_items_of_what_is_known(folder):
    """A user whose id training never saw is one without an id: both have the vector of the rest of their row."""
    nobody = {"user": None, "watched": [], "shares": [], "seen": [], "age": None}
    missing = dict.fromkeys(nobody)
    (known, empty, null) = asked(
        folder / "with",
        [(json.dumps({"rows": [row], "k": 5}).encode(), PATH) for row in ({**nobody, "age": 30}, nobody, missing)],
    )
    assert [answer[0] for answer in (known, empty, null)] == [200] * 3
    assert empty[1] == null[1]
    assert len(empty[1]["items"][0]) == 5
    assert known[1]["scores"] != empty[1]["scores"]


def tree_run(folder):
    """tdm with the tree of its config, and rows of users."""
    made = test_samplers.tree(test_samplers.written(folder), "data.user_column=user")
    return made, None, pa.table({"user": [0, 1, 2], "past": [[7, 8, 12], [], [9]]}), None


def codes_run(folder):
    """A model of codes, and rows of users with the codes of their histories."""
    codes = np.random.default_rng(0).integers(0, 6, (24, 2))
    items = pa.table({"item": np.arange(24), "codes": pa.array(codes.tolist()), "kind": np.arange(24) % 3})
    seen = pa.table({"user": [0, 1, 2], "seen_1": [[1, 2], [], [3]], "seen_2": [[4, 0], [], [5]]})
    return configs.loads(test_generative.TIGER + test_generative.TRAIN % 1), items, seen, {"kind": 1}


@pytest.mark.parametrize("make", [tree_run, codes_run])
def test_trees_and_codes_are_searched_by_beam(tmp_path, make):
    """By the run, its export and the server: one answer."""
    given, items, users, condition = make(tmp_path)
    program = runs.Program.of(given)
    run = runs.Run(program, program.init(), step=0)
    index = run.item_index(items, attributes=["kind"]) if items is not None else run.item_index()
    run.export(tmp_path / "exported", index=index)
    model = serving.load(tmp_path / "exported")
    own, exported = run.recommend(users, 4, index=index), model.recommend(users, 4)
    assert exported["item"].to_pylist() == own["item"].to_pylist()
    np.testing.assert_allclose(exported["score"], own["score"], atol=1e-5)
    best = [own["item"].to_pylist()[4 * row : 4 * row + 4] for row in range(3)]
    by_json, by_arrow, others, none, keys, wrong, many = asked(
        tmp_path / "exported",
        [
            (body(users, k=4), PATH),
            (as_arrow(users), f"{PATH}?k=4", ARROW),
            (body(users, k=4, exclude=[row[:2] for row in best]), PATH),
            (body(users, where=condition or {}, allow=[]), PATH),
            (body(users, keys=[1, 2, 3]), PATH),
            (json.dumps({"columns": dict.fromkeys(users.column_names, "x")}).encode(), PATH),
            (body(pa.concat_tables([users] * 3)), PATH),
        ],
        Limits(recommended_rows=8, ranked=800, user_seconds=9, batch_rows=8),
    )
    assert (by_json[0], by_json[1].get("items")) == (200, best), by_json
    assert of_arrow(by_arrow[1])["item"].to_pylist() == [item for row in best for item in row]
    for row, left in enumerate(others[1]["items"]):
        assert left[:2] == best[row][2:]
        assert not set(left) & set(best[row][:2])
    assert none[1] == {"step": 0, "items": [[], [], []], "scores": [[], [], []]}
    assert keys == (400, {"error": "the index searches by the rows of users, and keeps no vectors; leave keys out"})
    assert wrong[0] == 400
    assert many[0] == 413, many


def test_approximate_search_needs_an_export_that_has_it(folder):
    with pytest.raises(DataError, match="it has no approximate search; write the export with --approximate"):
        asked(folder / "with", [], approximate=True)
