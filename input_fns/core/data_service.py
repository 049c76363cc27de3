"""Training input from the workers of a tf.data service, in the order of local reading.

Each address is a dispatcher with one worker (`tools/data_service.py`). Worker w of W gets the
dataset of the elements w, w + W, ... of a host, and the host takes an element of each in turn. So
the batches are those without a service, for any number of workers; `tf.data`'s own sharding of one
dispatcher over its workers delivers elements in the order in which they are ready.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence

import tensorflow as tf

from common import network
from common.errors import RunError, UsageError
from input_fns.core import input_context, records

# Begins the message of an error of a training.
LOST = "--data_service: a worker lost or repeated a batch"
# Elements of one worker that are sent ahead.
_AHEAD = 4
_PYTHON_OPS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_FIRST_ANSWER_SECONDS = 20.0
_CONNECT_SECONDS = 5.0


def distribute(input_fn, addresses: Sequence[str]):
    """Returns a training input_fn whose elements the workers at `addresses` produce.

    Args:
      input_fn: endless; it divides the elements by `HostShard.worker` if there are several workers.
      addresses: "grpc://HOST:PORT" of each worker.
    """

    def of_worker(params, index):
        workers = {input_context.DATA_WORKER: (index, len(addresses))}
        dataset = input_fn({**params, **workers}).enumerate()
        return _produced_at(addresses[index], dataset)

    @tf.autograph.experimental.do_not_convert
    def checked(number, element):
        # A request that is sent again after a network error gets the next element.
        found, batch = element
        expected = number // len(addresses)
        check = tf.debugging.assert_equal(found, expected, message=LOST)
        with tf.control_dependencies([check] if check is not None else []):
            return tf.nest.map_structure(tf.identity, batch, expand_composites=True)

    def distributed(params):
        workers = [of_worker(params, index) for index in range(len(addresses))]
        turns = tf.data.Dataset.range(len(addresses)).repeat()
        dataset = tf.data.Dataset.choose_from_datasets(workers, turns).enumerate()
        return records.with_options(dataset.map(checked).prefetch(2))

    return distributed


def _produced_at(address, dataset):
    service = tf.data.experimental.service
    with warnings.catch_warnings():  # about options, which the graph keeps
        warnings.simplefilter("ignore", UserWarning)
        return dataset.apply(
            service.distribute(
                service.ShardingPolicy.OFF,
                address,
                max_outstanding_requests=_AHEAD,
                compression=None,
            )
        )


def check_input(input_fn, params, num_workers: int) -> None:
    """Checks that workers can run a training input, and that it divides its elements.

    Raises:
      UsageError: it calls Python, or the input_fn ignores `HostShard.worker`.
    """
    with tf.Graph().as_default() as graph:
        input_fn({**params, input_context.DATA_WORKER: (0, num_workers)})
        nodes = list(graph.as_graph_def().node)
        nodes += [node for f in graph.as_graph_def().library.function for node in f.node_def]
    if any(node.op in _PYTHON_OPS for node in nodes):
        raise UsageError(
            "--data_service: this input calls Python (py_function, numpy_function or "
            "from_generator), which the workers cannot run. Remove --data_service, or use a "
            "prepared data set"
        )
    if num_workers > 1 and not any(
        records.DIVIDED.encode() in node.attr["metadata"].s for node in nodes
    ):
        raise UsageError(
            f"--data_service has {num_workers} workers, but train_input_fn of this data set does "
            "not divide its batches between them. Name one worker, or use "
            "input_fns.record_pipeline.RecordPipeline.train_input_fn"
        )


def check_answers(addresses: Sequence[str]) -> None:
    """Waits until each worker has delivered an element.

    Raises:
      RunError: one does not within 20 s.
    """
    for address in addresses:
        if not accepts_connections(address):
            raise RunError(
                f"--data_service={address}: no server listens there. Start one: "
                "python -m tools.data_service --port=PORT"
            )
    results = {}

    def read(address):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            dataset = _produced_at(address, tf.data.Dataset.range(1))
            iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
            try:
                session.run(iterator.initializer)
                session.run(iterator.get_next())
                results[address] = None
            except tf.errors.OpError as error:
                results[address] = error

    # The requests cannot be cancelled: TensorFlow repeats them for an hour.
    threads = [threading.Thread(target=read, args=[a], daemon=True) for a in addresses]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _FIRST_ANSWER_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for address in addresses:
        if results.get(address, "missing") is not None:
            error = results.get(address)
            reason = cause(error) if error else "it delivers no batch"
            raise RunError(
                f"--data_service={address}: {reason}. Is it a server of tools/data_service.py, "
                "with a --host that this machine reaches?"
            )


def cause(error: tf.errors.OpError) -> str:
    """Returns the line of an error that says what is wrong."""
    return error.message.partition("\n\t [[")[0].splitlines()[-1].rstrip(".")


def accepts_connections(address: str) -> bool:
    """Returns True if a server listens at the address of a worker."""
    return network.accepts_connections(address, _CONNECT_SECONDS)
