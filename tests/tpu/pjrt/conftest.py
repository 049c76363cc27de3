"""Fixtures of the tests of PJRT devices."""

import contextlib
import sys

import numpy as np
import pytest

from tests.tpu.emulator import tiny
from tpu.connect import topology
from tpu.emulator import emulator
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
                devices.close = lambda reason: None
            return devices

        patch.setattr(client, "Devices", find)
        yield


@pytest.fixture(scope="module")
def pair():
    """Two CPU devices of JAX."""
    pytest.importorskip("jax", reason="the extra 'pjrt' is not installed")
    with client.Devices(sys.executable, "cpu", 2) as devices:
        yield devices


@pytest.fixture
def on_pair(pair):
    """Returns context managers in which a TPUEstimator runs on two devices."""
    from tpu.pjrt.cores import PJRTCores

    return lambda: emulator.emulate(topology.find("1x2"), PJRTCores(pair))


@pytest.fixture
def predict(on_pair, tmp_path):
    """Returns the 8 rows that a function computes from the numbers 0 to 7, `[2, 1]` per device."""

    def run(function):
        with on_pair():
            estimator = tiny.estimator(
                tiny.config(tmp_path / "model", tf_random_seed=3),
                batch_size=4,
                predict=lambda features: {"result": function(features)},
            )
            if not (tmp_path / "model").exists():
                estimator.train(tiny.numbers, max_steps=1)
            rows = estimator.predict(tiny.numbers_once)
            return np.array([row["result"] for row in rows])

    return run
