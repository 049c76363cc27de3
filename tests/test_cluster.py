"""Training on a local cluster: chief, worker, parameter server and evaluator."""

import json
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import checkpoint_files
from tests import numerics
from tests.marks import slow
from tools.local_cluster import LocalCluster


@pytest.fixture
def cluster(tiny_flags, tmp_path):
    """Builds a local cluster of a chief and others that trains a tiny model."""
    clusters = []

    def make(*arguments, **others):
        given = [*tiny_flags, f"--model_dir={tmp_path}/model", *arguments]
        clusters.append(LocalCluster(given, tmp_path / "logs", **others))
        return clusters[0]

    yield make
    clusters[0].stop()


# A worker starts to train seconds after the chief, so it needs a long training.
@pytest.mark.parametrize(
    ("workers", "evaluator", "steps"), [slow(0, False, 60), slow(0, True, 60), slow(1, True, 1500)]
)
def test_asynchronous_training_ends_in_all_processes(
    cluster, tmp_path, variables, result, workers, evaluator, steps
):
    arguments = [f"--train_steps={steps}", "--eval_timeout_secs=600"]
    cluster = cluster(*arguments, workers=workers, evaluator=evaluator)
    assert cluster.run(max_restarts=0) == 0
    step = int(variables(tmp_path / "model")["global_step"])
    assert steps <= step <= steps + 2  # the worker may finish a step after the chief has ended
    if evaluator:
        evaluated = result(tmp_path / "model", step)["eval"]
        assert evaluated["examples"] == 41
        assert evaluated["accuracy"] > 0.9
    # The worker may train a step between the last checkpoint and the chief's record.
    records = [json.loads(path.read_text()) for path in (tmp_path / "model").glob("result_*")]
    (trained,) = (record["train"] for record in records if "train" in record)
    assert trained["start_step"] == 0
    for worker in range(workers):
        assert "step" in cluster.log(f"worker-{worker}").read_text()
    assert all(np.isfinite(value).all() for value in variables(tmp_path / "model").values())


@pytest.mark.slow
def test_synchronous_workers_train_like_one_device(cluster, run_in, tmp_path, variables):
    # Without a hidden layer: at the kink of a ReLU rounding selects the gradient.
    arguments = [
        "--mode=train",
        "--train_batch_size=14",
        "--params=dropout=0,hidden_units=,epsilon=0.01",
    ]
    run_in(tmp_path / "model", *arguments, "--train_steps=1")
    shutil.copytree(tmp_path / "model", tmp_path / "one")
    run_in(tmp_path / "one", *arguments, "--train_steps=21")
    arguments += ["--train_steps=21", "--strategy=multi_worker_mirrored"]
    assert cluster(*arguments, workers=1, ps=0, evaluator=False).run(max_restarts=0) == 0
    one, two = variables(tmp_path / "one"), variables(tmp_path / "model")
    assert two["global_step"] == 21
    assert numerics.excess(two, one, terms=14, depth=21, magnitude=1.0) < 1


def devices_of_variables(checkpoint):
    """Returns `{name: device}` of the variables of the graph that wrote a checkpoint."""
    graph = tf.compat.v1.MetaGraphDef()
    with open(f"{checkpoint}.meta", "rb") as file:
        graph.ParseFromString(file.read())
    return {n.name: n.device for n in graph.graph_def.node if n.op == "VarHandleOp"}


@pytest.mark.slow
def test_a_partitioned_table_survives_the_loss_of_each_process(tmp_path, run_with):
    case, steps, every = "tests.contract.embedding", 12_000, 500
    model_dir = tmp_path / "model"
    arguments = [
        f"--model={case}.model:MODEL",
        f"--dataset={case}.data:make_pipeline",
        "--data_dir=unused",
        f"--model_dir={model_dir}",
        "--mode=train",
        f"--train_steps={steps}",
        f"--save_checkpoints_steps={every}",
        "--train_batch_size=16",
        "--params=optimizer=adagrad,learning_rate=0.01,lazy_embeddings=true",
    ]
    cluster = LocalCluster(arguments, tmp_path / "logs", workers=2, ps=2, evaluator=False)
    victims = ["worker-0", "ps-0", "chief", "ps-1", "worker-1"]

    def await_step(step):
        deadline = time.monotonic() + 120
        while checkpoint_files.newest_step(str(model_dir)) < step:
            assert time.monotonic() < deadline, f"no checkpoint of step {step}"
            time.sleep(0.2)

    try:
        for name in cluster.names:
            cluster.start(name)
        for i, victim in enumerate(victims):
            await_step(every * (1 + 4 * i))
            assert cluster.processes[victim].poll() is None
            cluster.processes[victim].kill()
            cluster.processes[victim].wait()
            cluster.start(victim)
        for name, process in cluster.processes.items():
            assert process.wait(timeout=240) == 0, cluster.log(name).read_text()
    finally:
        cluster.stop()
    checkpoint = tf.train.latest_checkpoint(str(model_dir))
    shapes = dict(tf.train.list_variables(checkpoint))
    assert shapes["items"] == shapes["items/Adagrad"] == [200_000, 8]
    devices = devices_of_variables(checkpoint)
    for slot in ("", "/Adagrad"):
        found = {devices[f"items/part_{i}{slot}"] for i in range(2)}
        assert found == {f"/job:ps/task:{i}" for i in range(2)}
    accumulator = tf.train.load_variable(checkpoint, "items/Adagrad")
    is_trained = (accumulator > 0.1).any(axis=1)  # the rows of both parameter servers
    assert is_trained[:100_000].any()
    assert is_trained[100_000:].any()
    run_with(*arguments, "--mode=eval", "--eval_batch_size=41")  # joins the partitions


@pytest.mark.parametrize("arguments", [["--mode=eval"], ["--early_stop_evals=2"]])
def test_flags_unsupported_in_a_cluster(run, monkeypatch, arguments):
    monkeypatch.setenv(
        "TF_CONFIG",
        '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "chief", "index": 0}}',
    )
    with pytest.raises(UsageError, match=r"cluster"):
        run("--train_steps=3", "--best_metric=accuracy", *arguments)
