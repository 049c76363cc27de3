"""Converts weights of --model=keras:NETWORK between Keras files and checkpoints.

python -m tools.keras_network to_checkpoint NETWORK FILE CHECKPOINT [SIZE] [NAME=VALUE,...]
python -m tools.keras_network to_keras SOURCE FILE [SIZE]

NETWORK is the value of --model after `keras:`. FILE is a model or weights of Keras 2: .keras, .h5
or .weights.h5. SOURCE is a model_dir, or a checkpoint of one. SIZE is the size of images, such as
224, 224x192 or 28x28x1: by default 224 with 3 channels, and of a run that of its images.
NAME=VALUE,... are hyperparameters, as of --params.

`to_checkpoint` writes what --warm_start_from reads, without a last dense layer: of applications
those of Keras, such as efficientnetb0_notop.h5. `to_keras` writes the network, what a run does to
pixels before it, and the last layer, as a tf.keras.Model from pixels, 0 to 255, to logits, of a
regression to its numbers.
"""

from __future__ import annotations

import os
import sys

from engine.cli import startup

if __name__ == "__main__":
    startup.hide_logs()
    startup.check(startup.check_environment)

import numpy as np
import tensorflow as tf

from common import files
from common.errors import UsageError
from engine.checkpoints import ema, find, trained_on, writer
from engine.cli import hparams, runtime
from input_fns import dataset_info
from models import registry
from models.layers import traced
from models.vision import keras_network
from tools import checkpoint_folders

_ENDINGS = (".keras", ".h5")  # .weights.h5 too
_SIZE, _CHANNELS = 224, 3
_SCALING = ("target/scale", "target/mean")  # variables of a regression
# Standard deviations of the pixels of ImageNet, which the released weights of EfficientNet hold as
# variances. `weights="imagenet"` corrects that by another scaling in the network.
_IMAGENET_DEVIATIONS = np.array([0.229, 0.224, 0.225], np.float32)


def main(command: str, *arguments: str) -> None:
    """Runs a command; see the docstring of this module."""
    runtime.prepare()
    commands = {"to_checkpoint": to_checkpoint, "to_keras": to_keras}
    if command not in commands:
        raise UsageError(f"'{command}' is unknown. Valid: {', '.join(commands)}")
    commands[command](*arguments)


def to_checkpoint(network: str, file: str, checkpoint: str, *options: str) -> None:
    """Writes the weights in `file` as a checkpoint for --warm_start_from."""
    _check_ending(file)
    if not os.path.isfile(file):
        raise UsageError(f"{file} is missing or not a file")
    sizes = [option for option in options if "=" not in option]
    changes = [option for option in options if "=" in option]
    params = hparams.resolve(registry.find(f"keras:{network}"), changes, None)
    built = keras_network.build(network, _shape(sizes[0] if sizes else _SIZE), params)
    with traced.tensorflow_2():
        for source in built.sources.values():
            if source.variable.dtype.is_floating:
                source.variable.assign(tf.fill(source.variable.shape, np.nan))
        by_name = {} if file.endswith((".keras", ".weights.h5")) else {"by_name": True}
        try:
            built.model.load_weights(file, **by_name)
        # Keras and h5py raise built-in exceptions for a damaged file and for other layers.
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise UsageError(
                f"{file} does not fit --model=keras:{network}: {keras_network.first_line(error)}"
            ) from error
        values = {name: source.variable.numpy() for name, source in built.sources.items()}
    missing = [name for name, value in values.items() if not np.isfinite(value).all()]
    if missing:
        raise UsageError(
            f"{file} has no finite values of {len(missing)} of the {len(values)} variables of "
            f"--model=keras:{network}, such as {missing[0]}"
        )
    variance = values.get("normalization/variance")
    if variance is not None and np.allclose(variance, _IMAGENET_DEVIATIONS, rtol=1e-3):
        values["normalization/variance"] = variance * _IMAGENET_DEVIATIONS
        print("normalization/variance: scaled as weights='imagenet' of Keras does")
    writer.write(checkpoint, values)
    print(f"{len(values)} variables, without top: {checkpoint}")
    shown = f" --params={','.join(changes)}" if changes else ""
    print(f"--model=keras:{network}{shown} --warm_start_from={checkpoint}")


def to_keras(source: str, file: str, size: str = "") -> None:
    """Writes the network of a run with its weights as a file of Keras."""
    _check_ending(file)
    if os.path.exists(file):
        raise UsageError(f"{file} exists. Choose another name, or remove it")
    checkpoint = find.find_in(source)
    if checkpoint is None:
        raise UsageError(f"no checkpoint in {source}")
    folder = os.path.dirname(checkpoint)
    folders = folder, os.path.dirname(folder)
    run = next((path for path in folders if tf.io.gfile.exists(f"{path}/flags.cfg")), None)
    if run is None:
        raise UsageError(f"{folder} has no flags.cfg, which names the network")
    flags = checkpoint_folders.flags_of(run)
    given = dict(flags)
    kind, _, network = given.get("model", "").partition(":")
    if kind != "keras":
        raise UsageError(f"{run} is a run of --model={given.get('model')}, not of keras:NETWORK")
    reader = tf.train.load_checkpoint(checkpoint)
    stored = reader.get_variable_to_shape_map()
    params = checkpoint_folders.params_of(flags)
    if "logits/bias" in stored:
        params["num_classes"] = stored["logits/bias"][0]
    elif dataset_info.exists(given.get("data_dir", "")) and not any(
        key == "num_classes" for _, (key, _) in hparams.pairs(v for n, v in flags if n == "params")
    ):
        params["num_classes"] = len(dataset_info.read(given["data_dir"]).all_class_names)
    shape = _shape_of_run(run, size or given.get("image_size"))
    with traced.tensorflow_2():
        built = keras_network.build(network, shape, params)
        scaling = [reader.get_tensor(name) for name in _SCALING if name in stored]
        whole = _with_head(built, shape, params, *scaling)
        variables = {name: source.variable for name, source in built.sources.items()}
        if not built.makes_logits:
            last = whole.get_layer("logits")
            variables.update({"logits/kernel": last.kernel, "logits/bias": last.bias})
        for name, variable in variables.items():
            if name not in stored:
                raise UsageError(f"{checkpoint} has no variable {name}")
            average = ema.average_name(name)
            value = reader.get_tensor(average if average in stored else name)
            if value.shape != tuple(variable.shape):
                raise UsageError(
                    f"{checkpoint}: {name} is {list(value.shape)}, and the network's is "
                    f"{list(variable.shape)}. Does {run}/flags.cfg have its --params?"
                )
            variable.assign(value)
        built.finalize()
        partial = files.partial_name(file) + file[file.rindex(".") :]
        if file.endswith(".weights.h5"):
            partial = partial.removesuffix(".h5") + ".weights.h5"
            whole.save_weights(partial)
        else:
            whole.save(partial)
    os.replace(partial, file)
    print(f"{len(variables)} variables: {file}")


def _with_head(built, shape, params, *scaling):
    """Returns the tf.keras.Model from pixels to logits, of a regression to its numbers."""
    images = tf.keras.Input(shape)
    x = built.model(built.preprocess(images))
    if not built.makes_logits:
        layers = tf.keras.layers
        if x.shape.rank == 4:
            x = layers.GlobalAveragePooling2D()(x)
        if not built.has_dropout:
            x = layers.Dropout(params["dropout"])(x)
        x = layers.Dense(params["num_classes"], name="logits")(x)
    if scaling:
        scale, offset = (values.tolist() for values in scaling)
        x = tf.keras.layers.Rescaling(scale, offset, name="numbers")(x)
    return tf.keras.Model(images, x)


def _shape_of_run(run, size):
    """Returns the shape of the images of a run, of another size if `size` is not empty."""
    record = trained_on.read(run)
    trained = tuple(record["features"]["image"][1:]) if record else None
    if size:
        return _shape(size, trained[-1] if trained else _CHANNELS)
    if trained is None:
        raise UsageError(f"{run} has no {trained_on.FILE_NAME}. Give SIZE, such as 224 or 28x28x1")
    return trained


def _shape(size, default_channels=_CHANNELS):
    """Returns (height, width, channels) of SIZE."""
    numbers = str(size).split("x")
    if len(numbers) > 3 or not all(number.isdecimal() and int(number) for number in numbers):
        raise UsageError(f"'{size}' must be a size of images such as 224, 224x192 or 28x28x1")
    height, width, channels = [*map(int, numbers), *(None,) * 2][:3]
    return height, width or height, channels or default_channels


def _check_ending(file):
    if not file.endswith(_ENDINGS):
        raise UsageError(f"{file} must end in .keras, .h5 or .weights.h5")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    startup.run(lambda: main(*sys.argv[1:]))
