"""A cluster on this machine: a chief, a worker, a parameter server and an evaluator."""

import numpy as np
import pytest

from tools.local_cluster import LocalCluster


@pytest.fixture
def cluster(tiny_flags, tmp_path):
    """A cluster that trains a tiny model; started by the test."""
    arguments = [*tiny_flags, f"--model_dir={tmp_path}/model", "--train_steps=300"]
    arguments += ["--save_checkpoints_steps=100", "--eval_timeout_secs=60"]
    cluster = LocalCluster(arguments, tmp_path / "logs", workers=1)
    yield cluster
    cluster.stop()


def test_all_train_one_model_and_all_end(cluster, tmp_path, variables, result):
    assert cluster.run(max_restarts=0) == 0
    step = int(variables(tmp_path / "model")["global_step"])
    assert 300 <= step <= 302  # the worker may be a step behind when the chief reaches the end
    at_the_end = result(tmp_path / "model", step)
    assert at_the_end["train"]["start_step"] == 0
    assert at_the_end["eval"]["examples"] == 41
    assert at_the_end["eval"]["accuracy"] > 0.9
    assert "step" in cluster.log("worker-0").read_text()
    assert all(np.isfinite(value).all() for value in variables(tmp_path / "model").values())


@pytest.mark.parametrize("arguments", [["--mode=eval"], ["--early_stop_evals=2"]])
def test_what_a_cluster_does_not_do(run, monkeypatch, arguments):
    monkeypatch.setenv(
        "TF_CONFIG",
        '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "chief", "index": 0}}',
    )
    from training.program import UsageError

    with pytest.raises(UsageError, match=r"cluster"):
        run("--train_steps=3", "--best_metric=accuracy", *arguments)
