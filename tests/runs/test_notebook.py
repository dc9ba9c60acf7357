"""Progress in a notebook, on stand-ins for IPython's display."""

import sys
import types

import pytest

from sparrow.runs.recorded.log import Log, NotebookBar, is_notebook


@pytest.fixture
def shown(monkeypatch):
    """The HTML of each update."""
    pages = []
    handle = types.SimpleNamespace(update=pages.append)

    def display(first, display_id):
        assert display_id
        pages.append(first)
        return handle

    kernel = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(HTML=str, display=display))
    return pages


def test_a_run_shows_one_bar(shown, capsys):
    with Log(total=3) as log:
        log.line("a note")
        for step in range(1, 4):
            log.advance()
            log.report("train", step, {"loss": 0.5})
        log.report("eval", 3, {"auc": 0.75})
    assert 'value="0" max="3"' in shown[0]
    assert 'value="3" max="3"' in shown[-1]
    assert "loss 0.5" in shown[-1]
    out = capsys.readouterr().out
    assert "a note" in out
    assert "auc 0.75" in out
    assert "loss" not in out  # the numbers of training are in the bar


def test_without_a_notebook_there_are_lines(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not is_notebook()
    with Log(total=1) as log:
        log.report("train", 1, {"loss": 0.5})
    assert "loss 0.5" in capsys.readouterr().out


def test_numbers_are_text(shown):
    bar = NotebookBar(None, 2)
    bar.show("<script>")
    assert "&lt;script&gt;" in shown[-1]
    assert "2 steps" in shown[-1]
