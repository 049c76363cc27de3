"""Conversion of Keras weights; tests/test_against_applications.py compares the outputs."""

import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import writer as checkpoint_writer
from models.vision import efficientnet
from models.vision import mobilenet as our_mobilenet
from tests.marks import slow
from tools import efficientnet_weights, keras_weights


def write_h5(path, arrays, nested=""):
    """Writes a file in the layout of Keras 2: one group per layer; `{"layer/weight": array}`."""
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            layer = name.split("/")[0]
            file[f"{nested}{layer}/{name}:0"] = array
    return str(path)


def batch_norm(layer, channels):
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    return {f"{layer}/{name}": np.full([channels], i + 1.0) for i, name in enumerate(names)}


def mobilenet(width=0.25, top=None):
    """Returns the weights of a Keras MobileNet."""
    channels = [int(c * width) for c in (32, 64, *[128] * 2, *[256] * 2, *[512] * 6, *[1024] * 2)]
    arrays = {"conv1/kernel": np.ones([3, 3, 3, channels[0]])}
    arrays.update(batch_norm("conv1_bn", channels[0]))
    for i, (before, after) in enumerate(zip(channels, channels[1:]), start=1):
        arrays[f"conv_dw_{i}/depthwise_kernel"] = np.ones([3, 3, before, 1])
        arrays.update(batch_norm(f"conv_dw_{i}_bn", before))
        arrays[f"conv_pw_{i}/kernel"] = np.ones([1, 1, before, after])
        arrays.update(batch_norm(f"conv_pw_{i}_bn", after))
    if top:
        arrays["conv_preds/kernel"] = np.ones([1, 1, channels[-1], top])
        arrays["conv_preds/bias"] = np.ones([top])
    return {name: array.astype(np.float32) for name, array in arrays.items()}


@pytest.mark.parametrize("nested", ["", "model_weights/", "model_weights/mobilenet_0.25/"])
def test_layouts_of_weights_models_and_nested_models(tmp_path, nested):
    path = write_h5(tmp_path / "weights.h5", mobilenet(), nested)
    variables, model, params = keras_weights.convert(keras_weights.read(path))
    assert model == "mobilenet"
    assert (params["version"], params["width"]) == (1, 0.25)
    assert len(variables) == len(mobilenet())
    assert variables["block_3/depthwise/depthwise_kernel"].shape == (3, 3, 32, 1)
    assert variables["block_3/pointwise_norm/moving_mean"].tolist() == [3.0] * 32


@pytest.mark.slow(cost=0.1)
def test_main_writes_the_checkpoint_and_prints_flags(tmp_path, capsys):
    path, checkpoint = write_h5(tmp_path / "w.h5", mobilenet(top=5)), str(tmp_path / "new" / "w")
    keras_weights.main(path, checkpoint)
    assert tf.train.load_variable(checkpoint, "logits/kernel").shape == (256, 5)
    output = capsys.readouterr().out
    assert "137 variables, 5 classes" in output
    norm = "batch_norm_momentum=0.99,batch_norm_epsilon=0.001"
    flags = f"{norm},pixel_mean=[127.5],pixel_scale={1 / 127.5}'"
    assert f"--model=mobilenet '--params=version=1,width=0.25,{flags}" in output
    assert f"'--params=backbone=mobilenet_v1,backbone_width=0.25,{flags}" in output
    assert f"--warm_start_from={checkpoint}" in output


@pytest.mark.slow(cost=0.1)
def test_custom_layers_are_ignored_and_reported(tmp_path, capsys):
    arrays = {**mobilenet(), "dense_7/kernel": np.ones([256, 2])}
    keras_weights.main(write_h5(tmp_path / "w.h5", arrays), str(tmp_path / "w"))
    assert "ignored layers: dense_7" in capsys.readouterr().out


@pytest.mark.parametrize("width", [slow(0.42), slow(1.23)])
def test_mobilenet_v2_of_unusual_width(width, eager, tmp_path, capsys):
    network = tf.keras.applications.MobileNetV2((32, 32, 3), width, weights=None, classes=5)
    network.save_weights(tmp_path / "w.h5")
    keras_weights.main(str(tmp_path / "w.h5"), str(tmp_path / "w"))
    assert "262 variables, 5 classes" in capsys.readouterr().out


def test_width_of_mobilenet_v2_is_found_from_its_channels():
    for hundredths in range(10, 401):
        channels = our_mobilenet.v2_channels(hundredths / 100)
        layers = ["Conv1", "expanded_conv_project", *[f"block_{i}_project" for i in range(1, 17)]]
        arrays = {
            (layer, "kernel"): np.zeros([1, 1, 1, count])
            for layer, count in zip([*layers, "Conv_1"], channels)
        }
        _, _, params = keras_weights.convert(arrays)
        assert our_mobilenet.v2_channels(params["width"]) == channels
        if hundredths in (35, 50, 75, 100, 130, 140):  # widths with ImageNet weights
            assert params["width"] == hundredths / 100


def test_resnet_kernel_is_converted_to_rgb_and_biases_are_folded():
    kernel = np.arange(7 * 7 * 3 * 64, dtype=np.float32).reshape([7, 7, 3, 64])
    arrays = {("conv1_conv", "kernel"): kernel, ("conv1_conv", "bias"): np.full([64], 0.5)}
    arrays["conv1_bn", "moving_mean"] = np.full([64], 2.0)
    blocks = {2: 3, 3: 4, 4: 6, 5: 3}
    for stage, count in blocks.items():
        for block in range(1, count + 1):
            arrays[f"conv{stage}_block{block}_1_conv", "kernel"] = np.zeros([1])
    variables, model, params = keras_weights.convert(arrays)
    assert (model, params["depth"]) == ("resnet", 50)
    np.testing.assert_array_equal(variables["stem/conv/kernel"], kernel[:, :, ::-1])
    assert variables["stem/batch_norm/moving_mean"].tolist() == [1.5] * 64
    assert "stem/conv/bias" not in variables
    unchanged, _, _ = keras_weights.convert(arrays, channels="rgb")
    np.testing.assert_array_equal(unchanged["stem/conv/kernel"], kernel)


def without_a_layer():
    return {k: v for k, v in mobilenet().items() if k != "conv_dw_4/depthwise_kernel"}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"dense/kernel": np.ones([2, 2])}, "its layers are dense ..."),
        ({"vars/0": np.ones([2, 2])}, "saved by Keras 2: its layers are vars"),
        (without_a_layer(), r"depthwise_kernel: None in the file, \(3, 3, 32, 1\)"),
        slow(
            {**mobilenet(), "conv1/kernel": np.ones([3, 3, 1, 8])}, r"conv/kernel: \(3, 3, 1, 8\)"
        ),
        ({"conv1/kernel": np.ones([3, 3, 3, 8])}, "a MobileNet without block 13"),
        ({"conv1_conv/kernel": np.ones([7, 7, 3, 8])}, r"a ResNet with \[0, 0, 0, 0\] blocks"),
        ({"conv1_conv/kernel": np.ones(8), "x_preact_bn/gamma": np.ones(8)}, "ResNet V2"),
    ],
)  # fmt: skip
def test_unsupported_weights_raise_before_anything_is_written(tmp_path, arrays, message):
    path = write_h5(tmp_path / "weights.h5", arrays)
    with pytest.raises(UsageError, match=message):
        keras_weights.main(path, str(tmp_path / "weights.ckpt"))
    assert [file.name for file in tmp_path.iterdir()] == ["weights.h5"]


KERNEL = "conv1/conv1/kernel:0"


def linked(target):
    def write(file):
        file["conv1"] = target

    return write


def dataset(*shape, **options):
    return lambda file: file.create_dataset(KERNEL, shape or None, **options)


def twice(file):
    file["a/conv1/kernel:0"] = file["b/conv1/kernel:0"] = np.ones([3, 3, 3, 8], np.float32)
    file["c/conv1/kernel:0"] = np.zeros([3, 3, 3, 8], np.float32)


def same_layer(file):
    for layer in ("probs", "predictions", "conv1_conv"):
        file[f"{layer}/kernel:0"] = np.ones([2, 2], np.float32)


def scalars(file):
    file["conv1/kernel:0"] = file["conv_pw_13/kernel:0"] = np.float32(1)


def flat_kernel(file):
    file["conv1_conv/kernel:0"] = np.ones([8])


def bias_alone(file):
    file["conv1_conv/bias:0"] = np.ones([64], np.float32)


def virtual(file):
    layout = h5py.VirtualLayout(shape=(8,), dtype="f4")
    layout[:] = h5py.VirtualSource("other.h5", "secret", shape=(8,))
    file.create_virtual_dataset(KERNEL, layout)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (scalars, r"block_13/pointwise/kernel has the shape \(\), not the 4 dimensions"),
        (flat_kernel, r"stem/conv/kernel has the shape \(8,\), not the 4 dimensions"),
        (dataset(data=h5py.Empty("f")), "kernel:0 is empty, not an array of floats"),
        (dataset(data="weights"), "kernel:0 is of type object, not an array of floats"),
        (dataset(3, dtype="c8"), "kernel:0 is of type complex64, not an array of floats"),
        (dataset(3, 3, 3, 8, dtype="i4"), "kernel:0 is of type int32, not an array of floats"),
        (dataset(3, dtype=[("a", "f4"), ("b", "i4")]), "kernel:0 is of type .* not an array of"),
        (dataset(10**6, 10**6, dtype="f4", chunks=(9, 9)), "declares more than 4 GiB of weights"),
        (dataset(data=np.full([3, 3, 3, 8], np.nan)), "kernel:0 has values that are not finite"),
        (
            dataset(5, dtype="f4", external=[("secret.bin", 0, 20)]),
            "kernel:0 is stored in another file",
        ),
        (virtual, "kernel:0 is stored in another file"),
        (linked(h5py.ExternalLink("other.h5", "conv1")), "conv1 is a link. Save the weights again"),
        (linked(h5py.SoftLink("/nothing")), "conv1 is a link. Save the weights again"),
        (twice, "conv1/kernel is there twice"),
        (same_layer, "the layers predictions and probs are the same layer of resnet"),
        (bias_alone, r"stem/conv/bias has no batch norm of its shape \(64,\) after it"),
    ],
)
def test_a_hostile_file_is_one_error(tmp_path, write, message):
    path = str(tmp_path / "weights.h5")
    with h5py.File(path, "w") as file:
        write(file)
    with pytest.raises(UsageError, match=message) as raised:
        keras_weights.main(path, str(tmp_path / "weights.ckpt"))
    assert "\n" not in str(raised.value)


def test_missing_or_invalid_file_raises(tmp_path):
    (tmp_path / "text.h5").write_text("weights")
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("../config.json", "{}")
    for name in ("text.h5", "missing.h5", "model.keras", "."):
        with pytest.raises(UsageError, match="cannot be read as HDF5"):
            keras_weights.main(str(tmp_path / name), str(tmp_path / "weights.ckpt"))


NORM = ("gamma", "beta", "moving_mean", "moving_variance")


def google_efficientnet():
    """Returns `{variable: shape}` of EfficientNet-B0 in a checkpoint of tensorflow/tpu."""
    shapes = {"stem/conv2d/kernel": [3, 3, 3, 32], "head/conv2d/kernel": [1, 1, 320, 1280]}
    norms = {"stem/tpu_batch_normalization": 32, "head/tpu_batch_normalization": 1280}
    channels_in = 32
    for i, block in enumerate(efficientnet.blocks(efficientnet.SIZES["b0"])):
        hidden, size = block.expansion * channels_in, block.kernel_size
        squeezed = channels_in // 4
        layers = [("conv2d/kernel", [1, 1, channels_in, hidden])] * (i > 0)
        layers.append((f"conv2d{'_1' * (i > 0)}/kernel", [1, 1, hidden, block.channels]))
        layers += [
            ("depthwise_conv2d/depthwise_kernel", [size, size, hidden, 1]),
            ("se/conv2d/kernel", [1, 1, hidden, squeezed]),
            ("se/conv2d/bias", [squeezed]),
            ("se/conv2d_1/kernel", [1, 1, squeezed, hidden]),
            ("se/conv2d_1/bias", [hidden]),
        ]
        shapes.update((f"blocks_{i}/{name}", shape) for name, shape in layers)
        sizes = [hidden] * (1 + (i > 0)) + [block.channels]
        for number, size in enumerate(sizes):
            norms[f"blocks_{i}/tpu_batch_normalization" + f"_{number}" * (number > 0)] = size
        channels_in = block.channels
    shapes.update((f"{layer}/{name}", [size]) for layer, size in norms.items() for name in NORM)
    return {f"efficientnet-b0/{name}": shape for name, shape in shapes.items()}


@pytest.fixture
def google_checkpoint(tmp_path):
    """A checkpoint in which each EMA is its number, and other variables are -1."""
    shapes = google_efficientnet()
    values = {name: np.full(shape, -1, np.float32) for name, shape in shapes.items()}
    for i, (name, shape) in enumerate(sorted(shapes.items()), start=1):
        values[f"{name}/ExponentialMovingAverage"] = np.full(shape, i, np.float32)
    path = str(tmp_path / "google" / "model.ckpt")
    checkpoint_writer.write(path, {**values, "global_step": np.int64(7)})
    return path, {name: i for i, name in enumerate(sorted(shapes), start=1)}


@pytest.mark.slow  # it builds the network to check the shapes
def test_the_ema_of_an_efficientnet_of_tensorflow_tpu_is_converted(
    google_checkpoint, tmp_path, capsys
):
    path, numbers = google_checkpoint
    keras_weights.main(path, str(tmp_path / "w"))
    assert f"--model=efficientnet_b0 --warm_start_from={tmp_path}/w" in capsys.readouterr().out
    names = {
        "block_1/project/kernel": "blocks_0/conv2d/kernel",
        "block_1/depthwise_norm/gamma": "blocks_0/tpu_batch_normalization/gamma",
        "block_1/project_norm/beta": "blocks_0/tpu_batch_normalization_1/beta",
        "block_2/expand/kernel": "blocks_1/conv2d/kernel",
        "block_2/project_norm/moving_mean": "blocks_1/tpu_batch_normalization_2/moving_mean",
        "block_16/squeeze_excite/expand/bias": "blocks_15/se/conv2d_1/bias",
        "head/batch_norm/moving_variance": "head/tpu_batch_normalization/moving_variance",
    }
    for ours, theirs in names.items():
        values = tf.train.load_variable(str(tmp_path / "w"), ours)
        assert set(values.flat) == {numbers[f"efficientnet-b0/{theirs}"]}
    kernel = tf.train.load_variable(str(tmp_path / "w"), "stem/conv/kernel")[0, 0, :, 0]
    number = numbers["efficientnet-b0/stem/conv2d/kernel"]
    # Their pixels are divided by the deviation of their color, ours by the mean deviation.
    np.testing.assert_allclose(kernel * [0.229, 0.224, 0.225], number * 0.226, rtol=1e-6)


def test_an_efficientnet_of_other_channels_is_refused():
    with pytest.raises(UsageError, match="with 2 blocks of \\[5, 7\\] channels is unsupported"):
        efficientnet_weights.from_keras(
            {
                "block_1a/project/kernel": np.ones([1, 1, 3, 5]),
                "block_2a/project/kernel": np.ones([1, 1, 3, 7]),
            }
        )
