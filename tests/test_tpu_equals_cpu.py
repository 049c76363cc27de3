"""run_tpu.py on emulated cores computes what run_cpu.py computes, and does not if it is wrong."""

import functools

import pytest
import tensorflow as tf

from input_fns import input_context
from tests import numerics
from tests.marks import slow

BATCH, STEPS = 128, 20
# Cores add up their parts of a batch, then the parts. Every step adds such a rounding error to
# variables of size 1. The few layers of the small models add less than the rate of 0.05 takes away.
ARITHMETIC = {"terms": BATCH, "magnitude": 1.0}
MODELS = {
    "mlp": ["--model=mlp", "--params=hidden_units=16 16,dropout=0"],
    "cnn": ["--model=convnet", "--params=layers=conv:4:3 relu conv:4:3:valid flatten dense:8 relu"],
    "cnn with cross-replica batch norm": [
        "--model=convnet",
        "--params=layers=conv:4:3 batch_norm relu conv:4:3:valid flatten dense:8 relu",
        "--params=batch_norm_cross_replica=true",
    ],
}
RESNET_DEPTHS = (10, 18, 50)
RESNETS = {
    f"resnet{depth}": [
        "--model=resnet",
        f"--params=depth={depth},width=4,stem=cifar,batch_norm_cross_replica=true",
    ]
    for depth in RESNET_DEPTHS
}
BATCH_NORM = "cnn with cross-replica batch norm"

pytestmark = pytest.mark.usefixtures("smooth_activations")


@pytest.fixture(scope="module")
def flags_of(digits_dir):
    """Flags of a model's training at global batch 128 on the digits."""

    def build(model, *more):
        return [
            *{**MODELS, **RESNETS}[model],
            "--mode=train",
            "--params=pixel_scale=0.0625,optimizer=momentum,momentum=0.7,learning_rate=0.05,schedule=cosine",
            "--dataset=digits",
            f"--data_dir={digits_dir}",
            f"--train_batch_size={BATCH}",
            f"--train_steps={STEPS}",
            "--save_checkpoints_steps=10",
            *more,
        ]

    return build


@pytest.fixture(scope="module")
def trained_on_cpu(run_in, flags_of, variables, tmp_path_factory, smooth_activations):
    """Returns the checkpoint that a training starts from, and what run_cpu.py makes of it."""

    @functools.cache
    def start_of(model):
        folder = tmp_path_factory.mktemp("start")
        run_in(folder, *flags_of(model, "--train_steps=1"))
        return f"--warm_start_from={folder}"

    @functools.cache
    def train(model, *more):
        folder = tmp_path_factory.mktemp("cpu")
        run_in(folder, *flags_of(model, start_of(model), *more))
        return start_of(model), variables(folder)

    return train


@pytest.fixture
def excess(run_tpu_in, flags_of, trained_on_cpu, variables, tmp_path):
    """Trains alike on cores; the difference in tolerances: `excess(model, topology)`.

    `both` are flags of both trainings, `tpu` those of run_tpu.py alone.
    """

    def measure(model, topology, both=(), tpu=(), steps=STEPS):
        both = [*both, f"--train_steps={steps}"]
        start, expected = trained_on_cpu(model, *both)
        slice_flag = f"--tpu_topology={topology}"
        run_tpu_in(tmp_path / "tpu", *flags_of(model, start, *both, *tpu, slice_flag))
        got = variables(tmp_path / "tpu")
        assert got["global_step"] == expected["global_step"] == steps
        return numerics.excess(got, expected, depth=steps, **ARITHMETIC)

    return measure


@pytest.mark.parametrize(
    ("model", "topology"),
    [("mlp", "1x2"), (BATCH_NORM, "1x8"), slow("mlp", "1x8"), slow("cnn", "1x2"),
     slow("cnn", "1x8"), slow(BATCH_NORM, "1x2")],
)  # fmt: skip
def test_all_variables_are_equal(excess, model, topology):
    assert excess(model, topology) < 1


def test_all_variables_of_four_hosts_are_equal(excess):
    assert excess(BATCH_NORM, "4x2") < 1


def test_all_variables_are_equal_when_the_records_are_streamed(excess):
    assert excess("mlp", "1x2", ["--cache=none"]) < 1


@pytest.mark.slow
@pytest.mark.parametrize("depth", RESNET_DEPTHS)
def test_two_steps_of_a_deep_network_are_equal(excess, depth):
    # The errors of all layers, there and back, reach the gradients.
    assert excess(f"resnet{depth}", "1x2", steps=2) < 2 * depth


@pytest.mark.parametrize(
    "params",
    [
        "optimizer=lamb,epsilon=0.01,weight_decay=0.1",
        "clip_norm=0.1,ema_decay=0.9,nesterov=true,warmup_steps=5,label_smoothing=0.1",
        slow("optimizer=adam,epsilon=0.01"),
        slow("optimizer=adamw,epsilon=0.01,weight_decay=0.1"),
        slow("optimizer=lars,trust_coefficient=0.01,weight_decay=0.1"),
        slow("optimizer=rmsprop,epsilon=0.01"),
        slow("weight_decay=0.1,label_smoothing=0.1"),
    ],
)
def test_every_optimizer_sums_over_the_cores_before_it_acts(excess, params):
    assert excess("mlp", "1x2", [f"--params={params}"]) < 1


@pytest.mark.parametrize("model", ["cnn", slow("mlp")])
def test_accumulated_micro_batches_of_each_core_are_one_batch(excess, model):
    assert excess(model, "1x2", tpu=["--accumulate_steps=4"]) < 1


@pytest.mark.parametrize("iterations", [2, slow(1), slow(10)])
def test_the_length_of_the_loop_does_not_matter(excess, iterations):
    assert excess("mlp", "1x2", tpu=[f"--iterations_per_loop={iterations}"]) < 1


@pytest.mark.parametrize("model", ["mlp", slow("cnn"), slow(BATCH_NORM)])
def test_a_tpuestimator_without_a_tpu_is_an_estimator(excess, model):
    assert excess(model, "", tpu=["--use_tpu=false"]) < 1


# Negative controls: what would be wrong on a TPU differs by far more than the tolerance.
FAR = 20


def test_batch_norm_of_each_core_is_another_training(excess):
    own = ["--params=batch_norm_cross_replica=false"]
    assert excess(BATCH_NORM, "1x8", tpu=own) > FAR


def test_gradients_that_are_not_summed_are_another_training(excess, monkeypatch):
    # TPUEstimator looks for a sum over the cores, and takes that of batch norm for it.
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda optimizer: optimizer)
    assert excess(BATCH_NORM, "1x2") > FAR


def test_gradients_that_are_not_averaged_are_another_training(excess, monkeypatch):
    real, total = tf.compat.v1.tpu.CrossShardOptimizer, tf.compat.v1.losses.Reduction.SUM
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda opt: real(opt, total))
    assert excess("mlp", "1x2") > FAR


def test_hosts_that_read_the_same_examples_are_another_training(excess, monkeypatch):
    monkeypatch.setattr(
        input_context, "from_params", lambda params: input_context.HostShard(params["batch_size"])
    )
    assert excess("mlp", "2x2") > FAR


def test_batch_norm_updates_that_do_not_run_are_another_training(
    excess, trained_on_cpu, monkeypatch
):
    trained_on_cpu(BATCH_NORM, f"--train_steps={STEPS}")  # with the updates
    real = tf.compat.v1.get_collection

    def without_updates(key, scope=None):
        return [] if key == tf.compat.v1.GraphKeys.UPDATE_OPS else real(key, scope)

    monkeypatch.setattr(tf.compat.v1, "get_collection", without_updates)
    assert excess(BATCH_NORM, "1x2") > FAR


def test_tpuestimator_refuses_a_training_without_any_sum(excess, monkeypatch):
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda optimizer: optimizer)
    with pytest.raises(ValueError, match="CrossShardOptimizer must be used"):
        excess("mlp", "1x2")
