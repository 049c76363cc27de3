"""Progress is lines in a log, and one updating line in a notebook."""

import sys
import types

import pytest

from common import progress_line


class Handle:
    """What `IPython.display.display` returns."""

    def __init__(self, shown):
        self.shown = shown

    def update(self, data, raw):
        assert raw
        self.shown[-1] = data["text/plain"]


@pytest.fixture
def notebook(monkeypatch):
    """Stands for IPython in a kernel; returns the lines that it shows."""
    shown = []

    def display(data, raw, display_id):
        assert raw
        assert display_id
        shown.append(data["text/plain"])
        return Handle(shown)

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return shown


def test_a_log_has_each_line(capsys):
    line = progress_line.ProgressLine()
    line.show("step 1")
    line.show("step 2")
    assert capsys.readouterr().out == "step 1\nstep 2\n"


def test_a_notebook_updates_one_line(notebook, capsys):
    first, second = progress_line.ProgressLine(), progress_line.ProgressLine()
    first.show("step 1")
    first.show("step 2")
    second.show("eval 5")
    assert notebook == ["step 2", "eval 5"]
    assert capsys.readouterr().out == ""


def test_lines_of_a_notebook_are_shown_more_often(notebook, monkeypatch):
    in_notebook = progress_line.seconds_between()
    monkeypatch.delitem(sys.modules, "IPython")
    assert in_notebook < progress_line.seconds_between()


def test_a_terminal_of_ipython_is_not_a_notebook(monkeypatch):
    ipython = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert not progress_line.in_notebook()
