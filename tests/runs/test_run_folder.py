"""The folder of a run: whose it is, what may be removed from it, and paths that cannot be one."""

import errno
import io
import json
import os

import pytest

from sparrow import runs
from sparrow.checkpoint import holding
from sparrow.cli import main
from sparrow.config import dumps
from sparrow.runs.recorded.log import Log
from sparrow.runs.saved import run_folder
from tests.runs.cases import case

FOREIGN = ("checkpoints/bert-base/weights.bin", "checkpoints/12/model.pt", "tensorboard/notes", "config.yaml", "a.txt")


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("precious")


def assert_untouched(folder, *names):
    assert [(folder / name).read_text() for name in names] == ["precious"] * len(names)


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_of_others_is_refused(tmp_path, name, options):
    write(tmp_path, name)
    with pytest.raises(runs.FolderError, match="holds files that are not of a run"):
        runs.train(case(), tmp_path, stream=io.StringIO(), **options)
    assert_untouched(tmp_path, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name.split("/")[0]]


def test_only_what_is_listed_is_removed(tmp_path):
    """A user put files of his own into a run, under every name that a run uses."""
    folder = run_folder.RunFolder(tmp_path)
    folder.begin(is_new=False)
    folder.written.add(["checkpoints/7", "tensorboard/own", "vocabularies/words.txt"])
    own = ("checkpoints/7/tables/a", "tensorboard/own", "vocabularies/words.txt", "metrics.jsonl", "config.yaml")
    foreign = ("checkpoints/8/x", "checkpoints/b/x", "tensorboard/x", "vocabularies/x", "model.bin")
    write(tmp_path, *own, "checkpoints/7.damaged/x", *foreign)
    again = run_folder.RunFolder(tmp_path)
    again.refuse_if_unusable()
    again.clear()
    assert_untouched(tmp_path, *foreign)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*foreign, "written.json"}


def test_a_run_that_somebody_reads_is_not_replaced(tmp_path):
    """Not even in part."""
    folder = run_folder.RunFolder(tmp_path)
    folder.begin(is_new=False)
    folder.written.add(["checkpoints/2", "checkpoints/7"])
    files = ("checkpoints/2/x", "checkpoints/7/x", "metrics.jsonl")
    write(tmp_path, *files)
    hold = holding.Hold(tmp_path / "checkpoints" / "7")
    with pytest.raises(runs.FolderError, match="7: another process reads this checkpoint"):
        folder.clear()
    assert_untouched(tmp_path, *files)
    hold.release()
    folder.clear()
    assert not (tmp_path / "checkpoints").exists()


def test_a_crafted_list_removes_nothing_outside(tmp_path):
    write(tmp_path, "precious.txt", "run/x")
    names = ["../precious.txt", "..", ".", "", "/etc/hosts", "checkpoints", "checkpoints/../../precious.txt", 5, None]
    names += ["tensorboard/..", "tensorboard/../../precious.txt", "a/b/c"]
    (tmp_path / "run" / "written.json").write_text(json.dumps({"format": 1, "written": names}))
    run_folder.RunFolder(tmp_path / "run").clear()
    assert_untouched(tmp_path, "precious.txt", "run/x")


@pytest.mark.parametrize("name", ["lost+found", ".DS_Store", ".nfs0001"])
def test_what_file_systems_leave_counts_as_empty(tmp_path, name):
    write(tmp_path, name)
    run_folder.RunFolder(tmp_path).refuse_if_unusable()


def test_a_run_that_was_killed_before_it_could_list_anything(tmp_path):
    folder = run_folder.RunFolder(tmp_path)
    with folder.locked(print):
        run_folder.RunFolder(tmp_path).refuse_if_unusable()
    run_folder.RunFolder(tmp_path).refuse_if_unusable()


@pytest.fixture
def places(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "tiny.yaml").write_text(dumps(case()))
    return tmp_path


@pytest.mark.parametrize("place", ["file", "file/below", "file/far/below", "loop", "loop/below", "dangling", "n" * 300])
@pytest.mark.parametrize("command", ["train", "eval", "export", "report"])
def test_folders_that_cannot_be(places, capsys, place, command):
    folder = str(places / place)
    arguments = {
        "train": ["train", str(places / "tiny.yaml"), "--model-dir", folder],
        "eval": ["eval", folder],
        "export": ["export", folder, str(places / "exported")],
        "report": ["report", folder],
    }
    assert main(arguments[command]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (places / "file").read_text() == "x"


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def flock(file, kind):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(run_folder.fcntl, "flock", flock)
    folder, lines = run_folder.RunFolder(tmp_path), []
    folder.refuse_if_used()
    with folder.locked(lines.append):
        folder.refuse_if_used()
    assert lines == [
        f"{tmp_path}: this file system keeps no locks (No locks available); let one process at a time write here"
    ]


def test_the_last_line_of_a_run_stays(tmp_path):
    """It is logged after the last checkpoint: a run that is resumed there has no step left to log it again."""
    written = run_folder.RunFolder(tmp_path).written
    with Log(written, stream=io.StringIO()) as log:
        log.report("train", 5, {"loss": 0.5})
        lengths = log.lengths()
        log.report("train", 7, {"loss": 0.25})
        log.report("eval", 7, {"auc": 0.75})
    with Log(written, stream=io.StringIO(), done=7, lengths=lengths) as log:
        log.report("eval", 7, {"auc": 0.75})
    entries = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(entry["kind"], entry["step"]) for entry in entries] == [("train", 5), ("train", 7), ("eval", 7)]
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    with Log(written, stream=io.StringIO(), done=5, lengths=lengths):
        pass
    entries = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [5]


def test_events_of_others_stay(tmp_path):
    write(tmp_path, "tensorboard/events.out.tfevents.1.other")
    with Log(run_folder.RunFolder(tmp_path).written, stream=io.StringIO()):
        pass
    assert_untouched(tmp_path, "tensorboard/events.out.tfevents.1.other")


class Closed(io.StringIO):
    def write(self, text):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def test_nobody_reads_the_lines(tmp_path, capsys):
    """The run goes on, and its log does; that is one line."""
    with Log(run_folder.RunFolder(tmp_path).written, stream=Closed()) as log:
        log.line("one")
        log.report("train", 1, {"loss": 0.5})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"Broken pipe; the log continues in {tmp_path / 'metrics.jsonl'}")
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["loss"] == 0.5
