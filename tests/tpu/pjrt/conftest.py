"""Fixtures of the tests of PJRT devices."""

import contextlib
import functools

import pytest

from tpu.pjrt import client


@pytest.fixture(scope="module")
def shared_workers():
    """Lets all runs of a module on equal devices share a worker: its start takes seconds."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        start = client.Devices

        @functools.cache
        def find(*arguments):
            devices = start(*arguments)
            stack.callback(devices.close)
            devices.close = lambda: None
            return devices

        patch.setattr(client, "Devices", find)
        yield
