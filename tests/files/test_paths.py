"""A path that a file names stays in its folder."""

from pathlib import Path

import pytest

from sparrow.files import UnsafePath, inside


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../x",
        "a/../../x",
        "a/..",
        "/etc/passwd",
        "",
        ".",
        "out",
        "out/x",
        "\ud800",
        "a\0b",
        7,
        None,
        ["a"],
    ],
)
def test_paths_that_lead_out(name, tmp_path: Path):
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    (folder / "out").symlink_to(tmp_path)
    with pytest.raises(UnsafePath) as error:
        inside(folder, name)
    assert len(str(error.value).splitlines()) == 1
    str(error.value).encode()


def test_paths_that_stay(tmp_path: Path):
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "b").symlink_to("a")
    for name in ("a/x.txt", "b/x.txt", "...", "a/..x", "ünï"):
        assert inside(tmp_path / "link", name) == tmp_path / "link" / name
    assert inside(Path("/"), "etc") == Path("/etc")
