"""run_tpu.py on emulated cores computes what run_cpu.py computes, and does not if it is wrong."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from input_fns import deployment

STEPS = 20
TOLERANCE = 2e-6  # float32, of variables of size 1
# Few ReLUs and no pooling: where one stands on its edge, rounding decides, and training goes on
# with a difference of 1e-3. With a ReLU after the convolution that is one training in six.
MODELS = {
    "mlp": ["--model=mlp", "--params=hidden_units=16 16,dropout=0"],
    "cnn": ["--model=convnet", "--params=layers=conv:4:3 conv:4:3:valid flatten dense:8 relu"],
    "cnn with cross-replica batch norm": [
        "--model=convnet",
        "--params=layers=conv:4:3 batch_norm conv:4:3:valid flatten dense:8 relu",
        "--params=batch_norm_cross_replica=true",
    ],
}
# After one step, before rounding has taken a ReLU to its other side.
DEEP_MODELS = {
    f"resnet{depth}": [
        "--model=resnet",
        f"--params=depth={depth},width=8,batch_norm_cross_replica=true",
        "--image_size=32",
    ]
    for depth in (18, 50)
}
BATCH_NORM = "cnn with cross-replica batch norm"


@pytest.fixture(scope="module")
def flags_of(digits_dir):
    """Flags of a model's training at global batch 128 on the digits."""

    def build(model, *more):
        return [
            *{**MODELS, **DEEP_MODELS}[model],
            "--mode=train",
            "--params=pixel_scale=0.0625,optimizer=momentum,momentum=0.7,learning_rate=0.05,schedule=cosine",
            "--dataset=digits",
            f"--data_dir={digits_dir}",
            "--train_batch_size=128",
            f"--train_steps={STEPS}",
            "--save_checkpoints_steps=10",
            *more,
        ]

    return build


@pytest.fixture(scope="module")
def trained_on_cpu(run_in, flags_of, variables, tmp_path_factory):
    """Returns the checkpoint that a training starts from, and what run_cpu.py makes of it."""

    @functools.cache
    def train(model, *more):
        folder = tmp_path_factory.mktemp("cpu")
        run_in(folder / "start", *flags_of(model, "--train_steps=1"))
        start = f"--warm_start_from={folder}/start"
        run_in(folder / "end", *flags_of(model, start, *more))
        return start, variables(folder / "end")

    return train


@pytest.fixture
def difference(run_tpu_in, flags_of, trained_on_cpu, variables, tmp_path):
    """The largest difference of a variable after the same training: `difference(model, topology)`.

    `both` are flags of both trainings, `tpu` those of run_tpu.py alone.
    """

    def measure(model, topology, both=(), tpu=()):
        start, expected = trained_on_cpu(model, *both)
        slice_flag = f"--tpu_topology={topology}"
        run_tpu_in(tmp_path / "tpu", *flags_of(model, start, *both, *tpu, slice_flag))
        got = variables(tmp_path / "tpu")
        assert got.keys() == expected.keys()
        assert got["global_step"] == expected["global_step"]
        return max(np.abs(got[name] - expected[name]).max() for name in expected)

    return measure


@pytest.mark.parametrize("topology", ["1x2", "1x8"])
@pytest.mark.parametrize("model", MODELS)
def test_all_variables_are_equal(difference, model, topology):
    assert difference(model, topology) < TOLERANCE


def test_all_variables_of_four_hosts_are_equal(difference):
    assert difference(BATCH_NORM, "4x2") < TOLERANCE


def test_all_variables_are_equal_when_the_records_are_streamed(difference):
    assert difference("mlp", "1x2", ["--cache=none"]) < TOLERANCE


@pytest.mark.parametrize("model", ["resnet18", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_a_step_of_a_deep_network_is_equal(difference, model):
    assert difference(model, "1x2", ["--train_steps=1"]) < 10 * TOLERANCE


@pytest.mark.parametrize(
    "params",
    [
        "optimizer=adam,epsilon=0.01",
        "optimizer=adamw,epsilon=0.01,weight_decay=0.1",
        "optimizer=lars,trust_coefficient=0.01,weight_decay=0.1",
        "optimizer=lamb,epsilon=0.01,weight_decay=0.1",
        "optimizer=rmsprop,epsilon=0.01",
        "weight_decay=0.1,label_smoothing=0.1",
        "clip_norm=0.1",
        "ema_decay=0.9",
        "nesterov=true,warmup_steps=5",
    ],
)
def test_every_optimizer_sums_over_the_cores_before_it_acts(difference, params):
    assert difference("mlp", "1x2", [f"--params={params}"]) < TOLERANCE


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_accumulated_parts_of_each_core_are_one_batch(difference, model):
    assert difference(model, "1x2", tpu=["--accumulate_steps=4"]) < TOLERANCE


@pytest.mark.parametrize("iterations", [1, 2, 10])
def test_the_length_of_the_loop_does_not_matter(difference, iterations):
    assert difference("mlp", "1x2", tpu=[f"--iterations_per_loop={iterations}"]) < TOLERANCE


@pytest.mark.parametrize("model", MODELS)
def test_a_tpuestimator_without_a_tpu_is_an_estimator(difference, model):
    assert difference(model, "", tpu=["--use_tpu=false"]) < TOLERANCE


# What would be wrong on a TPU is wrong here: the tests above can fail.


def test_batch_norm_of_each_core_is_another_training(difference):
    own = ["--params=batch_norm_cross_replica=false"]
    assert difference(BATCH_NORM, "1x2", tpu=own) > 1e-3


def test_gradients_that_are_not_summed_are_another_training(difference, monkeypatch):
    # TPUEstimator looks for a sum over the cores, and takes that of batch norm for it.
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda optimizer: optimizer)
    assert difference(BATCH_NORM, "1x2") > 1e-3


def test_gradients_that_are_not_averaged_are_another_training(difference, monkeypatch):
    real, total = tf.compat.v1.tpu.CrossShardOptimizer, tf.compat.v1.losses.Reduction.SUM
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda opt: real(opt, total))
    assert difference("mlp", "1x2") > 1e-3


def test_hosts_that_read_the_same_examples_are_another_training(difference, monkeypatch):
    monkeypatch.setattr(
        deployment, "of_params", lambda params: deployment.Deployment(params["batch_size"])
    )
    assert difference("mlp", "2x2") > 1e-3


def test_updates_of_batch_norm_that_nobody_runs_are_another_training(
    difference, trained_on_cpu, monkeypatch
):
    trained_on_cpu(BATCH_NORM)  # as it should be
    real = tf.compat.v1.get_collection

    def without_updates(key, scope=None):
        return [] if key == tf.compat.v1.GraphKeys.UPDATE_OPS else real(key, scope)

    monkeypatch.setattr(tf.compat.v1, "get_collection", without_updates)
    assert difference(BATCH_NORM, "1x2") > 1e-3


def test_tpuestimator_refuses_a_training_without_any_sum(difference, monkeypatch):
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda optimizer: optimizer)
    with pytest.raises(ValueError, match="CrossShardOptimizer must be used"):
        difference("mlp", "1x2")
