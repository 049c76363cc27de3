"""Training with run_tpu.py on emulated cores matches run_cpu.py, and faults make it differ."""

import functools

import pytest
import tensorflow as tf

from input_fns.core import input_context
from tests import numerics
from tests.marks import slow

BATCH, STEPS = 128, 20
# Each step sums the gradients of the batch and adds their rounding error to variables of magnitude
# 1. The errors of the few layers of the small models are damped by the learning rate of 0.05.
ARITHMETIC = {"terms": BATCH, "magnitude": 1.0}
MODELS = {
    "mlp": ["--model=mlp", "--params=hidden_units=[16,16],dropout=0"],
    "cnn": [
        "--model=convnet",
        "--params=layers=[conv:4:3,relu,conv:4:3:valid,flatten,dense:8,relu]",
    ],
    "cnn with cross-replica batch norm": [
        "--model=convnet",
        "--params=layers=[conv:4:3,batch_norm,relu,conv:4:3:valid,flatten,dense:8,relu]",
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
EFFICIENTNET = [
    "--model=efficientnet",
    "--params=width=0.25,depth=0.1,pixel_mean=[0],dropout=0,stochastic_depth=0",
    "--params=batch_norm_cross_replica=true",
]
BATCH_NORM = "cnn with cross-replica batch norm"

pytestmark = pytest.mark.usefixtures("smooth_activations")


@pytest.fixture(scope="module")
def build_flags(digits_dir):
    """Returns the flags of a training on the digits with a global batch of 128."""

    def build(model, *more):
        return [
            *{**MODELS, **RESNETS, "efficientnet": EFFICIENTNET}[model],
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
def trained_on_cpu(run_in, build_flags, variables, tmp_path_factory, smooth_activations):
    """Returns the flag of a warm start, and the variables after training with run_cpu.py."""

    @functools.cache
    def start_of(model):
        folder = tmp_path_factory.mktemp("start")
        run_in(folder, *build_flags(model, "--train_steps=1"))
        return f"--warm_start_from={folder}"

    @functools.cache
    def train(model, *more):
        folder = tmp_path_factory.mktemp("cpu")
        run_in(folder, *build_flags(model, start_of(model), *more))
        return start_of(model), variables(folder)

    return train


@pytest.fixture
def excess(run_tpu_in, build_flags, trained_on_cpu, variables, tmp_path):
    """Trains with run_tpu.py; returns the difference in tolerances: `excess(model, topology)`.

    `both` are flags of both trainings, `tpu` flags of run_tpu.py only.
    """

    def measure(model, topology, both=(), tpu=(), steps=STEPS):
        both = [*both, f"--train_steps={steps}"]
        start, expected = trained_on_cpu(model, *both)
        slice_flag = f"--tpu_topology={topology}"
        run_tpu_in(tmp_path / "tpu", *build_flags(model, start, *both, *tpu, slice_flag))
        got = variables(tmp_path / "tpu")
        assert got["global_step"] == expected["global_step"] == steps
        return numerics.excess(got, expected, depth=steps, **ARITHMETIC)

    return measure


@pytest.mark.parametrize(
    ("model", "topology"),
    [("mlp", "1x2"), slow(BATCH_NORM, "1x8"), slow("mlp", "1x8"), slow("cnn", "1x2"),
     slow("cnn", "1x8"), slow(BATCH_NORM, "1x2")],
)  # fmt: skip
def test_all_variables_are_equal(excess, model, topology):
    assert excess(model, topology) < 1


@pytest.mark.parametrize("topology", [slow("2x1"), slow("2x2"), slow("4x2")])
def test_all_variables_are_equal_on_several_hosts(excess, topology):
    assert excess(BATCH_NORM, topology) < 1


@pytest.mark.slow  # like that of a model with a cache; test_records.py has the order of examples
def test_all_variables_are_equal_without_a_cache(excess):
    assert excess("mlp", "1x2", ["--cache=none"]) < 1


@pytest.mark.slow
@pytest.mark.parametrize("depth", RESNET_DEPTHS)
def test_two_steps_of_a_deep_network(excess, depth):
    # The errors of all layers, forward and backward, reach the gradients.
    assert excess(f"resnet{depth}", "1x2", steps=2) < 2 * depth


@pytest.mark.slow
def test_three_steps_of_an_efficientnet(excess):
    # Stem and head; seven blocks of at most three convolutions and two layers of gates.
    assert excess("efficientnet", "1x8", steps=3) < 2 * (2 + 7 * 5)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "params",
    [
        slow("optimizer=bert_adamw,epsilon=0.01,weight_decay=0.1"),
        slow("optimizer=lamb,epsilon=0.01,weight_decay=0.1"),
        "clip_norm=0.1,ema_decay=0.9,nesterov=true,warmup_steps=5,label_smoothing=0.1",
        slow("optimizer=adam,epsilon=0.01"),
        slow("optimizer=adamw,epsilon=0.01,weight_decay=0.1"),
        slow("optimizer=lars,trust_coefficient=0.01,weight_decay=0.1"),
        slow("optimizer=rmsprop,epsilon=0.01"),
        slow("weight_decay=0.1,label_smoothing=0.1"),
    ],
)
def test_optimizers_use_cross_replica_sums(excess, params):
    assert excess("mlp", "1x2", [f"--params={params}"]) < 1


@pytest.mark.parametrize("model", ["mlp", slow("cnn")])
def test_gradient_accumulation_equals_one_batch(excess, model):
    assert excess(model, "1x2", tpu=["--accumulate_steps=4"]) < 1


@pytest.mark.parametrize("iterations", [2, slow(1), slow(10)])
def test_iterations_per_loop_do_not_matter(excess, iterations):
    assert excess("mlp", "1x2", tpu=[f"--iterations_per_loop={iterations}"]) < 1


@pytest.mark.parametrize("model", ["mlp", slow("cnn"), slow(BATCH_NORM)])
def test_tpuestimator_without_a_tpu_equals_estimator(excess, model):
    assert excess(model, "", tpu=["--use_tpu=false"]) < 1


# Negative controls: faults differ by far more than the tolerance.
FAR = 20


@pytest.mark.slow
def test_batch_norm_per_core_differs(excess):
    own = ["--params=batch_norm_cross_replica=false"]
    assert excess(BATCH_NORM, "1x4", tpu=own) > FAR


@pytest.mark.slow
def test_gradients_without_a_cross_replica_sum_differ(excess, monkeypatch):
    # TPUEstimator requires a cross-replica sum, and accepts that of batch norm.
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda optimizer: optimizer)
    assert excess(BATCH_NORM, "1x2") > FAR


def test_gradients_that_are_not_averaged_differ(excess, monkeypatch):
    real, total = tf.compat.v1.tpu.CrossShardOptimizer, tf.compat.v1.losses.Reduction.SUM
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda opt: real(opt, total))
    assert excess("mlp", "1x2") > FAR


@pytest.mark.slow
def test_hosts_that_read_the_same_examples_differ(excess, monkeypatch):
    monkeypatch.setattr(
        input_context, "from_params", lambda params: input_context.HostShard(params["batch_size"])
    )
    assert excess("mlp", "2x1") > FAR


@pytest.mark.slow
def test_missing_batch_norm_updates_differ(excess, trained_on_cpu, monkeypatch):
    trained_on_cpu(BATCH_NORM, f"--train_steps={STEPS}")  # with the updates
    real = tf.compat.v1.get_collection

    def without_updates(key, scope=None):
        return [] if key == tf.compat.v1.GraphKeys.UPDATE_OPS else real(key, scope)

    monkeypatch.setattr(tf.compat.v1, "get_collection", without_updates)
    assert excess(BATCH_NORM, "1x2") > FAR


def test_tpuestimator_rejects_a_graph_without_a_cross_replica_sum(excess, monkeypatch):
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda optimizer: optimizer)
    with pytest.raises(ValueError, match="CrossShardOptimizer must be used"):
        excess("mlp", "1x2")
