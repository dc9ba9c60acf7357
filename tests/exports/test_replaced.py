"""An export is replaced in one step: killed or failing at any file operation, the old one or the new one is there."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparrow.data import DataError
from sparrow.exports import folder as folders
from sparrow.exports.folder import refuse, whole
from sparrow.files import atomic
from tests.exports.kills import CODES, run

# The processes that are killed touch files only, and nothing else runs in this one meanwhile.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

FILES = ("export.json", "tables.safetensors", "vocabularies/0_item.txt")


def write(folder: Path, content: str, overwrite: bool = True) -> None:
    """An export as far as folders go: every file of it holds the same content."""
    with whole(folder, overwrite) as partial:
        (partial / "vocabularies").mkdir()
        for name in FILES:
            (partial / name).write_text(content)


def held(folder: Path) -> str | None:
    """The content of the export; None: there is none."""
    if not folder.exists():
        return None
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == list(FILES)
    (content,) = {(folder / name).read_text() for name in FILES}
    return content


@pytest.fixture
def place(tmp_path: Path, monkeypatch) -> Path:
    """A folder with things of others beside the export, whose names come near those of this program."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # each of them is counted, none is waited for
    for name in (".export.partial", ".export.0123abcd.partial", ".export.old", ".other.0123abcd.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "of others").touch()
    return tmp_path


def others(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if (path / "of others").exists())


CASES = {"exchange": None, "two renames": lambda: None}


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "new"])
@pytest.mark.parametrize("case", CASES)
def test_killed_at_each_operation(case, replaced, place: Path, monkeypatch):
    if CASES[case]:
        monkeypatch.setattr(atomic, "_renameat2", CASES[case])
    folder, before = place / "export", others(place)
    seen = set[str | None]()
    for at in range(1, 200):
        shutil.rmtree(folder, ignore_errors=True)
        if replaced:
            write(folder, "old")
        ended = run(lambda: write(folder, "new"), place, at)
        seen.add(held(folder))
        if case == "exchange":
            assert held(folder) in (("old", "new") if replaced else (None, "new")), at
        # Nothing is in the way of the next export, and nothing is left after it.
        write(folder, "next")
        assert held(folder) == "next"
        assert sorted(os.listdir(place)) == sorted([*before, "export"]), at
        assert others(place) == before
        if ended == 0:
            break
        assert ended == 9, at
    assert at > 20
    expected = {"old", "new"} if replaced else {None, "new"}
    assert seen == (expected | {None} if case == "two renames" else expected)


def test_an_export_between_two_renames_comes_back(place: Path, monkeypatch):
    """Killed in the instant without a name, the old export has its name again before anything else happens."""
    monkeypatch.setattr(atomic, "_renameat2", lambda: None)
    folder = place / "export"
    write(folder, "old")
    for at in range(1, 200):
        assert run(lambda: write(folder, "new"), place, at) == 9
        if held(folder) is None:
            break
        write(folder, "old")
    with pytest.raises(DataError, match="is an export already"):
        write(folder, "next", overwrite=False)
    assert held(folder) == "old"


@pytest.mark.parametrize("code", CODES, ids=[errno.errorcode[code] for code in CODES])
def test_an_error_at_each_operation(code, place: Path):
    folder, before = place / "export", others(place)
    for at in range(1, 200):
        write(folder, "old")
        ended = run(lambda: write(folder, "new"), place, at, code)
        assert ended in (0, 2, 3), at  # 3: an error while it was clearing away, which it outlived
        assert held(folder) in (("old", "new") if ended == 2 else ("new",)), at
        write(folder, "next")
        assert sorted(os.listdir(place)) == sorted([*before, "export"]), at
        if ended == 0:
            break
    assert at > 20


READER = """
import sys
from pathlib import Path
folder, misses = Path(sys.argv[1]), 0
print("ready", flush=True)
while not (folder.parent / "stop").exists():
    try:
        (folder / "export.json").read_text()
    except FileNotFoundError:
        misses += 1
print(misses)
"""


def test_readers_always_find_an_export(place: Path):
    folder = place / "export"
    write(folder, "old")
    reader = subprocess.Popen([sys.executable, "-c", READER, folder], stdout=subprocess.PIPE, text=True)
    assert reader.stdout.readline() == "ready\n"
    for number in range(200):
        write(folder, str(number))
    (place / "stop").touch()
    assert reader.communicate()[0] == "0\n"


def test_everything_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch):
    synced, fsync = [], os.fsync

    def record(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    folder = tmp_path / "a" / "b" / "export"
    write(folder, "new")
    (partial,) = {Path(name).parent.as_posix() for name in synced if name.endswith("export.json")}
    assert {f"{partial}/{name}" for name in (*FILES, "vocabularies")} <= set(synced)
    at = synced.index(partial)
    assert synced.index(f"{partial}/vocabularies") < at
    assert str(folder.parent) in synced[at:]
    assert {str(tmp_path), str(tmp_path / "a")} <= set(synced)  # the names of new folders above it


def test_symlinks_are_followed_and_stay(tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "export"
    link.symlink_to("../disk/v1")
    for content in ("first", "second"):  # the first time, the link leads to nothing yet
        write(link, content)
        assert link.is_symlink()
        assert held(tmp_path / "disk" / "v1") == held(link) == content
    assert os.listdir(tmp_path / "links") == ["export"]
    assert os.listdir(tmp_path / "disk") == ["v1"]
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DataError, match="loop: is a symlink that leads in a circle"):
        write(tmp_path / "loop", "x")


def test_the_folder_keeps_its_permissions(tmp_path: Path):
    (tmp_path / "export").mkdir(mode=0o750)
    for content in ("first", "second"):
        write(tmp_path / "export", content)
        assert (tmp_path / "export").stat().st_mode & 0o777 == 0o750


def test_files_of_others_are_not_replaced(tmp_path: Path):
    folder = tmp_path / "export"
    write(folder, "old")
    (folder / "notes").mkdir()
    (folder / "notes" / "card.md").touch()
    with pytest.raises(DataError, match=r"holds files that no export wrote \(notes/card.md\); move them elsewhere"):
        write(folder, "new")
    (folder / "notes" / "card.md").unlink()
    (folder / "extra.txt").symlink_to("export.json")
    with pytest.raises(DataError, match=r"\(extra.txt\)"):
        refuse(folder, overwrite=True)
    (folder / "extra.txt").unlink()
    write(folder, "new")
    assert held(folder) == "new"


@pytest.mark.parametrize("overwrite", [True, False])
def test_places_where_no_folder_can_be(overwrite, tmp_path: Path):
    (tmp_path / "file").touch()
    for path, why in {
        tmp_path / "file": "is there already, and is not an export",
        tmp_path / "file" / "x": "cannot be written: Not a directory",
        tmp_path / ("x" * 300): "cannot be written: File name too long",
        Path("/"): "is the root of the file system",
        Path("/proc"): "is a mount point",
    }.items():
        with pytest.raises(DataError, match=why) as error:
            write(path, "x", overwrite)
        assert len(str(error.value).splitlines()) == 1
    assert os.listdir(tmp_path) == ["file"]


def test_where_there_are_no_locks(tmp_path: Path, monkeypatch):
    def none(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(folders.in_work.__wrapped__.__globals__["fcntl"], "flock", none)
    for content in ("first", "second"):
        write(tmp_path / "export", content)
        assert held(tmp_path / "export") == content
    assert os.listdir(tmp_path) == ["export"]
