"""Networks of Keras and SavedModels through both wrappers: training, export, back to Keras."""

import glob
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from common.errors import UsageError
from engine.checkpoints import writer as checkpoint_writer
from engine.cli import hparams
from engine.train import forward
from input_fns.convert import source, writer
from models import registry
from models.layers import traced
from models.vision import keras_network
from tests import numerics
from tests.conftest import EMULATED, _runner
from tests.marks import runs_bfloat16
from tools import keras_network as tool

NAME = "keras:tests.test_keras_runs:without_batch_norm"
STEPS = ["--mode=train", "--train_steps=3", "--train_batch_size=14", "--save_checkpoints_steps=3"]


def without_batch_norm(input_shape, filters=5):
    """A network whose gradients are sums over the examples: cores and micro-batches train alike."""
    layers = tf.keras.layers
    images = tf.keras.Input(input_shape)
    x = layers.Rescaling(1 / 255)(images)
    x = layers.Conv2D(filters, 3, activation="swish", kernel_regularizer="l2")(x)
    return tf.keras.Model(images, x)


def with_batch_norm(input_shape):
    layers = tf.keras.layers
    images = tf.keras.Input(input_shape)
    x = layers.Conv2D(5, 3)(layers.Rescaling(1 / 255)(images))
    return tf.keras.Model(images, layers.BatchNormalization(momentum=0.5)(x))


@pytest.fixture(scope="module")
def flags(data_dir):
    return [f"--model={NAME}", "--dataset=stripes", f"--data_dir={data_dir}", "--seed=1",
            "--params=optimizer=sgd,learning_rate=0.1", "--noexport_check"]  # fmt: skip


@pytest.fixture(scope="module")
def cpu(flags):
    return _runner(run_cpu, *flags)


@pytest.fixture(scope="module")
def tpu(flags):
    return _runner(run_tpu, *flags, *EMULATED)


@pytest.fixture(scope="module")
def trained(cpu, tmp_path_factory):
    """The model_dir of a training of `without_batch_norm` on a CPU."""
    model_dir = str(tmp_path_factory.mktemp("trained"))
    cpu(model_dir, *STEPS)
    return model_dir


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("other", ["emulated TPU", "micro-batches"])
def test_three_steps_are_those_of_run_cpu(other, trained, cpu, tpu, tmp_path, variables):
    if other == "emulated TPU":
        tpu(tmp_path, *STEPS)
    else:
        cpu(tmp_path, *STEPS, "--accumulate_steps=7")
    expected = variables(trained)
    assert {"conv2d/kernel", "conv2d/bias", "logits/kernel"} <= set(expected)
    # Gradients are means over 14 examples of 15 pixels.
    numerics.assert_all_close(variables(tmp_path), expected, terms=14 * 15, depth=3 * 3)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A SavedModel of `without_batch_norm` in the reusable format."""
    folder = str(tmp_path_factory.mktemp("saved"))
    with traced.tensorflow_2():
        tf.keras.backend.reset_uids()
        without_batch_norm((7, 5, 1)).save(folder, include_optimizer=False)
    return folder


@pytest.mark.slow
def test_a_saved_model_is_fine_tuned_alike_on_eight_cores(saved, flags, tmp_path, variables):
    given = ["--model=saved_model", f"--params=path={saved}", *flags[1:]]
    steps = [*STEPS, "--train_batch_size=16"]
    _runner(run_cpu, *given)(tmp_path / "cpu", *steps)
    cores = "--tpu=emulator", "--tpu_topology=v2-8"
    _runner(run_tpu, *given, *cores)(tmp_path / "tpu", *steps)
    expected, arithmetic = variables(tmp_path / "cpu"), {"terms": 16 * 15, "depth": 3 * 3}
    assert {"conv2d/kernel", "conv2d/bias", "logits/kernel"} <= set(expected)
    numerics.assert_all_close(variables(tmp_path / "tpu"), expected, **arithmetic)
    with traced.tensorflow_2():  # negative control: without the training
        before = tf.saved_model.load(saved).trainable_variables[0].numpy()
    numerics.assert_far(before, expected["conv2d/kernel"], **arithmetic)


@pytest.fixture(scope="module")
def colors_dir(tmp_path_factory):
    """A prepared data set of 16 random images of 32 x 32, in five classes."""
    folder, random = str(tmp_path_factory.mktemp("colors")), np.random.default_rng(0)
    images = random.integers(0, 256, [16, 32, 32, 3], dtype=np.uint8)
    split = source.RawArrays(images, np.arange(16) % 5)
    writer.write(source.RawDataset("colors", tuple("abcde"), {"train": split}), folder)
    return folder


@pytest.fixture
def train_both(colors_dir, tmp_path):
    """Returns a function that trains an application from the same values by both wrappers."""

    def train(name, size, topology, *more):
        given = [f"--model=keras:tf.keras.applications.{name}", f"--image_size={size}"]
        given += [f"--data_dir={colors_dir}", "--dataset=colors", "--seed=1", "--mode=train"]
        given += ["--noexport_check", "--params=optimizer=momentum,learning_rate=0.01", *more]
        before = ["--params=learning_rate=1e-30,trainable=.*", "--train_steps=1"]
        _runner(run_cpu, *given)(tmp_path / "start", *before)
        given += [f"--warm_start_from={tmp_path}/start"]
        _runner(run_cpu, *given)(tmp_path / "cpu")
        cores = "--tpu=emulator", f"--tpu_topology={topology}"
        _runner(run_tpu, *given, *cores)(tmp_path / "tpu")

    return train


@pytest.fixture
def without_dropout(monkeypatch):
    """Turns off dropout, whose random numbers are others on each core."""
    no_dropout = lambda self, inputs, training=None: inputs  # noqa: E731
    monkeypatch.setattr(tf.keras.layers.Dropout, "call", no_dropout)


@pytest.mark.slow
@pytest.mark.usefixtures("without_dropout")
def test_an_application_with_frozen_batch_norm_on_eight_cores(train_both, tmp_path, variables):
    """Its statistics are those of no batch, so three steps on eight cores are those of one."""
    frozen = "--params=trainable=.*(kernel|bias)"
    train_both("EfficientNetB0", 32, "v2-8", frozen, "--train_batch_size=16", "--train_steps=3")
    cpu, tpu = (variables(tmp_path / name) for name in ("cpu", "tpu"))
    assert cpu.keys() == tpu.keys()
    gradients = [name for name in cpu if name.endswith("/Momentum")]  # their weighted sums
    assert {f"{name}/kernel/Momentum" for name in ("stem_conv", "logits")} <= set(gradients)
    for name in gradients:
        # About 200 layers of sums over at most 1280 channels; three steps.
        arithmetic = {"terms": 1280, "depth": 200 * 3}
        numerics.assert_close(tpu[name], cpu[name], name=name, **arithmetic)
        numerics.assert_far(8 * cpu[name], cpu[name], **arithmetic)  # without the mean over cores


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("EfficientNetB0", 32),
        ("EfficientNetV2B0", 32),
        ("DenseNet121", 32),
        ("Xception", 71),
        ("ConvNeXtTiny", 32),
        ("ResNet50V2", 32),
    ],
)
def test_a_step_of_an_application_is_that_of_run_cpu(name, size, train_both, tmp_path, variables):
    sgd = "--params=optimizer=sgd,learning_rate=0.1"
    # One core: the batch norm is that of the whole batch.
    train_both(name, size, "1x1", sgd, "--train_batch_size=4", "--train_steps=1")
    start = variables(tmp_path / "start")
    cpu, tpu = variables(tmp_path / "cpu"), variables(tmp_path / "tpu")
    assert cpu.keys() == tpu.keys()
    changes = {
        label: {key: found[key] - start[key] for key in start if key.startswith("logits/")}
        for label, found in (("cpu", cpu), ("tpu", tpu))
    }
    # About 200 layers of sums over at most 2048 channels.
    numerics.assert_all_close(changes["tpu"], changes["cpu"], terms=2048, depth=200)
    assert all(np.isfinite(value).all() for value in tpu.values())


@pytest.mark.slow
def test_mirrored_replicas_train_alike(trained, cpu, tmp_path, variables):
    keras_network._cached.cache_clear()  # so that the network is built under the strategy
    cpu(tmp_path, *STEPS, "--strategy=mirrored", "--replicas=2")
    numerics.assert_all_close(variables(tmp_path), variables(trained), terms=14 * 15, depth=3 * 3)


@pytest.mark.slow(cost=0.1)
def test_the_export_serves_what_run_cpu_predicts(cpu, trained, tmp_path, caplog):
    export = tmp_path / "export"
    cpu(trained, "--mode=export", f"--export_dir={export}")
    images = np.random.default_rng(0).integers(0, 256, [3, 7, 5, 1]).astype(np.uint8)
    with traced.tensorflow_2():
        served = tf.saved_model.load(glob.glob(f"{export}/*")[0])
        found = served.signatures["serving_default"](image=tf.constant(images))
        tool.to_keras(trained, f"{tmp_path}/whole.keras")
        logits = tf.keras.models.load_model(f"{tmp_path}/whole.keras").predict(
            images.astype(np.float32), verbose=0
        )
        expected = tf.nn.softmax(logits).numpy()
        numerics.assert_close(found["probabilities"], expected, terms=9, depth=5, magnitude=1)
    assert "custom gradients" not in caplog.text


@pytest.mark.slow  # tests/test_tta.py and tests/test_ensemble.py have those of other networks
def test_an_ensemble_with_test_time_augmentation(cpu, tpu, trained, tmp_path):
    more = "--mode=predict", "--params=tta=flip"
    for name, wrapper, which in (
        ("one", cpu, trained),
        ("both", cpu, f"ensemble:{trained},{trained}"),
        ("cores", tpu, f"ensemble:{trained},{trained}"),
    ):
        output = f"--predict_output={tmp_path}/{name}.npz"
        wrapper(tmp_path / name, *more, f"--checkpoint={which}", "--predict_batch_size=14", output)
    one, both, cores = (
        np.load(f"{tmp_path}/{name}.npz")["probabilities"] for name in ("one", "both", "cores")
    )
    for found in (both, cores):
        numerics.assert_close(found, one, terms=9, depth=8, magnitude=1)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("ending", [".keras", ".h5", ".weights.h5"])
def test_weights_return_from_keras(ending, trained, tmp_path, variables, capsys):
    file = f"{tmp_path}/network{ending}"
    with traced.tensorflow_2():
        tf.keras.backend.reset_uids()
        network = without_batch_norm((7, 5, 3))
        network.set_weights([np.full(w.shape, 7.0) for w in network.get_weights()])
        network.save_weights(file) if "weights" in ending else network.save(file)
    tool.main("to_checkpoint", NAME.partition(":")[2], file, f"{tmp_path}/ck", "8", "filters=5")
    assert f"--warm_start_from={tmp_path}/ck" in capsys.readouterr().out
    found = {name: tf.train.load_variable(f"{tmp_path}/ck", name) for name in ("conv2d/kernel",)}
    assert (found["conv2d/kernel"] == 7).all()


@pytest.mark.slow(cost=0.1)
def test_a_warm_start_restores_them(cpu, tmp_path, capsys):
    with traced.tensorflow_2():
        tf.keras.backend.reset_uids()
        without_batch_norm((7, 5, 1)).save(f"{tmp_path}/network.keras")
    tool.to_checkpoint(
        NAME.partition(":")[2], f"{tmp_path}/network.keras", f"{tmp_path}/ck", "7x5x1"
    )
    cpu(tmp_path / "run", *STEPS, f"--warm_start_from={tmp_path}/ck")
    assert "warm start: restored 2 variables" in capsys.readouterr().out


def by_classes(input_shape, num_classes):
    images = tf.keras.Input(input_shape)
    x = tf.keras.layers.Flatten()(images)
    return tf.keras.Model(images, tf.keras.layers.Dense(num_classes, name="logits")(x))


@pytest.mark.slow(cost=0.1)
def test_to_keras_finds_the_classes_of_a_network_that_takes_them(flags, tmp_path):
    network = "--model=keras:tests.test_keras_runs:by_classes"
    _runner(run_cpu, *flags, network)(tmp_path / "run", *STEPS)
    folder = tmp_path / "my.h5.files"
    folder.mkdir()
    tool.to_keras(str(tmp_path / "run"), f"{folder}/whole.weights.h5")
    assert [path.name for path in folder.iterdir()] == ["whole.weights.h5"]


@pytest.mark.slow(cost=0.1)
def test_to_keras_writes_the_moving_average(flags, tmp_path, variables):
    _runner(run_cpu, *flags)(tmp_path / "run", *STEPS, "--params=ema_decay=0.5")
    tool.to_keras(str(tmp_path / "run"), f"{tmp_path}/whole.h5")
    with traced.tensorflow_2():
        weights = tf.keras.models.load_model(f"{tmp_path}/whole.h5", compile=False).get_weights()
    expected = variables(tmp_path / "run")["conv2d/kernel/ExponentialMovingAverage"]
    np.testing.assert_array_equal(weights[0], expected)


def with_dropout(input_shape, dropout=0.5):
    images = tf.keras.Input(input_shape)
    return tf.keras.Model(images, tf.keras.layers.Dropout(dropout)(images))


def test_a_network_with_an_argument_dropout_has_no_other_in_keras():
    name = f"{__name__}:with_dropout"
    params = hparams.resolve(registry.find(f"keras:{name}"), [], None)
    built = keras_network.build(name, (7, 5, 3), params)
    with traced.tensorflow_2():
        whole = tool._with_head(built, (7, 5, 3), params)
    rates = [layer.rate for layer in whole.submodules if isinstance(layer, tf.keras.layers.Dropout)]
    assert rates == [0.5]


@pytest.mark.parametrize(
    ("size", "flags", "expected"),
    [
        ("", [], (9, 8, 1)),
        ("", ["--image_size=9x8"], (9, 8, 1)),
        ("7x5", [], (7, 5, 1)),
        ("7x5x3", [], (7, 5, 3)),
    ],
)
def test_to_keras_has_the_images_of_the_run(size, flags, expected, tmp_path, monkeypatch):
    """Only the shape that the network is built for; others compare its outputs."""
    (tmp_path / "flags.cfg").write_text("\n".join([f"--model={NAME}", *flags]))
    record = {"data_set": "d", "classes": [], "features": {"image": ["uint8", 9, 8, 1]}}
    (tmp_path / "trained_on.json").write_text(json.dumps({**record, "assets": []}))
    checkpoint_writer.write(f"{tmp_path}/model.ckpt-3", {"global_step": np.int64(3)})

    def build(network, shape, params):
        raise UsageError(f"built for {shape}")

    monkeypatch.setattr(keras_network, "build", build)
    with pytest.raises(UsageError, match=re.escape(f"built for {expected}")):
        tool.to_keras(str(tmp_path), f"{tmp_path}/whole.keras", size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["to_nothing", "a", "b"], "'to_nothing' is unknown"),
        (["to_checkpoint", "tf.keras.applications.VGG16", "missing.h5", "c"], "is missing"),
        (["to_checkpoint", "tf.keras.applications.VGG16", "weights.npz", "c"], "must end in"),
        (["to_keras", "missing", "whole.keras"], "no checkpoint in missing"),
        (["to_keras", "missing", "whole.txt"], "must end in"),
    ],
)
def test_a_wrong_argument_is_one_error(arguments, message):
    with pytest.raises(UsageError, match=message):
        tool.main(*arguments)


def test_a_file_of_another_network_is_one_error(tmp_path):
    with traced.tensorflow_2():
        layers = tf.keras.layers
        tf.keras.Sequential([layers.Dense(3, input_shape=(2,))]).save(f"{tmp_path}/other.h5")
    with pytest.raises(UsageError, match="has no finite values of 2 of the 2 variables"):
        tool.to_checkpoint(NAME.partition(":")[2], f"{tmp_path}/other.h5", f"{tmp_path}/ck", "8")
    assert not os.path.exists(f"{tmp_path}/ck.index")


def test_a_damaged_file_is_one_error(tmp_path):
    (tmp_path / "weights.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(UsageError, match="does not fit"):
        tool.to_checkpoint(NAME.partition(":")[2], f"{tmp_path}/weights.h5", f"{tmp_path}/ck", "8")


def test_normalization_of_released_efficientnets_is_corrected(tmp_path):
    """Keras scales pixels again with weights="imagenet"; a checkpoint has that in its variance."""
    name = "tests.test_keras_runs:normalized"
    with traced.tensorflow_2():
        network = normalized((8, 8, 3))
        mean, variance = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        network.set_weights([mean, variance, 0, *network.get_weights()[3:]])
        network.save_weights(f"{tmp_path}/weights.h5")
    tool.to_checkpoint(name, f"{tmp_path}/weights.h5", f"{tmp_path}/ck", "8")
    found = tf.train.load_variable(f"{tmp_path}/ck", "normalization/variance")
    np.testing.assert_allclose(found, variance**2, rtol=1e-6)


def normalized(input_shape):
    images = tf.keras.Input(input_shape)
    x = tf.keras.layers.Normalization(name="normalization")(images)
    return tf.keras.Model(images, tf.keras.layers.Conv2D(3, 1)(x))


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=runs_bfloat16)])
def test_the_statistics_of_a_normalization_layer_are_variables(precision, session):
    params = {"num_classes": 3, "precision": precision, "trainable": ".*", "dropout": 0.0}
    model = keras_network.find("tests.test_keras_runs:normalized")
    images = tf.constant(np.full([2, 8, 8, 3], 5.0, np.float32))
    logits = forward.infer(model, {"image": images}, params, False)["logits"]
    assert {v.dtype.base_dtype for v in tf.compat.v1.global_variables()} == {tf.float32, tf.int64}
    session.run(tf.compat.v1.global_variables_initializer())
    before = session.run(logits)
    (mean,) = [v for v in tf.compat.v1.global_variables() if v.op.name == "normalization/mean"]
    mean.load(np.full([3], 5.0, np.float32), session)
    assert np.abs(before).max() > 0
    assert not session.run(logits).any()
