"""The device scope of layers: nesting, threads, TPU parameters."""

import threading
import types

import pytest

from models.layers import device


def test_outside_a_scope_the_device_is_a_single_non_tpu_device():
    assert device.current() == device.Device()
    assert not device.is_tpu()
    assert device.current().num_replicas == 1


def test_scopes_nest_and_end():
    with device.scope({"use_tpu": True, "context": types.SimpleNamespace(num_replicas=8)}):
        assert device.is_tpu()
        assert device.current().num_replicas == 8
        with device.scope({"use_tpu": False}):
            assert not device.is_tpu()
        assert device.current().num_replicas == 8
    assert not device.is_tpu()


def test_a_scope_ends_with_an_error():
    with pytest.raises(KeyError), device.scope({"use_tpu": True}):
        raise KeyError
    assert not device.is_tpu()


def test_each_thread_has_its_own_scope():
    found = []
    with device.scope({"use_tpu": True}):
        thread = threading.Thread(target=lambda: found.append(device.is_tpu()))
        thread.start()
        thread.join()
    assert found == [False]
