"""TF_CONFIG: the role of a process in a cluster, and errors."""

import json

import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.distribute import tf_config

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


@pytest.fixture
def configure(monkeypatch):
    """Sets TF_CONFIG to a task of a cluster, or to a text."""

    def configure(task_type=None, index=0, cluster=CLUSTER, text=None):
        config = {"cluster": cluster, "task": {"type": task_type, "index": index}}
        monkeypatch.setenv("TF_CONFIG", text or json.dumps(config))

    return configure


@pytest.mark.parametrize(
    ("task_type", "index", "worker"), [("chief", 0, 0), ("worker", 1, 2), ("ps", 0, 0)]
)
def test_a_task_of_a_cluster(configure, task_type, index, worker):
    configure(task_type, index)
    expected = tf_config.Task(task_type, worker, in_cluster=True, num_ps=1)
    assert tf_config.from_environment() == expected


def test_embedding_tables_are_partitioned_over_parameter_servers(configure):
    configure("worker", cluster={**CLUSTER, "ps": ["d:1", "e:1", "f:1"]})
    partitioner = tf_config.from_environment().table_partitioner
    large, small = (tf.TensorShape([rows, 64]) for rows in (10_000, 1_500))
    assert partitioner(shape=large, dtype=tf.float32) == [3, 1]
    assert partitioner(shape=small, dtype=tf.float32) == [2, 1]  # parts of at least 256 KiB
    assert tf_config.Task().table_partitioner is None


def test_the_evaluator_is_not_in_the_cluster_spec(configure):
    configure("evaluator")
    task = tf_config.from_environment()
    assert (task.type, task.in_cluster, task.trains, task.is_chief) == (
        "evaluator",
        True,
        False,
        False,
    )


def test_without_tf_config_there_is_no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert tf_config.from_environment() == tf_config.Task("chief", 0, in_cluster=False)


def test_a_cluster_of_one_process_is_ignored(configure):
    configure("chief", cluster={"chief": ["a:1"]})
    for strategy in ("none", "mirrored"):
        assert not tf_config.from_environment(strategy).in_cluster


@pytest.mark.parametrize("task_type", ["chief", "worker", "ps", "evaluator"])
def test_mirrored_is_an_error_in_every_task_of_a_cluster(configure, task_type):
    configure(task_type)
    with pytest.raises(UsageError, match="a cluster, but --strategy=mirrored trains on one"):
        tf_config.from_environment("mirrored")


def test_another_machine_may_evaluate_a_mirrored_training(configure):
    configure("evaluator", cluster={"chief": ["a:1"]})
    assert tf_config.from_environment("mirrored").type == "evaluator"


# As the training operator of Kubeflow writes it: the evaluator is in the cluster.
KUBEFLOW = """{"cluster":{"MASTER":["x-MASTER-0.ns.svc:2222"],
"evaluator":["x-evaluator-0.ns.svc:2222"],"ps":["x-ps-0.ns.svc:2222"],"worker":["x-worker-0.ns.svc:2222"]},
"task":{"type":"ROLE","index":0},"environment":"cloud"}"""
# As Vertex AI writes it.
VERTEX = """{"cluster":{"MASTER":["training-workerpool0-ab-0:2222"],
"ps":["training-workerpool2-ab-0:2222"],"worker":["training-workerpool1-ab-0:2222"]},
"environment":"cloud","job":{"workerPoolSpecs":[{"replicaCount":"1"}]},
"task":{"cloud":"ab","index":0,"trial":"1","type":"ROLE"}}"""


@pytest.mark.parametrize("text", [KUBEFLOW, VERTEX], ids=["Kubeflow", "Vertex AI"])
@pytest.mark.parametrize("chief", ["chief", "master"])
@pytest.mark.parametrize(
    ("role", "task"),
    [
        ("MASTER", tf_config.Task("chief", 0, in_cluster=True, num_ps=1)),
        ("worker", tf_config.Task("worker", 1, in_cluster=True, num_ps=1)),
        ("ps", tf_config.Task("ps", 0, in_cluster=True, num_ps=1)),
        ("evaluator", tf_config.Task("evaluator", 0, in_cluster=True)),
    ],
)
def test_the_formats_of_kubeflow_and_vertex_ai(configure, text, chief, role, task):
    configure(text=text.replace("ROLE", role).replace("MASTER", chief))
    assert tf_config.from_environment() == task
    # RunConfig reads TF_CONFIG again for the Estimator.
    config = tf.estimator.RunConfig()
    assert config.task_type == task.type
    if role != "evaluator":
        assert sorted(config.cluster_spec.jobs) == ["chief", "ps", "worker"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"text": "{not json"}, "Expecting property name"),
        ({"text": "[1]"}, "TF_CONFIG"),
        ({"task_type": "worker", "index": 7}, "index"),
        ({"task_type": "chief", "cluster": {**CLUSTER, "chief": ["a:1", "a:2"]}}, "one"),
        ({"task_type": "worker", "cluster": {"worker": ["b:1"], "ps": ["d:1"]}}, "chief"),
        (
            {"task_type": "worker", "cluster": {"chief": ["a:1"], "worker": ["b:1"]}},
            "Add one, or use",
        ),
        ({"task_type": "boss"}, "boss"),
        ({"task_type": "master", "cluster": {**CLUSTER, "master": ["e:1"]}}, "not supported"),
        ({"text": json.dumps({"cluster": CLUSTER})}, "task"),
    ],
)
def test_invalid_clusters(configure, config, message):
    configure(**config)
    with pytest.raises(UsageError, match=message):
        tf_config.from_environment()


@pytest.mark.parametrize(
    ("index", "task"),
    [
        (0, tf_config.Task("chief", 0, in_cluster=True, is_synchronous=True)),
        (1, tf_config.Task("worker", 1, in_cluster=True, is_synchronous=True)),
        (2, tf_config.Task("worker", 2, in_cluster=True, is_synchronous=True)),
        ("2", tf_config.Task("worker", 2, in_cluster=True, is_synchronous=True)),
    ],
)
def test_the_first_of_synchronous_workers_is_the_chief(configure, index, task):
    """As in TensorFlow's guide to MultiWorkerMirroredStrategy."""
    configure("worker", index, cluster={"worker": ["a:1", "b:1", "c:1"]})
    assert tf_config.from_environment("multi_worker_mirrored") == task
    cluster = tf.estimator.RunConfig().cluster_spec
    assert cluster.as_dict() == {"chief": ["a:1"], "worker": ["b:1", "c:1"]}


def test_one_synchronous_worker_is_no_cluster(configure):
    configure("worker", 0, cluster={"worker": ["a:1"]})
    assert not tf_config.from_environment("multi_worker_mirrored").in_cluster


@pytest.mark.parametrize("index", [3, -1, "3", "one", None])
def test_a_worker_that_is_not_in_the_cluster(configure, index):
    configure("worker", index, cluster={"worker": ["a:1", "b:1", "c:1"]})
    with pytest.raises(UsageError, match=f"worker {index}, but the cluster has 3 workers"):
        tf_config.from_environment("multi_worker_mirrored")
