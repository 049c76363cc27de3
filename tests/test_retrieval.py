"""The two-tower model from a file of ratings to an export; 1, 2 and 8 replicas train alike."""

import json

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from models.layers import device
from tests import numerics, ratings_data
from tests.conftest import _runner
from tests.marks import slow

BATCH, STEPS = 16, 10
FLAGS = [
    "--model=two_tower",
    "--dataset=ratings",
    "--params=embedding_size=4,tower_units=[6,3],schedule=constant,optimizer=sgd,learning_rate=0.1",
    "--eval_split=test",
    "--seed=1",
    f"--train_batch_size={BATCH}",
    "--eval_batch_size=8",
    "--predict_batch_size=8",
]
# Each step sums the gradients of a batch, and adds their rounding to variables of magnitude 1.
ARITHMETIC = {"terms": BATCH, "depth": STEPS, "magnitude": 1.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrieval")
    found = ratings_data.rows(num_users=40, num_items=400)
    return ratings_data.prepare(folder / "raw", found, folder / "data")


@pytest.fixture(scope="module")
def run(data):
    """Runs run_cpu.py on `data`: `run(model_dir, *arguments)`."""
    return _runner(run_cpu, *FLAGS, f"--data_dir={data.data_dir}")


@pytest.fixture(scope="module")
def trained(run, tmp_path_factory):
    """A start and the model_dir after training from it on one device."""
    start, end = (tmp_path_factory.mktemp(name) for name in ("start", "end"))
    run(start, "--mode=train", "--train_steps=1")
    run(end, "--mode=train", f"--train_steps={STEPS}", f"--warm_start_from={start}")
    return start, end


@pytest.fixture
def excess(data, trained, run, variables, tmp_path):
    """Trains on several replicas; returns the difference from one device in tolerances."""

    def measure(*flags):
        start, end = trained
        is_tpu = any(flag.startswith("--tpu") for flag in flags)
        program = _runner(run_tpu, *FLAGS, f"--data_dir={data.data_dir}") if is_tpu else run
        train = ["--mode=train", f"--train_steps={STEPS}", f"--warm_start_from={start}"]
        program(tmp_path, *train, *flags)
        return numerics.excess(variables(tmp_path), variables(end), **ARITHMETIC)

    return measure


def cores(topology, *more):
    return ["--tpu=emulator", f"--tpu_topology={topology}", *more]


TABLES = "--params=tpu_embedding_rows=1,lazy_embeddings=true"


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "flags",
    [
        slow(cores("1x2")),
        slow(cores("v2-8")),
        slow(cores("v2-8", TABLES)),
        slow(["--strategy=mirrored", "--replicas=2"]),
    ],
)
def test_replicas_share_their_negatives(excess, flags):
    assert excess(*flags) < 1


@pytest.mark.slow
def test_negatives_of_a_core_alone_differ(excess, monkeypatch):
    monkeypatch.setattr(device.Device, "cross_replica_concat", lambda self, tensor: tensor)
    monkeypatch.setattr(device.Device, "replica_index", 0)
    from models.recommendation import two_tower

    real = two_tower._in_batch_logits

    def alone(*arguments):
        with device.scope({}):
            return real(*arguments)

    monkeypatch.setattr(two_tower, "_in_batch_logits", alone)
    assert excess(*cores("1x2")) > 20


@pytest.mark.slow(cost=0.1)
def test_an_evaluation_ranks_against_99_or_all_items(run, trained, data, tmp_path):
    results = {}
    for rank_all in ("false", "true"):
        run(trained[1], "--mode=eval", f"--params=rank_all_items={rank_all}")
        results[rank_all] = json.loads((trained[1] / f"result_{STEPS}.json").read_text())["eval"]
    assert results["true"]["examples"] == results["false"]["examples"] == 40
    assert results["true"]["mrr"] != results["false"]["mrr"]
    assert "log_loss" not in results["true"]


@pytest.mark.slow
def test_the_export_finds_the_nearest_items(
    run, trained, data, tmp_path, serve_in_this_process, eager
):
    with serve_in_this_process():
        run(trained[1], "--mode=export", f"--export_dir={tmp_path}/export")
    (version,) = (tmp_path / "export").iterdir()
    signatures = tf.saved_model.load(str(version)).signatures
    _, items = ratings_data.indices(data)
    top = signatures["top_k"](for_user_id=tf.constant(["u3", "nobody", "u5"]))
    found, scores = top["item_id"].numpy(), top["score"].numpy()
    assert found.shape == (3, 10)
    assert not scores[1].any()
    assert [items[item.decode()] for item in found[1]] == list(range(10))  # the most popular ones
    every = list(items)
    alone = signatures["scores"](
        user_id=tf.constant(["u5"] * len(every)), item_id=tf.constant(every)
    )["score"].numpy()
    np.testing.assert_allclose(scores[2], np.sort(alone)[::-1][:10], rtol=1e-5)
    unknown = signatures["scores"](user_id=tf.constant(["u5"]), item_id=tf.constant(["?"]))
    assert unknown["score"].numpy() == 0
