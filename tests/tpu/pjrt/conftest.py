"""Fixtures of the tests of PJRT devices."""

import contextlib

import pytest

from tpu.pjrt import client


@pytest.fixture(scope="module")
def shared_workers():
    """Runs of a module on equal devices share a worker until it fails: a start takes seconds."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        start, running = client.Devices, {}

        def find(*arguments):
            devices = running.get(arguments)
            if devices is None or devices._error:
                devices = running[arguments] = start(*arguments)
                stack.callback(devices.close)
                devices.close = lambda: None
            return devices

        patch.setattr(client, "Devices", find)
        yield
