"""Losses and features describe themselves: nobody else asks which class one is."""

import ast
from pathlib import Path

import pytest

from sparrow import losses
from sparrow.data.features import registry as features

PACKAGE = Path(__file__).parent.parent / "sparrow"
CLASSES = {cls.__name__ for registry in (losses.registry, features) for cls in registry._records.values()}
CLASSES |= {"BinaryLoss", "CandidateSoftmax", "SparseFeature", "MappedIds"}
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if "losses" not in path.parts and "features" not in path.parts]


def asked(tree):
    """The names of classes that the code asks for, with isinstance, issubclass, or ``type(x) is``."""
    for node in ast.walk(tree):
        parts = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            parts = node.args[1:]
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node):
            parts = [node]
        elif isinstance(node, ast.MatchClass):
            parts = [node.cls]
        for part in parts:
            for name in ast.walk(part):
                yield getattr(name, "id", getattr(name, "attr", ""))


def test_no_switch_on_classes():
    found = {path: CLASSES & set(asked(ast.parse(path.read_text(encoding="utf-8")))) for path in FILES}
    assert not {path: names for path, names in found.items() if names}, "let the loss or the feature describe itself"


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(loss, losses.JRC | losses.BPR)",
        "type(feature) is RawFeature",
        "issubclass(type(x), (int, SparseFeature))",
        "match x:\n    case losses.L2():\n        pass",
    ],
)
def test_a_switch_is_found(code):
    assert CLASSES & set(asked(ast.parse(code)))
