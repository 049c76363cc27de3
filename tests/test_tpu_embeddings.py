"""Embedding tables as TPU embeddings on emulated cores against run_cpu.py with the same tables."""

import functools
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.train import tpu_embeddings
from input_fns.core import input_context
from tests import numerics
from tests.marks import slow

BATCH, STEPS = 64, 20
CASE = "tests.contract.embedding_tables"
# Each step sums the gradients of a batch, of up to 5 ids each, and adds their rounding error to
# variables of magnitude 1.
ARITHMETIC = {"terms": BATCH * 5, "depth": STEPS, "magnitude": 1.0}
OPTIMIZERS = {
    "sgd": "optimizer=sgd,learning_rate=0.1",
    "adagrad": "optimizer=adagrad,learning_rate=0.1",
    "adam": "optimizer=adam,learning_rate=0.01,epsilon=0.01",
    "mixed": "optimizer=sgd,learning_rate=0.1,item_optimizer=adagrad,"
    "learning_rate_factors=[tables/.*:0.5]",
}

ONE_HOST = "--tpu_topology=1x2"  # of several hosts, one at a time evaluates


def flags(*more):
    return [
        f"--model={CASE}.model:MODEL",
        f"--dataset={CASE}.data:make_pipeline",
        "--data_dir=unused",
        "--seed=1",
        *(f"--{mode}_batch_size={BATCH}" for mode in ("train", "eval", "predict")),
        f"--params=lazy_embeddings=true,schedule=cosine,decay_steps={STEPS}",
        *more,
    ]


@pytest.fixture(scope="module")
def cpu(run_with, tmp_path_factory):
    """Trains with run_cpu.py: `cpu(model_dir, *flags)`."""
    return lambda model_dir, *more: run_with(*flags(f"--model_dir={model_dir}", *more))


@pytest.fixture(scope="module")
def tpu(run_tpu_with):
    """Trains with run_tpu.py: `tpu(model_dir, *flags)`. All tables are TPU embeddings."""
    given = ["--params=tpu_embedding_rows=1", "--tpu=emulator", "--tpu_topology=2x1"]
    return lambda model_dir, *more: run_tpu_with(*flags(f"--model_dir={model_dir}", *given, *more))


@pytest.fixture(scope="module")
def trained(cpu, tmp_path_factory):
    """Returns the model_dir of a start and that after training: `trained("adam")`."""

    @functools.cache
    def train(optimizer):
        start, end = (tmp_path_factory.mktemp(name) for name in ("start", "end"))
        params = f"--params={OPTIMIZERS[optimizer]}"
        cpu(start, "--mode=train", params, "--train_steps=1")
        cpu(end, "--mode=train", params, f"--train_steps={STEPS}", f"--warm_start_from={start}")
        return start, end

    return train


@pytest.fixture
def excess(tpu, trained, variables, tmp_path):
    """Trains with run_tpu.py; returns the difference in tolerances: `excess("adam", *flags)`."""

    def measure(optimizer, *more):
        start, end = trained(optimizer)
        train = ["--mode=train", f"--train_steps={STEPS}", f"--warm_start_from={start}"]
        tpu(tmp_path, f"--params={OPTIMIZERS[optimizer]}", *train, *more)
        return numerics.excess(variables(tmp_path), variables(end), **ARITHMETIC)

    return measure


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("optimizer", "topology"),
    [
        ("adagrad", "2x1"),
        *(slow(name, topology) for name in OPTIMIZERS for topology in ("v2-8", "4x8")),
    ],
)
def test_tables_slots_and_dense_variables_are_equal(excess, optimizer, topology):
    assert excess(optimizer, f"--tpu_topology={topology}") < 1


@pytest.mark.slow
@pytest.mark.parametrize("combiner", ["sum", "sqrtn"])
def test_combiners(excess, trained, monkeypatch, combiner):
    monkeypatch.setitem(OPTIMIZERS, combiner, f"{OPTIMIZERS['adagrad']},combiner={combiner}")
    assert excess(combiner) < 1


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 100])
def test_small_tables_are_variables_of_the_core(excess, rows):
    assert excess("adagrad", f"--params=tpu_embedding_rows={rows}", "--tpu_topology=1x2") < 1


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("optimizer", ["adagrad", slow("sgd"), slow("adam"), slow("mixed")])
@pytest.mark.parametrize("first", ["cpu", slow("tpu")])
def test_either_program_resumes_from_checkpoints_of_the_other(
    cpu, tpu, trained, variables, tmp_path, first, optimizer
):
    start, end = trained(optimizer)
    train = ["--mode=train", f"--params={OPTIMIZERS[optimizer]}", f"--warm_start_from={start}"]
    programs = [cpu, tpu] if first == "cpu" else [tpu, cpu]
    programs[0](tmp_path, *train, f"--train_steps={STEPS // 2}")
    programs[1](tmp_path, *train, f"--train_steps={STEPS}")
    assert numerics.excess(variables(tmp_path), variables(end), **ARITHMETIC) < 1


@pytest.mark.slow(cost=0.1)
def test_the_host_evaluates_and_predicts(cpu, tpu, trained, tmp_path):
    folders = tmp_path / "cpu", tmp_path / "tpu"
    for folder, run in zip(folders, (cpu, tpu)):
        shutil.copytree(trained("adagrad")[1], folder)
        for path in folder.glob("result_*"):
            path.unlink()
        params = f"--params={OPTIMIZERS['adagrad']}"
        params = [params, *([ONE_HOST] if run is tpu else [])]
        run(folder, "--mode=eval", *params)
        run(folder, "--mode=predict", *params, f"--predict_output={folder}/predictions.npz")
    results = [
        json.loads((folder / f"result_{STEPS}.json").read_text())["eval"] for folder in folders
    ]
    assert results[0]["examples"] == results[1]["examples"] == 41
    numerics.assert_close(results[1]["average_loss"], results[0]["average_loss"], **ARITHMETIC)
    found = [np.load(folder / "predictions.npz")["rating"] for folder in folders]
    numerics.assert_close(found[1], found[0], **ARITHMETIC)


@pytest.mark.slow
def test_the_host_exports_gathers(tpu, trained, tmp_path, eager):
    folder = tmp_path / "model"
    shutil.copytree(trained("adagrad")[1], folder)
    params = f"--params={OPTIMIZERS['adagrad']}"
    tpu(folder, ONE_HOST, "--mode=export", params, f"--export_dir={folder}/export")
    (version,) = (folder / "export").iterdir()
    signatures = tf.saved_model.load(str(version)).signatures
    inputs = {"user": [3, -1], "tags": [[1] * 5, [-1] * 5], "items": [[1, 2, 2], [299, -1, 0]]}
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    assert np.isfinite(signatures["serving_default"](**inputs)["rating"].numpy()).all()
    ops = {op.type for op in signatures["serving_default"].graph.get_operations()}
    assert not [op for op in ops if "TPU" in op]


@pytest.mark.slow
def test_training_evaluates_checkpoints_on_the_host(tpu, tmp_path, capsys):
    tpu(tmp_path, ONE_HOST, "--train_steps=4", f"--params={OPTIMIZERS['sgd']}")
    assert json.loads((tmp_path / "result_4.json").read_text())["eval"]["examples"] == 41
    # 23 users, 11 tags and 300 items of width 4, 16 weights and a bias.
    assert "training 1,353 parameters" in capsys.readouterr().out


# Negative controls: faults differ by far more than the tolerance. The slow ones are like the first,
# or like those of tests/tpu/emulator/test_embeddings.py.
FAR = 20


@pytest.mark.slow(cost=0.1)
def test_another_combiner_differs(excess):
    assert excess("adagrad", "--params=combiner=sum") > FAR


@pytest.mark.slow
def test_pipelining_differs(excess):
    # A lookup misses the update of the step before.
    assert excess("adagrad", "--params=tpu_embedding_pipelining=true") > FAR


@pytest.mark.slow
def test_a_constant_learning_rate_differs(excess, monkeypatch):
    monkeypatch.setattr(tpu_embeddings, "_learning_rate_fn", lambda name: lambda step: 0.1)
    assert excess("adagrad") > FAR


@pytest.mark.slow
def test_duplicates_that_count_once_differ(excess, monkeypatch):
    real = tpu_embeddings._to_sparse

    def without_duplicates(ids):
        if ids.shape.rank == 1:
            return real(ids)
        before = [ids[:, :i] for i in range(ids.shape.as_list()[1])]
        seen = [tf.reduce_any(tf.equal(x, ids[:, i : i + 1]), axis=1) for i, x in enumerate(before)]
        return real(tf.where(tf.stack(seen, axis=1), -1, ids))

    monkeypatch.setattr(tpu_embeddings, "_to_sparse", without_duplicates)
    assert excess("adagrad") > FAR


@pytest.mark.slow
def test_hosts_that_read_the_same_examples_differ(excess, monkeypatch):
    monkeypatch.setattr(
        input_context, "from_params", lambda params: input_context.HostShard(params["batch_size"])
    )
    assert excess("adagrad") > FAR


@pytest.mark.slow(cost=0.1)
def test_a_checkpoint_without_the_slots_of_a_table_is_an_error(tpu, trained, tmp_path):
    shutil.copytree(trained("adagrad")[1], tmp_path / "model")
    params = f"--params={OPTIMIZERS['adagrad']},item_optimizer=adam"
    more = ["--mode=train", params, f"--train_steps={STEPS + 1}"]
    with pytest.raises(UsageError, match=r"items/Adam/m \[300, 4\] is missing from the checkpoint"):
        tpu(tmp_path / "model", *more)


def test_an_unknown_optimizer_of_a_table_is_an_error(cpu, tmp_path):
    with pytest.raises(UsageError, match="the embedding table 'items' has optimizer lars"):
        cpu(tmp_path, "--mode=train", "--train_steps=1", "--params=item_optimizer=lars")
