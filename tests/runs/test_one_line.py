"""Whatever the machine does not give, a command ends with one line, and the last checkpoint is whole."""

import errno
import io
import os
import subprocess
import sys
import types

import pytest

from sparrow import runs
from sparrow.cli import main
from sparrow.config import ConfigError, dumps
from sparrow.files import memory as proc
from sparrow.runs.recorded.tensorboard import Appended
from sparrow.runs.saved import resuming, run_folder
from sparrow.runs.step import memory
from sparrow.runs.step.memory import Memory
from tests.runs.cases import case

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(dumps(case("train.steps=2")))
    runs.train(case("train.steps=2"), folder / "run", stream=io.StringIO())
    return folder


def raising(error):
    def raise_it(*_, **__):
        raise error

    return raise_it


@pytest.mark.parametrize("place", ["run_folder", "log"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_full_disk(trained, tmp_path, monkeypatch, place, resume):
    """At a fresh start, at resuming, and while the numbers are logged."""
    folder = trained / "run" if resume else tmp_path / "new"
    if place == "log":
        monkeypatch.setattr(Appended, "add", raising(FULL))
    else:
        monkeypatch.setattr(run_folder, "replace_file", raising(FULL))
    with pytest.raises(runs.RunError) as error:
        runs.train(case("train.steps=3", "train.log_every_steps=1"), folder, resume=resume, stream=io.StringIO())
    (line,) = str(error.value).splitlines()
    assert "the disk is full" in line
    left = "the checkpoint of step 2 is complete" if resume and place == "run_folder" else "checkpoint"
    assert left in line
    runs.load(trained / "run", step=2)


def test_a_piece_that_does_not_fit(tmp_path, monkeypatch):
    """Nothing of it stays, so that the file can be read."""
    file = Appended(tmp_path / "lines")
    file.add(b"one\n")
    write = os.write
    calls = []

    def half(descriptor, data):
        calls.append(len(data))
        if len(calls) > 1:
            raise FULL
        return write(descriptor, data[:2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space left"):
        file.add(b"two\n")
    monkeypatch.undo()
    assert (tmp_path / "lines").read_bytes() == b"one\n"
    file.add(b"three\n")
    file.close()
    assert (tmp_path / "lines").read_bytes() == b"one\nthree\n"


def test_models_larger_than_the_memory(monkeypatch):
    monkeypatch.setattr(memory, "host_memory", lambda: Memory("host", 2**30, 10**6))
    with pytest.raises(ConfigError) as error:
        runs.train(case("data.features[1].num_buckets=1000000"), stream=io.StringIO())
    needed = "tables with their slots need 40 MB of memory, 1 MB are free (host): id_1 32 MB, id_1_wide 8 MB, "
    assert needed in str(error.value)
    monkeypatch.setattr(memory, "host_memory", lambda: Memory("host", 2**40, 2**33))
    with pytest.raises(ConfigError, match=r"model: parameters need .* of memory, .* are free"):
        runs.train(case("model.architecture.deep.hidden_units=[100000, 100000]"), stream=io.StringIO())


def test_memory_of_a_container(monkeypatch):
    """Files that the container keeps in memory are no reason to refuse a model."""
    texts = {
        "/proc/meminfo": "MemTotal: 2000 kB\nMemAvailable: 1500 kB\n",
        "/sys/fs/cgroup/memory.max": "1024000\n",
        "/sys/fs/cgroup/memory.current": "1000000\n",
        "/sys/fs/cgroup/memory.stat": "anon 300000\ninactive_file 600000\nactive_file 50000\n",
    }
    for module in (memory, proc):
        monkeypatch.setattr(module, "Path", lambda path: types.SimpleNamespace(read_text=lambda: texts[path]))
    assert memory.host_memory() == Memory("host", 1_024_000, 674_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nraise RuntimeError('no\\nthing')", "2: raised RuntimeError: no thing"),
        ("import sys\nsys.exit(3)", "2: raised SystemExit: 3"),
        ("x = (", "1: is not Python: "),
        ("import no_such_module", "1: raised ModuleNotFoundError: "),
    ],
)
def test_python_files_that_raise(trained, tmp_path, capsys, text, message):
    file = tmp_path / "own.py"
    file.write_text(text)
    for arguments in (["train", str(file)], ["import-config", str(trained / "tiny.yaml"), "--import", str(file)]):
        assert main(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{file}:{message}" in line


def test_vocabularies_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "words.csv").write_text("a\nx\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").mkdir()
    arguments = ["vocab", str(tmp_path / "words.csv"), "a", "--separator", ",", "--output"]
    for place in ("out", "words.csv", "words.csv/below"):
        assert main([*arguments, str(tmp_path / place)]) in (1, 2)
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_separators_of_text_files(tmp_path, capsys):
    (tmp_path / "words.csv").write_text("a::b\nx::y\n")
    arguments = ["vocab", str(tmp_path / "words.csv"), "b", "--output", str(tmp_path), "--separator"]
    assert main([*arguments, "::"]) == 0
    assert (tmp_path / "b.txt").read_text() == "y\n"
    assert main([*arguments, ""]) == 2
    assert main([*arguments, "\n"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("output", [">/dev/full", ">&-", "| true"])
@pytest.mark.parametrize("command", ["import-config {yaml}", pytest.param("report {run}", marks=pytest.mark.slow)])
def test_output_that_nobody_takes(trained, output, command):
    command = command.format(yaml=trained / "tiny.yaml", run=trained / "run")
    line = f"set -o pipefail; {sys.executable} -m sparrow.cli {command} {output}"
    result = subprocess.run(["bash", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
    if output == "| true" and result.returncode == 0:
        return  # it was written before the other end was closed
    assert result.returncode == 1
    (said,) = result.stderr.splitlines()
    assert said.startswith("sparrow: the standard output: ")


@pytest.mark.parametrize("output", [">/dev/full", pytest.param(">&-", marks=pytest.mark.slow)])
def test_a_run_that_nobody_watches(trained, tmp_path, output):
    """It comes to its end all the same."""
    command = f"train {trained / 'tiny.yaml'} train.steps=1 data.evaluate=null --model-dir {tmp_path / 'run'}"
    line = f"{sys.executable} -m sparrow.cli {command} {output}"
    result = subprocess.run(["bash", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("sparrow: ")]) == (
        output == ">/dev/full"
    )
    assert "Traceback" not in result.stderr
    assert run_folder.RunFolder(tmp_path / "run").status["finished"]


def test_another_machine_is_logged(trained, monkeypatch):
    monkeypatch.setattr(resuming, "threads", lambda: 4096)
    stream = io.StringIO()
    runs.train(case("train.steps=3"), trained / "run", resume=True, stream=stream)
    (line,) = [line for line in stream.getvalue().splitlines() if "the last bits may differ" in line]
    assert f"threads was {len(os.sched_getaffinity(0))}, is now 4096" in line
