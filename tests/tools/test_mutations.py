"""The faults of `make mutations` can be applied."""

import pathlib

import pytest

from tools import mutations

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("fault", mutations.FAULTS, ids=lambda fault: fault.path)
def test_text_that_a_fault_replaces_occurs_once(fault):
    assert (ROOT / fault.path).read_text().count(fault.right) == 1
    assert fault.wrong != fault.right
    assert not [path for path in fault.tests.split() if not (ROOT / path).exists()]
