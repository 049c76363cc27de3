"""A training ends if a worker of its tf.data service does not answer."""

import queue

from engine.train import data_service_watch
from input_fns.core import data_service


def test_a_worker_that_is_gone_ends_the_process(monkeypatch):
    monkeypatch.setattr(
        data_service, "accepts_connections", lambda address: address == "grpc://a:1"
    )
    messages = queue.Queue()
    with data_service_watch.watched(["grpc://a:1", "grpc://b:1"], 0.01, messages.put):
        assert messages.get().startswith("--data_service=grpc://b:1 has not answered for 0 s")
