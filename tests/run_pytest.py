"""Runs pytest on the files given as arguments: the main of every py_test target."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
