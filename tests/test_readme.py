"""The README's code runs as written, and its table names every rule."""

import re
from pathlib import Path

import sparrow as sp

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_quick_start_runs_as_written(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 3
    scope: dict[str, object] = {}
    for block in blocks:
        exec(block, scope)
    assert capsys.readouterr().out.startswith("(100000, 64) (100000,)")
    rule = scope["SignAdagrad"]()
    table = sp.TableSpec(name="t", vocabulary_size=5, embedding_dim=2, optimizer=rule)
    assert sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])


def test_every_rule_is_in_the_table():
    listed = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)
    assert sorted(listed) == sorted(rule.__name__ for rule in sp.rules.SHIPPED)
