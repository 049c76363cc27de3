"""Embedding tables as TPU embeddings on emulated cores against run_cpu.py with the same tables."""

import functools

import pytest

from tests import numerics
from tests.marks import slow

BATCH, STEPS = 32, 20
CASE = "tests.contract.embedding_tables"
# Each step sums the gradients of a batch, of up to 5 ids each, and adds their rounding error to
# variables of magnitude 1.
ARITHMETIC = {"terms": BATCH * 5, "depth": STEPS, "magnitude": 1.0}
OPTIMIZERS = {
    "sgd": "optimizer=sgd,learning_rate=0.1",
    "adagrad": "optimizer=adagrad,learning_rate=0.1",
    "adam": "optimizer=adam,learning_rate=0.01,epsilon=0.01",
    "mixed": "optimizer=sgd,learning_rate=0.1,item_optimizer=adagrad",
}
TABLES = ("items", "tables/tags", "tables/users")


def flags(*more):
    return [
        f"--model={CASE}.model:MODEL",
        f"--dataset={CASE}.data:make_pipeline",
        "--data_dir=unused",
        "--mode=train",
        "--seed=1",
        *(f"--{mode}_batch_size={BATCH}" for mode in ("train", "eval", "predict")),
        "--params=lazy_embeddings=true,schedule=cosine",
        *more,
    ]


@pytest.fixture(scope="module")
def cpu(run_with, variables, tmp_path_factory):
    """Returns a model_dir after a step, and its variables after all: `cpu(params, steps)`."""

    @functools.cache
    def train(params, steps=STEPS):
        start, end = (tmp_path_factory.mktemp(name) for name in ("start", "end"))
        run_with(f"--model_dir={start}", *flags(f"--params={params}", "--train_steps=1"))
        warm_start = f"--warm_start_from={start}"
        run_with(
            f"--model_dir={end}", *flags(f"--params={params}", f"--train_steps={steps}", warm_start)
        )
        return start, end

    return train


@pytest.fixture
def excess(run_tpu_with, cpu, variables, tmp_path):
    """Returns the difference of run_tpu.py in tolerances: `excess("adam", topology)`."""

    def measure(optimizer, topology, params="", rows=1):
        start, end = cpu(OPTIMIZERS[optimizer] + params)
        run_tpu_with(
            f"--model_dir={tmp_path}/tpu",
            *flags(
                f"--params={OPTIMIZERS[optimizer]}{params},tpu_embedding_rows={rows}",
                f"--train_steps={STEPS}",
                f"--warm_start_from={start}",
                "--tpu=emulator",
                f"--tpu_topology={topology}",
            ),
        )
        return numerics.excess(variables(tmp_path / "tpu"), variables(end), **ARITHMETIC)

    return measure


@pytest.mark.parametrize(
    ("optimizer", "topology"),
    [
        ("adagrad", "2x1"),
        *(slow(name, topology) for name in OPTIMIZERS for topology in ("v2-8", "4x8")),
    ],
)
def test_tables_slots_and_dense_variables_are_equal(excess, optimizer, topology):
    assert excess(optimizer, topology) < 1
