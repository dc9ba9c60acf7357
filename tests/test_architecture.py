"""docs/architecture.md is true: the files it names are there, and hold what it says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

ANSWERS = {
    "sparrow/embedding/row_grads.py": "def clip_factor",
    "sparrow/rules/adagrad.py": "class RowwiseAdagrad",
    "sparrow/data/sources/text.py": 'register_source("csv")',
    "sparrow/data/hashing.py": "def hashed(",
    "sparrow/checkpoint/folder.py": "str(step)",
    "sparrow/kernels/backend_choice.py": "def choose(",
    "sparrow/config/sections/train.py": "class Train(",
    "sparrow/runs/parts/evaluating.py": "class Watch",
    "sparrow/reports/curves.py": "recall",
    "sparrow/kernels/rounding.py": "def round_stochastic",
    "sparrow/kernels/ids/types.py": "5. *Given out.*",
    "sparrow/kernels/attention/padded.py": "def visible",
}


def test_every_question_has_its_answer():
    asked = re.findall(r"\? \| `([\w/.]+)` \|", TEXT)
    assert asked == list(ANSWERS)


@pytest.mark.parametrize(("file", "line"), ANSWERS.items())
def test_the_answer_is_in_the_file(file, line):
    assert line in (ROOT / file).read_text(encoding="utf-8")


def test_the_files_of_the_map_are_there():
    for name in set(re.findall(r"`([a-z_]+/[\w/]+(?:\.py|/))`", TEXT)):
        place = name if name.startswith(("sparrow/", "docs/")) else f"sparrow/{name}"
        assert (ROOT / place).exists(), f"docs/architecture.md names {name}, which is not there"
