"""The versions of Python, TensorFlow and NumPy that are accepted."""

import sys

import pytest

from tpu import software


def test_the_installed_versions_are_supported():
    assert software.find_problems() == []


def test_unsupported_python(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    (problem,) = software.find_problems()
    assert "Python 3.12.1 is unsupported: TensorFlow 2.15 needs 3.9" in problem


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({}, f"TensorFlow is not installed in {sys.prefix}. Run pip install tensorflow==2.15.1"),
        ({"tensorflow": "2.16.1"}, "tensorflow 2.16.1 is unsupported: 2.15 is the last release"),
        ({"tensorflow": "2.15.1", "numpy": "2.0.2"}, "NumPy 2.0.2 is unsupported"),
    ],
)
def test_unsupported_packages(versions, message, monkeypatch):
    monkeypatch.setattr(software, "version_of", versions.get)
    (problem,) = software.find_problems()
    assert message in problem
