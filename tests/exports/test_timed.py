"""Exports while a model trains: base and deltas give the bits of a complete export; a server follows them."""

import asyncio
import hashlib
import io
import shutil
import threading
import time
import warnings

import aiohttp
import numpy as np
import pytest

from sparrow import runs, serving
from sparrow.config import ConfigError
from sparrow.exports import timed
from sparrow.exports.exporting import traced
from sparrow.files import at
from sparrow.server.limits import Limits
from sparrow.server.running import Options, running
from sparrow.serving.deltas import Delta, folder_of
from tests.runs.cases import IDS, NAMES, case

GROWING = "data.features=[{kind: id, name: id_0, embedding_dim: 4, dynamic: {rows: 40, expire_steps: 3}}, " + ", ".join(
    f"{{kind: id, name: {name}, num_buckets: 20, embedding_dim: 4}}" for name in NAMES[1:]
)
ROWS = {name: np.arange(IDS, dtype=np.int64) for name in NAMES}


def trained(folder, *overrides):
    config = case(f"{GROWING}]", "train.steps=9", "train.batch_size=16", "train.ema=0.9", *overrides)
    return runs.train(config, folder, stream=io.StringIO())


@pytest.mark.parametrize("dtype", [None, "float16", "int8"])
def test_deltas_give_the_predictions_of_a_complete_export(tmp_path, dtype):
    run = trained(tmp_path / "run", f"export={{every_steps: 2, tables: {dtype or 'null'}}}")
    made = tmp_path / "run" / "export"
    assert len(list((made / "deltas").iterdir())) == 4  # after steps 4, 6, 8 and 9; the first was complete
    run.export(tmp_path / "whole", tables=dtype)
    model, whole = serving.load(made), serving.load(tmp_path / "whole")
    assert (model.version.step, model.version.delta) == (9, 4)
    assert model.predict(ROWS)["click"].tobytes() == whole.predict(ROWS)["click"].tobytes()
    # The rows that changed are fewer than all.
    delta = Delta.read(made, serving.Version(2), hashlib.sha256((made / "export.json").read_bytes()).hexdigest())
    assert all(len(own.rows) < IDS for own in delta.changed.values())


def test_later_complete_exports_have_the_functions_of_the_first(tmp_path, monkeypatch):
    """They are traced once in a session, and freed memory goes back: a run that never ends exports all rows often."""
    calls, freed = [], []
    monkeypatch.setattr(timed, "give_back", lambda every=0: freed.append(every))
    monkeypatch.setattr(timed, "traced", lambda *given: calls.append(given) or traced(*given))
    run = trained(tmp_path / "run", "export={every_steps: 2, full_after: 1}")
    made = tmp_path / "run" / "export"
    assert not (made / "deltas").exists()  # complete after steps 2, 6 and 9
    run.export(tmp_path / "whole")
    found = [serving.load(folder).predict(ROWS)["click"].tobytes() for folder in (made, tmp_path / "whole")]
    assert found[0] == found[1]
    assert (len(calls), freed.count(0)) == (1, 3)


@pytest.mark.slow
def test_a_chain_of_200_deltas(tmp_path):
    """Ids come and go all the time; bits of tables and ids as after a complete export."""
    run = trained(tmp_path / "run", "train.steps=201", "export={every_steps: 1}")
    run.export(tmp_path / "whole")
    model, whole = serving.load(tmp_path / "run" / "export"), serving.load(tmp_path / "whole")
    assert (model.version.step, model.version.delta) == (201, 200)
    assert model.predict(ROWS)["click"].tobytes() == whole.predict(ROWS)["click"].tobytes()


def test_a_damaged_delta_ends_the_chain(tmp_path):
    trained(tmp_path / "run", "export={every_steps: 2}")
    made = tmp_path / "run" / "export"
    expected = []
    for number in (1, 2):
        shutil.copytree(made, tmp_path / str(number))
        shutil.rmtree(folder_of(tmp_path / str(number), number + 1))
        expected.append(serving.load(tmp_path / str(number)).predict(ROWS)["click"])
    for name in ("changed.safetensors", "parameters.safetensors", "ids.safetensors", "delta.json"):
        hurt = tmp_path / "hurt"
        shutil.copytree(made, hurt)
        file = folder_of(hurt, 3) / name
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        with pytest.warns(UserWarning, match="this delta cannot be used: .*; the version before it is used"):
            model = serving.load(hurt)
        assert model.version.delta == 2
        np.testing.assert_array_equal(model.predict(ROWS)["click"], expected[1])
        shutil.rmtree(hurt)
    (folder_of(made, 2) / "delta.json").write_bytes((folder_of(made, 1) / "delta.json").read_bytes())
    with pytest.warns(UserWarning, match="follows another delta"):
        assert serving.load(made).version.delta == 1


def test_in_another_store(s3, tmp_path):
    folder = f"{s3}/{tmp_path.name}"
    run = trained(None, f"export={{every_steps: 3, folder: '{folder}'}}")
    model = serving.load(folder)
    assert (model.version.step, model.version.delta) == (9, 2)
    run.export(tmp_path / "whole")
    np.testing.assert_array_equal(model.predict(ROWS)["click"], serving.load(tmp_path / "whole").predict(ROWS)["click"])
    assert not any("partial" in str(file) for file in at(folder).rglob())


def test_refusals():
    with pytest.raises(ConfigError, match=r"export\.folder: is required"):
        trained(None, "export={every_steps: 2}")
    with pytest.raises(ConfigError, match="give every_steps, every_seconds or every_event_minutes"):
        case("export={}")


def test_a_server_follows_and_no_answer_is_a_mixture(tmp_path):
    """All answers are those of one version, which is in their headers; damage leaves the version before in use."""
    trained(tmp_path / "run", "export={every_steps: 1}")
    made, served = tmp_path / "run" / "export", tmp_path / "served"
    truth = {}
    for last in range(9):
        shutil.rmtree(served, ignore_errors=True)
        shutil.copytree(made, served)
        for number in range(last + 1, 9):
            shutil.rmtree(folder_of(served, number))
        model = serving.load(served)
        truth[str(model.version)] = model.predict(ROWS)["click"].tolist()
    assert len({tuple(values) for values in truth.values()}) == 9
    shutil.rmtree(served)
    shutil.copytree(made, served, ignore=shutil.ignore_patterns("deltas"))
    seen, lines, done = [], [], threading.Event()
    body = {name: values.tolist() for name, values in ROWS.items()}

    async def ask(session, url):
        async with session.post(f"{url}/predict", json={"columns": body}) as answer:
            assert answer.status == 200, await answer.text()
            found = await answer.json()
            version = answer.headers["X-Sparrow-Version"]
            np.testing.assert_allclose(found["predictions"]["click"], truth[version], rtol=1e-6)
            assert found["step"] == int(version.partition(".")[0])
            assert float(answer.headers["X-Sparrow-Time"]) > 1e9
            seen.append(version)

    async def serve():
        limits = Limits(batch_rows=64)
        async with (
            running(served, limits, Options(port=0, reload_seconds=0.02), lines.append) as url,
            aiohttp.ClientSession() as session,
        ):

            async def clients():
                while not done.is_set():
                    await asyncio.gather(*(ask(session, url) for _ in range(4)))

            asking = asyncio.create_task(clients())
            for number in range(1, 8):
                shutil.copytree(folder_of(made, number), served / "deltas" / f".{number}")
                (served / "deltas" / f".{number}").rename(folder_of(served, number))
                await until(lambda number=number: seen and seen[-1].endswith(f".{number}"))
            shutil.copytree(folder_of(made, 8), served / "deltas" / ".8")
            (served / "deltas" / ".8" / "changed.safetensors").write_bytes(b"damaged")
            (served / "deltas" / ".8").rename(folder_of(served, 8))
            await until(lambda: any("cannot be used" in line for line in lines))
            count = len(seen)
            await until(lambda: len(seen) > count + 4)
            async with session.get(f"{url}/metrics") as answer:
                text = await answer.text()
            assert "sparrow_model_delta 7.0" in text
            assert 'sparrow_deltas_total{result="applied"} 7.0' in text
            assert 'sparrow_deltas_total{result="failed"} 1.0' in text
            assert "sparrow_model_age_seconds_count" in text
            done.set()
            await asking

    async def until(is_true):
        ends = time.monotonic() + 60
        while not is_true():
            assert time.monotonic() < ends, (seen[-3:], lines)
            await asyncio.sleep(0.01)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        asyncio.run(serve())
    assert len(set(seen)) >= 7
    assert "version 8.7 stays in use" in lines[-1]
