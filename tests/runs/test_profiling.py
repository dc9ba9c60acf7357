"""A trace of some steps: written for the usual viewers, after the first steps, also of a run that ends early."""

import gzip
import json
from types import SimpleNamespace

from sparrow import runs
from sparrow.runs.parts.profiling import FIRST, Profile
from tests.config.examples import VALID


def config(steps):
    return {**VALID, "train": {**VALID["train"], "steps": steps}, "evaluate": {}}


def test_a_run_writes_a_trace(tmp_path, capsys):
    runs.train(config(FIRST + 4), tmp_path / "run", profile=2)
    (trace,) = (tmp_path / "run" / "profile").rglob("perfetto_trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert len(events) > 100
    assert list((tmp_path / "run" / "profile").rglob("*.xplane.pb"))
    assert "profile: open" in capsys.readouterr().out


def test_a_short_run_says_that_nothing_was_traced(tmp_path, capsys):
    runs.train(config(2), tmp_path / "run", profile=2)
    assert not (tmp_path / "run" / "profile").exists()
    assert f"nothing was traced, because the run has no more than {FIRST} steps" in capsys.readouterr().out


def test_the_steps_of_a_call_count(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("jax.profiler.start_trace", lambda folder, **options: calls.append("start"))
    monkeypatch.setattr("jax.profiler.stop_trace", lambda: (tmp_path / "perfetto_trace.json.gz").touch())
    loop = SimpleNamespace(settle=lambda: calls.append("wait"), log=SimpleNamespace(line=calls.append))
    profile = Profile(tmp_path, 4)
    for _ in range(6):
        profile.take(loop, [None, None])
    profile.end(loop)
    assert calls[:3] == ["wait", "start", "wait"]
    assert len(calls) == 4
