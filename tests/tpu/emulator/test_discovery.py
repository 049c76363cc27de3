"""However a program looks for its TPU, it finds the emulated slice."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from tests.marks import slow
from tests.tpu.emulator import tiny
from tpu.connect import topology
from tpu.emulator import discovery, emulator

tf1 = tf.compat.v1
ADDRESS = "grpc://10.0.0.2:8470"
Resolver = tf.distribute.cluster_resolver.TPUClusterResolver


class OwnResolver(Resolver):
    """A resolver of a program."""

    def __init__(self, name):
        super().__init__(tpu=[name], zone="us-central1-b", project="mine")


@pytest.mark.parametrize(
    "find",
    [
        slow(lambda: {"master": ADDRESS}),
        lambda: {"master": ADDRESS, "evaluation_master": "grpc://10.0.0.3:8470"},
        slow(lambda: {"cluster": Resolver()}),
        lambda: {"cluster": Resolver(ADDRESS, credentials=None, job_name="tpu_worker")},
        lambda: {"cluster": OwnResolver("mine")},
        lambda: {"master": Resolver("mine").get_master()},
    ],
)
def test_program_trains_and_evaluates(tmp_path, find):
    with emulator.emulate("1x2"):
        estimator = tiny.estimator(tiny.config(tmp_path, **find()))
        estimator.train(tiny.numbers, steps=2)
        assert estimator.evaluate(tiny.numbers, steps=1)["mean"] == 3.5
    assert estimator.get_variable_value("global_step") == 2


def test_estimator_made_before(tmp_path):
    config = tiny.config(tmp_path, cluster=Resolver(ADDRESS))
    estimator = tiny.estimator(config)
    with emulator.emulate("1x2"):
        estimator.train(tiny.numbers, steps=2)
    assert estimator.get_variable_value("global_step") == 2


def test_train_and_evaluate_ignores_tf_config(tmp_path, monkeypatch):
    cluster = {"tpu_worker": ["10.0.0.2:8470"], "master": ["10.0.0.1:2222"]}
    task = {"type": "master", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    with emulator.emulate("1x2"):
        estimator = tiny.estimator(tiny.config(tmp_path, cluster=Resolver("mine")))
        metrics, _ = tf.estimator.train_and_evaluate(
            estimator,
            tf.estimator.TrainSpec(tiny.numbers, max_steps=4),
            tf.estimator.EvalSpec(tiny.numbers, steps=1, start_delay_secs=0, throttle_secs=0),
        )
    assert metrics["global_step"] == 4


def test_session_lists_the_devices(monkeypatch):
    monkeypatch.delenv("COLAB_TPU_ADDR", raising=False)
    with emulator.emulate("v2-8"):
        address = "grpc://" + os.environ["COLAB_TPU_ADDR"]
        with tf.Graph().as_default(), tf1.Session(address) as session:
            devices = session.list_devices()
    names = [device.name for device in devices if device.device_type == "TPU"]
    assert names == [f"/job:worker/replica:0/task:0/device:TPU:{i}" for i in range(8)]


def test_initialize_system_returns_the_topology():
    with emulator.emulate("v3-32"), tf.Graph().as_default(), tf1.Session(ADDRESS) as session:
        serialized = session.run(tf1.tpu.initialize_system())
        session.run(tf1.tpu.shutdown_system())
    found = tf.tpu.experimental.Topology(serialized=serialized)
    assert found.mesh_shape.tolist() == [4, 4, 1, 2]
    assert (found.num_tasks, found.num_tpus_per_task) == (4, 8)


def test_version_2_functions_find_the_slice():
    with emulator.emulate("v2-8"):
        resolver = Resolver("mine")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.config.experimental_connect_to_host(ADDRESS)
        found = tf.tpu.experimental.initialize_tpu_system(resolver)
        assert resolver.cluster_spec().as_dict()["worker"] == ["127.0.0.1:8470"]
        assert resolver.num_accelerators() == {"TPU": 8}
        assert len(tf.config.list_logical_devices("TPU")) == 8
        assert resolver.get_tpu_system_metadata().num_cores == 8
        tf.tpu.experimental.shutdown_tpu_system(resolver)
    assert found.mesh_shape.tolist() == [2, 2, 1, 2]


def test_tpu_strategy_is_refused():
    with emulator.emulate("v2-8"), pytest.raises(NotImplementedError, match="TPUStrategy"):
        tf.distribute.TPUStrategy(Resolver("mine"))


def test_devices_of_other_jobs_are_of_this_process():
    device = tf.device("/job:worker/task:1/device:CPU:0")
    with emulator.emulate("2x2"), tf.Graph().as_default(), device, tf1.Session(ADDRESS) as session:
        assert session.run(tf.constant(1) + 1) == 2


@pytest.mark.parametrize("name", ["v2-8", "v3-32", "v3-2048", "v4-16", "1x1", "1x3", "4x2"])
def test_devices_have_different_places_in_the_mesh(name):
    tpu_slice = topology.find(name)
    found = discovery.topology_of(tpu_slice)
    places = found.device_coordinates.reshape(-1, 4)
    assert len(np.unique(places, axis=0)) == tpu_slice.num_cores == np.prod(found.mesh_shape)
    assert (places < found.mesh_shape).all()
