"""Transfer learning: warm start, frozen layers, learning rates per layer."""

import functools

import numpy as np
import pytest

from tests.marks import slow

NETWORK = ["--model=resnet", "--params=depth=10,width=4,stem=cifar,pixel_scale=0.01"]
FROZEN = "--params=trainable=logits/.*|stage_4/.*,optimizer=momentum,learning_rate=0.05"


@pytest.fixture(scope="module")
def pretrained_dir(run_in, tmp_path_factory):
    """The model_dir of a network trained for a few steps."""
    path = str(tmp_path_factory.mktemp("pretrained"))
    run_in(path, *NETWORK, "--mode=train", "--train_steps=5")
    return path


@pytest.fixture(scope="module", params=["run_cpu.py", slow("run_tpu.py")])
def train(request, run_in, run_tpu_in, pretrained_dir, variables, tmp_path_factory):
    """Fine-tunes the network and returns its variables: `train(*flags)`."""
    run = run_in if request.param == "run_cpu.py" else run_tpu_in

    @functools.cache
    def run_with(*arguments):
        warm = [f"--warm_start_from={pretrained_dir}", "--warm_start_include=(?!logits).*"]
        folder = tmp_path_factory.mktemp("transfer")
        run(folder, *NETWORK, "--mode=train", "--train_steps=4", *warm, *arguments)
        return variables(folder)

    return run_with


@pytest.mark.slow(cost=0.1)
def test_frozen_variables_do_not_change(train, pretrained_dir, variables):
    before, after = variables(pretrained_dir), train(FROZEN)
    frozen = [name for name in before if not name.startswith(("logits", "stage_4", "global_step"))]
    frozen = [name for name in frozen if name in after]
    assert any(name.endswith("moving_mean") for name in frozen)
    for name in frozen:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


@pytest.mark.slow(cost=0.1)
def test_trained_variables_and_their_moving_statistics_change(train, pretrained_dir, variables):
    before, after = variables(pretrained_dir), train(FROZEN)
    for name in ("stage_4/block_1/conv_1/kernel", "stage_4/block_1/batch_norm_1/moving_mean"):
        assert not np.array_equal(after[name], before[name]), name


@pytest.mark.slow(cost=0.1)
def test_only_trained_variables_have_optimizer_slots(train):
    slots = {name.rpartition("/")[0] for name in train(FROZEN) if name.endswith("/Momentum")}
    assert slots
    assert all(name.startswith(("logits/", "stage_4/")) for name in slots)


@pytest.mark.slow
def test_learning_rate_factors(train, pretrained_dir, variables):
    before = variables(pretrained_dir)["stage_1/block_1/conv_1/kernel"]
    plain = "--params=optimizer=momentum,learning_rate=0.01"

    def moved(*flags):
        return np.abs(train(plain, *flags)["stage_1/block_1/conv_1/kernel"] - before).max()

    slow = moved("--params=learning_rate_factors=[stage_.*:0.01,stem/.*:0.01]")
    assert 0 < slow < 0.1 * moved()
