"""Runs pytest on the files in the arguments: the main of every py_test."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
