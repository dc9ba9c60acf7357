"""The server over loopback: answers equal the model's, bad requests get one sentence, and nothing hurts it."""

import asyncio
import contextlib
import dataclasses
import json
import re
import shutil
import threading
import time
from pathlib import Path

import aiohttp
import numpy as np
import pyarrow as pa
import pytest

from sparrow import exports, serving
from sparrow.exports.folder import whole
from sparrow.server import Limits
from sparrow.server.connections import SPARE
from sparrow.server.running import Options, running
from sparrow.server.service import Service
from sparrow.serving.function import Function
from tests.exports.cases import WORDS, config, program_and_state, rows

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
JSON = {"Content-Type": "application/json"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
LIMITS = Limits(rows=40, batch_rows=16, body_bytes=20_000, read_seconds=0.5, idle_seconds=0.6, stop_seconds=5.0)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Exports of a ranking model and of a model of two towers."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    for name in ("deepfm", "dssm"):
        exports.export(*program_and_state(config(name, folder / "words.txt")), folder / name)
    return folder


@contextlib.asynccontextmanager
async def serving_of(folder, limits=LIMITS, lines=None, **options):
    log = [].append if lines is None else lines.append
    async with (
        running(folder, limits, Options(port=0, reload_seconds=0.05, **options), log) as url,
        aiohttp.ClientSession(url) as client,
    ):
        yield client


async def post(client, body, path="/predict", headers=JSON):
    async with client.post(path, data=body, headers=headers) as answer:
        found = await answer.read()
        return answer.status, json.loads(found) if answer.content_type == "application/json" else found


def as_json(table):
    return json.dumps({"rows": table.to_pylist()}).encode()


def as_arrow(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def of_arrow(body):
    return pa.ipc.open_stream(body).read_all()


def test_answers_equal_the_model(two):
    model, table = serving.load(two / "deepfm"), rows(30)
    expected = model.predict(table)["click"]

    async def ask():
        async with serving_of(two / "deepfm") as client:
            parts = [table.slice(start, 1 + start % 4) for start in range(26)]
            asked = [post(client, as_json(part)) for part in parts]
            asked += [post(client, as_arrow(part), headers=ARROW) for part in parts]
            asked.append(post(client, json.dumps({"columns": table.to_pydict()}).encode()))
            asked.append(post(client, as_json(table), headers={**JSON, "Accept": ARROW["Content-Type"]}))
            asked.append(post(client, b'{"rows": []}'))
            return parts, await asyncio.gather(*asked), await (await client.get("/metrics")).text()

    parts, answers, metrics = asyncio.run(ask())
    for start, part, by_json, by_arrow in zip(range(26), parts, answers[:26], answers[26:52], strict=True):
        wanted = expected[start : start + part.num_rows]
        assert (by_json[0], by_arrow[0]) == (200, 200)
        np.testing.assert_allclose(by_json[1]["predictions"]["click"], wanted, rtol=1e-5)
        np.testing.assert_allclose(of_arrow(by_arrow[1])["click"], wanted, rtol=1e-5)
    columns, both, nothing = answers[52:]
    np.testing.assert_allclose(columns[1]["predictions"]["click"], expected, rtol=1e-5)
    np.testing.assert_array_equal(np.float32(columns[1]["predictions"]["click"]), of_arrow(both[1])["click"])
    assert of_arrow(both[1]).schema.metadata == {b"sparrow.step": b"0"}
    assert nothing == (200, {"step": 0, "predictions": {"click": []}})
    assert 'sparrow_requests_total{path="/predict",status="200"} 55.0' in metrics
    batches = next(line for line in metrics.splitlines() if line.startswith("sparrow_batch_rows_count"))
    assert float(batches.split()[1]) < 55  # requests were gathered


@contextlib.asynccontextmanager
async def held_together(monkeypatch, folder, count):
    """A client whose requests are answered only when ``count`` of them wait."""
    made, holds, free = [], threading.Event(), threading.Event()
    monkeypatch.setattr("sparrow.server.running.Service", lambda *given: made.append(Service(*given)) or made[0])
    async with serving_of(folder) as client:
        gatherer = made[0]._gatherer

        def hold():
            holds.set()
            while gatherer.waiting < count and not free.is_set():
                time.sleep(0.001)

        holder = threading.Thread(target=gatherer.between, args=(hold,))
        holder.start()
        await asyncio.to_thread(holds.wait)
        try:
            yield client
        finally:
            free.set()
            await asyncio.to_thread(holder.join)


@pytest.mark.parametrize("bad", [{"user": 99}, {"item": "\ud800"}, {"user": "nobody"}, {}])
def test_requests_of_all_kinds_that_wait_together_get_their_own_answers(two, monkeypatch, bad):
    """One that cannot be converted makes the conversion of all fail: then each is converted alone."""
    model, table, joint = serving.load(two / "deepfm"), rows(12), []
    whole_rows = table.to_pylist()
    lacking = [{name: value for name, value in row.items() if name != "item"} for row in whole_rows[:2]]
    texts = [row | {"user": str(row["user"])} for row in whole_rows[2:4] if row["user"] is not None]
    texts = [] if bad.get("user") == 99 or "item" in bad else [texts]  # with them, no joint conversion is tried
    good = [[row] for row in whole_rows[4:]] + [lacking, *texts, whole_rows[:3]]
    expected = [
        model.predict({name: [row.get(name) for row in part] for name in table.column_names})["click"] for part in good
    ]
    bodies = [json.dumps({"rows": part}).encode() for part in good]
    wrong = json.dumps({"rows": [whole_rows[5] | bad]}).encode()
    together = Function.read_together

    def watched(self, parts):
        joint.append(None)
        joint[-1] = together(self, parts)
        return joint[-1]

    monkeypatch.setattr(Function, "read_together", watched)

    async def ask():
        async with held_together(monkeypatch, two / "deepfm", len(bodies) + 3) as client:
            asked = [post(client, body) for body in bodies[:4]]
            asked += [post(client, wrong), *(post(client, as_arrow(table.slice(i, 5)), headers=ARROW) for i in (0, 5))]
            return await asyncio.gather(*asked, *(post(client, body) for body in bodies[4:]))

    answers = asyncio.run(ask())
    status, found = answers.pop(4)
    if bad:
        assert status == 400
        (name,) = bad
        assert f"column '{name}'" in found["error"]
        assert "row 0" in found["error"]
    else:
        assert status == 200
    for start, (status, body) in zip((0, 5), (answers.pop(4), answers.pop(4)), strict=True):
        assert status == 200
        wanted = model.predict(table.slice(start, 5))["click"]
        np.testing.assert_allclose(of_arrow(body)["click"], wanted, rtol=1e-5)
    for (status, found), wanted in zip(answers, expected, strict=True):
        assert status == 200, found
        np.testing.assert_allclose(found["predictions"]["click"], wanted, rtol=1e-5)
    assert joint == [None] * len(joint) != []  # each joint conversion failed, or was not possible


def test_columns_that_all_rows_lack_are_missing_values(two):
    """In the form of rows, also where no other row of the request has the column."""

    async def ask():
        async with serving_of(two / "deepfm") as client:
            short = json.dumps({"rows": [{"user": 1, "prices": [1.0, 2.0], "unused": 3}]}).encode()
            return await post(client, short), await post(client, body_of(item=None))

    (status, short), (_, written) = asyncio.run(ask())
    assert status == 200, short
    assert short == written


def test_views_as_polars_writes_them(two):
    table = rows(5)
    at = table.column_names.index("item")
    views = table.set_column(at, "item", table["item"].cast(pa.string_view()))
    at = table.column_names.index("colors")
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 2, 1]), pa.array(["red", "pink", ""], pa.string_view()))
    views = views.set_column(at, "colors", codes)
    plain = views.set_column(at, "colors", pa.array(codes.to_pylist(), pa.string()))

    async def ask():
        async with serving_of(two / "deepfm") as client:
            return await post(client, as_arrow(views), headers=ARROW)

    status, found = asyncio.run(ask())
    assert status == 200, found
    plain = plain.set_column(table.column_names.index("item"), "item", table["item"])
    expected = serving.load(two / "deepfm").predict(plain)["click"]
    np.testing.assert_allclose(of_arrow(found)["click"], expected, rtol=1e-5)


def test_columns_that_the_model_does_not_read_may_hold_anything(two):
    model, table = serving.load(two / "deepfm"), rows(5)
    times = pa.array(range(5), pa.timestamp("s"))
    more = table.append_column("when", times).add_column(0, "address", pa.array([{"city": "Rome"}] * 5))
    dear = table.set_column(
        table.column_names.index("age"), "age", pa.chunked_array([pa.array([1, 2, 3, 4, 5]).cast(pa.decimal128(24, 2))])
    )

    async def ask():
        async with serving_of(two / "deepfm") as client:
            return [await post(client, as_arrow(one), headers=ARROW) for one in (more, dear)]

    for (status, found), one in zip(asyncio.run(ask()), (table, dear), strict=True):
        assert status == 200, found
        expected = model.predict(one)
        for name in expected:
            np.testing.assert_allclose(of_arrow(found)[name].to_numpy(), expected[name], rtol=1e-6)


def test_vectors_and_facts(two):
    model, table = serving.load(two / "dssm"), rows(5)

    async def ask():
        async with serving_of(two / "dssm") as client:
            answers = [await post(client, as_json(table), f"/vectors?tower={tower}") for tower in model.towers]
            wrong = [await post(client, as_json(table), f"/vectors{query}") for query in ("", "?tower=predict")]
            facts = [await (await client.get(path)).json() for path in ("/metadata", "/health")]
            return answers, wrong, facts

    answers, wrong, (metadata, health) = asyncio.run(ask())
    for tower, (status, found) in zip(model.towers, answers, strict=True):
        assert status == 200
        np.testing.assert_allclose(found["vectors"], model.vectors(tower, table), rtol=1e-5)
    for status, found in wrong:
        assert status == 404
        assert "?tower=NAME" in found["error"]
    assert metadata["model"] == "dssm"
    assert metadata["towers"] == list(model.towers)
    assert metadata["limits"]["rows"] == 40
    assert set(metadata["signature"]) == {"predict", *model.towers}
    assert health == {"status": "ok", "step": 0, "version": "0.0"}


def body_of(**fields):
    complete = dict.fromkeys(("colors", "watched", "shares", "seen", "age"))
    complete |= {"user": 1, "item": "a", "prices": [1.0, 2.0], **fields}
    return json.dumps({"rows": [complete]}).encode()


REFUSED = {
    "not JSON": (b"{", 400, "not JSON"),
    "not UTF-8": (b'"\xff"', 400, "not UTF-8"),
    "deep": (b"[" * 9000, 400, "nested too deeply"),
    "a huge number": (b'{"rows": [{"user": ' + b"9" * 5000 + b"}]}", 400, "not JSON"),
    "NaN": (b'{"rows": [{"user": NaN}]}', 400, "write null"),
    "another form": (b'{"instances": []}', 400, "the body must be"),
    "rows of lists": (b'{"rows": [[1]]}', 400, "list of objects"),
    "columns of numbers": (b'{"columns": {"user": 1}}', 400, "a list for each column"),
    "no column": (b'{"rows": [{"a": 1}]}', 400, "none of the columns"),
    "a column is missing": (
        b'{"columns": {"user": [1]}}',
        400,
        "the table lacks column 'item', which the model reads",
    ),
    "a column is misspelled": (body_of(watchd=[1]).replace(b'"watched": null, ', b""), 400, "did you mean 'watched'"),
    "different lengths": (b'{"columns": {"user": [1], "item": ["a", "b"]}}', 400, "different numbers of rows"),
    "a wrong type": (body_of(user={"a": 1}), 400, "user"),
    "an id out of range": (body_of(user=99), 400, "99"),
    "a large integer": (body_of(user=1 << 70), 400, "row 0, column 'user': 1180591620717411303424 cannot be read"),
    "half a character": (body_of(item="\ud800"), 400, "row 0, column 'item': '\\ud800' cannot be read"),
    "mixed types": (b'{"columns": {"user": [1, "a"]}}', 400, "row 1, column 'user': 'a' is of another type than"),
    "mixed lists": (
        b'{"columns": {"user": [1, 2, 3], "watched": [[1], null, [2, "a"]]}}',
        400,
        "row 2, column 'watched': [2, 'a'] cannot be read",
    ),
    "too many rows": (b'{"rows": [' + b",".join([b'{"user": 1}'] * 41) + b"]}", 413, "40 rows"),
    "too long": (b" " * 20_001, 413, "20000 bytes"),
}


@pytest.fixture(scope="module")
def refusals(two):
    """All of `REFUSED`, sent together with good requests; and requests with wrong heads."""

    async def ask():
        async with serving_of(two / "deepfm") as client:
            bad = [post(client, body) for body, _, _ in REFUSED.values()]
            good = [post(client, as_json(rows(1))) for _ in REFUSED]
            mixed = [one for pair in zip(bad, good, strict=True) for one in pair]
            answers = await asyncio.gather(*mixed)
            heads = {
                "text": await post(client, b"{}", headers={"Content-Type": "text/plain"}),
                "gzip": await post(client, b"{}", headers={**JSON, "Content-Encoding": "gzip"}),
                "path": await post(client, b"{}", path="/../etc/passwd"),
            }
            async with client.get("/predict") as answer:
                heads["method"] = answer.status, await answer.json()
            return dict(zip(REFUSED, answers[::2], strict=True)), answers[1::2], heads

    return asyncio.run(ask())


@pytest.mark.parametrize("name", REFUSED)
def test_bad_bodies_get_one_sentence(name, refusals):
    status, found = refusals[0][name]
    assert (status, list(found)) == (REFUSED[name][1], ["error"]), found
    assert REFUSED[name][2] in found["error"]
    assert "\n" not in found["error"]


def test_bad_requests_leave_others_alone(refusals):
    _, good, heads = refusals
    assert {status for status, _ in good} == {200}
    found = {name: status for name, (status, _) in heads.items()}
    assert found == {"text": 415, "gzip": 415, "path": 404, "method": 405}


ARROWS = {
    "not Arrow": (lambda: b"abc", 400, "not a stream"),
    "cut off": (lambda: as_arrow(rows(3))[:-40], 400, "not a stream"),
    "no strings": (lambda: as_arrow(pa.table({"item": pa.array([b"\xff"], pa.binary_view())})), 400, "not a stream"),
    "dates": (lambda: as_arrow(pa.table({"item": pa.array([0], pa.date32())})), 400, "send integers"),
    "compressed": (lambda: as_arrow(rows(30), compression="zstd"), 415, "without compression"),
    "too many rows": (lambda: as_arrow(rows(41)), 413, "40 rows"),
    "a column is missing": (lambda: as_arrow(rows(3).select(["user"])), 400, "item"),
}


def test_hostile_arrow(two):
    """Each body is refused, and so are bodies with flipped bits, unless they still are tables."""
    sound = as_arrow(rows(3))
    rng = np.random.default_rng(0)

    def flipped():
        body = bytearray(sound)
        for at in rng.integers(0, len(body), 4):
            body[at] ^= 1 << int(rng.integers(0, 8))
        return bytes(body)

    async def ask():
        async with serving_of(two / "deepfm") as client:
            answers = [await post(client, make(), headers=ARROW) for make, _, _ in ARROWS.values()]
            damaged = [await post(client, flipped(), headers=ARROW) for _ in range(200)]
            return answers, damaged, await post(client, sound, headers=ARROW)

    answers, damaged, last = asyncio.run(ask())
    for name, (status, found) in zip(ARROWS, answers, strict=True):
        assert (status, ARROWS[name][2] in found["error"]) == (ARROWS[name][1], True), (name, found)
    assert {status for status, _ in damaged} <= {200, 400, 413, 415}
    assert last[0] == 200


def test_slow_and_cut_off_requests(two, caplog):
    """Slow bodies get 408, slow heads and clients that leave end their connection; the server goes on."""
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n"

    async def raw(client, data, leave=False):
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        writer.write(data)
        await writer.drain()
        found = b"" if leave else await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return found

    async def ask():
        async with serving_of(two / "deepfm") as client:
            slow_body, slow_head, malformed, _, _ = await asyncio.gather(
                raw(client, head + b'{"rows"'),
                raw(client, head[:40]),
                raw(client, b"NONSENSE\r\n\r\n"),
                raw(client, head + b'{"rows"', leave=True),
                raw(client, head[:10], leave=True),
            )
            return slow_body, slow_head, malformed, await post(client, as_json(rows(1)))

    slow_body, slow_head, malformed, after = asyncio.run(ask())
    assert slow_body.startswith(b"HTTP/1.1 408 ")
    assert b"within 0.5 seconds" in slow_body
    assert slow_head == b""
    assert malformed.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert after[0] == 200
    assert not caplog.records  # a client that leaves is nothing to log


MALFORMED = {
    "no HTTP": b"NONSENSE\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a long line": b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\n\r\n",
    "many lines": b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n",
    "a bad length": b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    "a bad chunk": (
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n"
    ),
    "a length and chunks": (
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    ),
}


def test_malformed_requests_get_one_sentence_and_no_traceback(two, caplog):
    async def raw(client, data):
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        writer.write(data)
        found = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return found

    async def ask():
        async with serving_of(two / "deepfm") as client:
            return [await raw(client, data) for data in MALFORMED.values()]

    for name, found in zip(MALFORMED, asyncio.run(ask()), strict=True):
        head, _, body = found.partition(b"\r\n\r\n")
        assert head.split()[1] == b"400", (name, found)
        assert b"application/json" in head, (name, head)
        assert list(json.loads(body)) == ["error"], (name, body)
    assert not caplog.records


def test_idle_connections_give_way(two):
    """More silent ones than may be open, and kept-alive ones: new requests are answered, /health always."""
    limits = Limits(rows=40, batch_rows=16, connections=20)

    async def ask():
        async with serving_of(two / "deepfm", limits) as client:
            port = client._base_url.port
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(SPARE + 60)]
            answered = [await post(client, as_json(rows(1))) for _ in range(3)]
            health = [(await client.get("/health")).status for _ in range(30)]
            open_yet = 0
            for reader, writer in silent:
                try:
                    await asyncio.wait_for(reader.read(1), 0.001)
                except TimeoutError:
                    open_yet += 1
                writer.close()
            return answered, health, open_yet

    answered, health, open_yet = asyncio.run(ask())
    assert {status for status, _ in answered} == {200}
    assert set(health) == {200}
    assert 1 < open_yet <= SPARE + 20


def test_health_is_answered_when_all_connections_are_busy(two):
    limits = Limits(rows=40, batch_rows=16, connections=2, read_seconds=60.0)
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"

    async def ask():
        async with serving_of(two / "deepfm", limits) as client:
            busy = [await asyncio.open_connection("127.0.0.1", client._base_url.port) for _ in range(4)]
            for _, writer in busy:
                writer.write(head)
            while (found := await post(client, as_json(rows(1))))[0] == 200:  # until the server has seen them
                await asyncio.sleep(0.01)
            health = (await client.get("/health")).status
            for _, writer in busy:
                writer.close()
            return health, found

    health, (status, found) = asyncio.run(ask())
    assert health == 200
    assert (status, found) == (503, {"error": "too many connections are open; try again later"})


def test_long_bodies_wait_no_more_than_allowed(two):
    """Bodies that are announced, and come slowly or never, hold no memory beyond the limit."""
    limits = Limits(rows=40, batch_rows=16, waiting_bytes=30_000, body_bytes=20_000, read_seconds=60.0)
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20000\r\n\r\n{"

    async def ask():
        async with serving_of(two / "deepfm", limits) as client:
            _, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
            writer.write(head)
            while (full := await post(client, b" " * 15_000))[0] == 400:  # until the server has seen it
                await asyncio.sleep(0.01)
            after = await post(client, as_json(rows(1)))
            writer.close()
            return full, after

    (status, found), after = asyncio.run(ask())
    assert (status, found["error"]) == (503, "too many long bodies wait already; try again later")
    assert after[0] == 200


def test_a_newer_export_takes_over_without_a_loss(two, tmp_path):
    shutil.copytree(two / "deepfm", tmp_path / "export")
    table, lines = rows(4), []

    def replace(other, damage=False):
        with whole(tmp_path / "export", overwrite=True) as partial:
            shutil.copytree(two / other, partial, dirs_exist_ok=True)
            if damage:
                (partial / "predict.stablehlo").write_bytes(b"no program")

    async def ask():
        patient = dataclasses.replace(LIMITS, idle_seconds=60.0)  # a busy machine must not end idle connections
        async with serving_of(tmp_path / "export", patient, lines=lines) as client:
            counts = {"click": 0, "match": 0}

            async def one():
                status, found = await post(client, as_json(table))
                assert status == 200, found
                counts[next(iter(found["predictions"]))] += 1

            async def until(is_enough):
                while not is_enough():
                    await asyncio.gather(*(one() for _ in range(4)))

            await until(lambda: counts["click"] >= 8)
            replace("dssm")
            await until(lambda: counts["match"] >= 8)
            replace("deepfm", damage=True)
            await until(lambda: any("stays in use" in line for line in lines))
            before = counts["match"]
            await until(lambda: counts["match"] >= before + 4)
            return counts, await (await client.get("/metrics")).text()

    _, metrics = asyncio.run(ask())
    assert any(line.startswith("reloaded: dssm") for line in lines)
    assert 'sparrow_reloads_total{result="loaded"} 1.0' in metrics
    assert 'sparrow_reloads_total{result="failed"} 1.0' in metrics


def test_an_export_that_is_copied_file_by_file_is_loaded(two, tmp_path):
    """The description first: the first attempt fails, and there is another one when the other files have come."""
    shutil.copytree(two / "deepfm", tmp_path / "export")
    lines = []

    async def until(what):
        async with asyncio.timeout(60):
            while not any(what in line for line in lines):
                await asyncio.sleep(0.02)

    async def ask():
        async with serving_of(tmp_path / "export", lines=lines) as client:
            (tmp_path / "export").rename(tmp_path / "older")
            (tmp_path / "export").mkdir()
            names = sorted(path.name for path in (two / "dssm").iterdir())
            assert names[0] == "export.json"
            for name in names:
                source = two / "dssm" / name
                (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / "export" / name)
                if name == names[0]:
                    await until("stays in use")
                await asyncio.sleep(0.06)
            await until("reloaded: dssm")
            return await post(client, as_json(rows(1)))

    status, found = asyncio.run(ask())
    assert (status, list(found["predictions"])) == (200, ["match"])


def test_a_busy_server_refuses(two):
    limits = Limits(rows=40, batch_rows=16, waiting_requests=1, connections=2)

    async def ask():
        async with serving_of(two / "deepfm", limits) as client:
            return await asyncio.gather(*(post(client, as_json(rows(30))) for _ in range(12)))

    answers = asyncio.run(ask())
    refused = [found["error"] for status, found in answers if status == 503]
    assert {status for status, _ in answers} <= {200, 503}
    assert refused
    assert all("try again later" in why for why in refused)


def test_limits_are_checked():
    with pytest.raises(ValueError, match="rows"):
        Limits(rows=0)
    with pytest.raises(ValueError, match="read_seconds must be a finite number at least 0"):
        Limits(read_seconds=-1.0)


def test_the_documented_client(two, capsys):
    """The block of docs/serving.md, with the port of this server."""
    block, *_ = re.findall(r"^```py\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert "http://127.0.0.1:8080/" in block
    table = rows(20)
    columns = re.search(r"pa\.table\(.*\)", block)[0]
    block = block.replace(columns, "rows(20)")  # the columns of this model
    scope = {"rows": rows}

    async def ask():
        async with serving_of(two / "deepfm") as client:
            code = block.replace("http://127.0.0.1:8080", str(client._base_url).rstrip("/"))
            await asyncio.to_thread(exec, code, scope)

    asyncio.run(ask())
    np.testing.assert_allclose(
        scope["scores"]["click"], serving.load(two / "deepfm").predict(table)["click"], rtol=1e-5
    )
    assert "b'sparrow.step'" in capsys.readouterr().out


def test_hostile_bodies_do_not_hold_up_others(two):
    """Names that are dear to compare, sent again and again: short requests are answered meanwhile."""
    keys = {f"x{n:05}": 1 for n in range(60_000)}
    hostile = json.dumps({"rows": [{"user": 1, **keys}]}).encode()
    limits = Limits(rows=40, batch_rows=16)

    async def ask():
        async with serving_of(two / "deepfm", limits) as client:
            await post(client, as_json(rows(1)))
            sent = [asyncio.ensure_future(post(client, hostile)) for _ in range(8)]
            answered = 0
            while not any(one.done() for one in sent):
                status, _ = await post(client, as_json(rows(1)))
                assert status == 200
                answered += 1
            return answered, [status for status, _ in await asyncio.gather(*sent)]

    answered, statuses = asyncio.run(ask())
    assert set(statuses) == {200}
    assert answered > 1
