"""CI's slow tests: parts of equal cost, tests of changed packages, and the time limit."""

import math
import subprocess
import sys
import time

import pytest

from tests import slow_part
from tools import slow_tests


def test_parts_have_similar_costs_and_all_files():
    costs = {"a": 7, "b": 5, "c": 4, "d": 4, "e": 1, "f": 1}
    parts = slow_part.split(costs, 3)
    assert parts == [["a"], ["b", "e", "f"], ["c", "d"]]


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/3/5", "a/b"])
def test_an_invalid_part(text):
    with pytest.raises(pytest.UsageError, match="must be K/N"):
        slow_part.parse(text)


TESTS = {
    "models/text/test_bert.py": "from marks import slow",
    "models/text/test_fast.py": "",
    "models/test_registry.py": "# slow\nfrom models import registry, text",
    "test_train.py": "# slow\nimport models.text.bert",
    "test_changed.py": "# slow",
    "test_other.py": "# slow\nfrom models.textbook import other",
}


def test_tests_of_a_changed_package(tmp_path):
    for name, content in TESTS.items():
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    changed = ["models/text/bert.py", "tests/test_changed.py", "docs/bert.md"]
    names = ["models/test_registry.py", "models/text/test_bert.py"]
    names += ["test_changed.py", "test_train.py"]
    assert slow_tests.tests_of(changed, tmp_path) == [f"tests/{name}" for name in names]
    assert slow_tests.tests_of([], tmp_path) == []


def git(folder, *arguments):
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_changed_files_of_a_branch_of_main_and_of_a_shallow_checkout(tmp_path):
    git(tmp_path, "init", "--initial-branch=main")
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text("")
        git(tmp_path, "add", name)
        git(tmp_path, "commit", "--message", name)
        if name == "one":
            assert slow_tests.changed_files(tmp_path) is None
        if name == "two":
            assert slow_tests.changed_files(tmp_path) == ["two"]
            git(tmp_path, "checkout", "-b", "branch")
            (tmp_path / "more").write_text("")
            git(tmp_path, "add", "more")
            git(tmp_path, "commit", "--message", "more")
    assert slow_tests.changed_files(tmp_path) == ["more", "three"]


def test_failed_files_are_named(monkeypatch, capsys):
    codes = {
        "passes": "",
        "has no slow test": "raise SystemExit(5)",
        "fails": "print('why'); 1 / 0",
    }
    command = lambda *arguments: [sys.executable, "-S", "-c", codes[arguments[-1]]]  # noqa: E731
    monkeypatch.setattr(slow_tests, "_pytest", command)
    runner = slow_tests.Runner(list(codes), time.monotonic() + 6000)
    runner.run()
    assert (runner.failed, runner.stopped, list(runner.waiting)) == (["fails"], [], [])
    assert "FAILED\nwhy\n" in capsys.readouterr().out


def test_the_time_limit(monkeypatch):
    runner = slow_tests.Runner(["a", "b"], time.monotonic())
    runner.run()
    assert list(runner.waiting) == ["a", "b"]

    forever = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(slow_tests, "_pytest", lambda *arguments: forever)
    monkeypatch.setattr(slow_tests, "_LAST_START", -math.inf)
    runner.run()
    assert sorted(runner.stopped) == ["a", "b"]
    assert not runner.waiting
