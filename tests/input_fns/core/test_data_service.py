"""Batches from the workers of a tf.data service are those of local reading, in the same order."""

import functools
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from common.errors import RunError, UsageError
from input_fns import dataset_info
from input_fns.array_pipeline import ArrayPipeline
from input_fns.core import data_service
from input_fns.record_pipeline import RecordPipeline
from tests import ports
from tests.marks import slow
from tools import data_service as server


@pytest.fixture(scope="module")
def addresses():
    """The addresses of two services in this process."""
    found, servers = [], []
    for _ in range(2):
        found.append(ports.first_of_two())
        servers += server.start("localhost", found[-1])
    yield [f"grpc://localhost:{port}" for port in found]
    for each in servers:
        each._stop()


def read(input_fn, params, count):
    """Returns the first elements of an input_fn."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(input_fn(params))
        element = iterator.get_next()
        session.run(iterator.initializer)
        return [session.run(element) for _ in range(count)]


def host(index, num_hosts, cores):
    """Returns the params of one host of a TPU slice, with the batch of a core."""
    deployment = (None, index, num_hosts, cores)
    context = types.SimpleNamespace(current_input_fn_deployment=lambda: deployment)
    return {"batch_size": 3, "context": context}


CPU, TPU = {"batch_size": 13}, host(1, 2, 3)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("cache", "params", "start_step"),
    [("memory", TPU, 2), ("none", CPU, 5), slow("memory", CPU, 5), slow("none", TPU, 2)],
)
def test_batches_equal_those_of_local_reading(addresses, data_dir, cache, params, start_step):
    pipeline = RecordPipeline(dataset_info.read(data_dir), cache)
    local = pipeline.train_input_fn("train", 1, start_step)
    distributed = data_service.distribute(local, addresses)
    for expected, found in zip(read(local, params, 11), read(distributed, params, 11)):
        tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


@pytest.mark.slow
def test_two_workers_divide_the_batches(data_dir):
    def labels(worker):
        pipeline = RecordPipeline(dataset_info.read(data_dir), "none")
        params = {"batch_size": 7, "data_worker": worker}
        return [batch[1] for batch in read(pipeline.train_input_fn("train", 1), params, 4)]

    whole = labels((0, 1))
    np.testing.assert_array_equal(labels((0, 2))[:2], whole[::2])
    np.testing.assert_array_equal(labels((1, 2))[:2], whole[1::2])


def test_a_lost_batch_is_an_error(data_dir, monkeypatch):
    service = tf.data.experimental.service
    monkeypatch.setattr(service, "distribute", lambda *_, **__: lambda dataset: dataset.skip(1))
    input_fn = RecordPipeline(dataset_info.read(data_dir)).train_input_fn("train", 1)
    distributed = data_service.distribute(input_fn, ["grpc://localhost:1"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=data_service.LOST):
        read(distributed, {"batch_size": 4}, 1)


def test_python_is_an_error():
    arrays = {"train": ({"x": np.zeros([5, 2], np.float32)}, np.zeros(5, np.float32))}
    input_fn = ArrayPipeline("zeros", arrays).train_input_fn("train", 1)
    with pytest.raises(UsageError, match=r"calls Python \(py_function"):
        data_service.check_input(input_fn, {"batch_size": 2}, 1)


def test_an_input_that_is_not_divided_has_one_worker():
    check = functools.partial(data_service.check_input, lambda _: tf.data.Dataset.range(9), {})
    check(1)
    with pytest.raises(UsageError, match=r"2 workers, but train_input_fn .* does not divide"):
        check(2)


def test_every_worker_is_asked(addresses):
    data_service.check_answers(addresses)
    other = f"grpc://localhost:{ports.first_of_two()}"
    with pytest.raises(RunError, match=f"{other}: no server listens there"):
        data_service.check_answers([*addresses, other])


def test_a_server_with_an_unexpected_argument_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["data_service", "5050"])
    with pytest.raises(UsageError, match="unexpected argument '5050'"):
        server.main()
