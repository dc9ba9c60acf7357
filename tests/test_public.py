"""The public face: `dir` of the package and of its public modules is what the reference has, and nothing else."""

import inspect
import sys
from pathlib import Path

import pytest

import sparrow as sp

sys.path.insert(0, str(Path(__file__).parent.parent / "docs"))
from site_names import ROOMS, described, listed, module_of

MODULES = [room for room in ROOMS if room != "sparrow"]


@pytest.mark.parametrize("room", ROOMS)
def test_dir_and_the_reference_list_the_same_names(room):
    on_page = {**described(room), **listed(room)}
    assert sorted(dir(module_of(room))) == sorted(on_page)
    assert not [name for name in on_page if name.startswith("_") and name != "__version__"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_has_a_line(room):
    assert not [name for name, line in listed(room).items() if line.endswith(": ") or not line]


def test_every_public_module_has_a_page():
    assert sorted(name for name in sp.__all__ if inspect.ismodule(getattr(sp, name))) == sorted(MODULES)
    pages = (Path(__file__).parent.parent / "mkdocs.yml").read_text()
    assert all(f"reference/python/{room}.md" in pages for room in ROOMS)


def test_plan_is_a_function():
    assert inspect.isfunction(sp.plan)
