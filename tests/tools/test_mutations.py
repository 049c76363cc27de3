"""The deliberate faults can be put in; that the tests notice them is seen by `make mutations`."""

import pathlib

import pytest

from tools import mutations

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("fault", mutations.FAULTS, ids=lambda fault: fault.path)
def test_what_a_fault_replaces_stands_there_once(fault):
    assert (ROOT / fault.path).read_text().count(fault.right) == 1
    assert fault.wrong != fault.right
    assert not [path for path in fault.tests.split() if not (ROOT / path).exists()]
