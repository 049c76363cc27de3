"""The gradient of an embedding of 200,000 rows is sparse on a CPU, dense on a TPU.

Its metric is better low, which its name does not tell: the model declares it.
"""

import json

import pytest
import tensorflow as tf

from engine.train import optimizers
from tests import numerics
from tests.contract.embedding import data
from tests.marks import slow

CASE, STEPS = "embedding", 3
ROWS = [data.NUM_ITEMS, 8]
# Rows that a batch of 24 uses are summed up; Adam's slots decay in all rows. Variables of size 1.
ARITHMETIC = {"terms": 24 * 7, "depth": STEPS, "magnitude": 1.0}


@pytest.fixture
def gradients(monkeypatch):
    """Returns the dict of the gradients that the next training applies, `{variable: gradient}`."""
    found, apply_gradients = {}, optimizers.apply_gradients

    def spy(optimizer, gradients_and_variables, params):
        found.update({v.op.name: gradient for gradient, v in gradients_and_variables})
        return apply_gradients(optimizer, gradients_and_variables, params)

    monkeypatch.setattr(optimizers, "apply_gradients", spy)
    return found


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "params",
    ["optimizer=momentum", slow("optimizer=adam"), slow("optimizer=momentum,clip_norm=1")],
)
def test_gradients_stay_sparse_on_a_cpu(run_case, gradients, tmp_path, params):
    run_case(CASE, tmp_path, "--mode=train", "--train_steps=1", f"--params={params}")
    gradient = gradients["items"]
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.dense_shape.op.type in ("Const", "Cast", "VariableShape")
    dense = [
        op.name
        for op in gradient.values.graph.get_operations()
        if "gradients" in op.name and any(output.shape == ROWS for output in op.outputs)
    ]
    assert dense == []


@pytest.mark.slow
@pytest.mark.parametrize("params", ["optimizer=adam,epsilon=0.01", "optimizer=sgd"])
def test_sparse_updates_of_a_cpu_equal_dense_updates_of_a_tpu(
    run_case, run_case_on_tpu, trained, gradients, variables, tmp_path, params
):
    train = ["--mode=train", f"--train_steps={STEPS}", "--train_batch_size=24"]
    train.append(f"--params=learning_rate=0.1,{params}")
    train.append(f"--warm_start_from={trained(CASE)}")
    run_case(CASE, tmp_path / "cpu", *train)
    assert isinstance(gradients["items"], tf.IndexedSlices)
    run_case_on_tpu(CASE, tmp_path / "tpu", *train)
    assert isinstance(gradients["items"], tf.Tensor)
    cpu, tpu = variables(tmp_path / "cpu"), variables(tmp_path / "tpu")
    assert numerics.excess(tpu, cpu, **ARITHMETIC) < 1
    start = variables(trained(CASE))
    assert numerics.excess({**cpu, "items": start["items"]}, cpu, **ARITHMETIC) > 10


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("wrapper", ["run_case", slow("run_case_on_tpu")])
def test_the_best_checkpoint_has_the_lowest_metric(request, tmp_path, wrapper):
    run = request.getfixturevalue(wrapper)
    # The second step is too large.
    steps = ["--train_steps=2", "--save_checkpoints_steps=1", "--params=learning_rate=5"]
    run(CASE, tmp_path, "--best_metric=novelty", *steps)
    found = [json.loads((tmp_path / f"result_{step}.json").read_text()) for step in (1, 2)]
    values = [result["eval"]["novelty"] for result in found]
    best = json.loads((tmp_path / "best" / "best.json").read_text())
    assert best["direction"] == "min"
    assert (best["value"], best["step"]) == (min(values), 1 + values.index(min(values)))
