"""Exports versioned SavedModels, checked against the Estimator and published atomically."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile

import numpy as np

from common import files
from engine.serving import export_check, export_folders, model_card, signatures, warm_up
from input_fns.core import serving

EXTRA = "assets.extra"
_NUM_SAMPLES = 3


def export_saved_model(estimator, settings, checkpoint: str) -> str:
    """Writes a SavedModel to `export_dir/<version>/`; returns its path.

    The folder is renamed to its version number (`export_folders`) after it is complete and checked
    (`export_check`), so a server that watches `export_dir` never loads an incomplete model.

    It also contains `MODEL_CARD.json` (see `model_card`) and, in `assets.extra/`:
    `class_names.txt`, one class name per line in the order of the classes;
    `sample_<input>.npy`, the first examples of the evaluation split, unless one ends with a NUL
    byte; and warm-up requests for TensorFlow Serving.

    Args:
      estimator: an Estimator or TPUEstimator.
      settings: `RunSettings`.
      checkpoint: path of the checkpoint to export.

    Raises:
      ExportError: the SavedModel and the Estimator return different predictions. The export is kept
        as `failed-<version>`.
    """
    with export_folders.staging(settings.export.dir) as staging:
        path = _write(estimator, settings, checkpoint, staging)
        report = export_check.check(estimator, settings, checkpoint, path)
        card = model_card.write(path, settings, checkpoint, report)
        final = export_folders.publish(path, settings.export.dir, bool(report.problems))
    print(f"exported {checkpoint}: {final}")
    print(model_card.describe(card))
    report.raise_problems(final)
    print(f"try it: {command_line(settings.pipeline, final)}")
    return final


def sample_file(name: str) -> str:
    """Returns the file in assets.extra with the examples of an input; "a/b" is a nested feature."""
    return f"sample_{name.replace('/', '_')}.npy"


def command_line(pipeline, path: str) -> str:
    """Returns a shell command that runs a SavedModel on the sample inputs, or on text."""
    text = pipeline.receivers().get(serving.TEXT)
    if text:
        # saved_model_cli does not load the ops of TensorFlow Text.
        inputs = ", ".join(f'{name}=tf.constant(["..."])' for name in text.inputs)
        program = (
            "import tensorflow as tf, tensorflow_text; "
            f'print(tf.saved_model.load({json.dumps(path)}).signatures["{serving.TEXT}"]({inputs}))'
        )
        return f"python -c {shlex.quote(program)}"
    inputs = ";".join(
        f"{name}={os.path.join(path, EXTRA, sample_file(name))}" for name in pipeline.features
    )
    program = "saved_model_cli"
    if not shutil.which(program):  # the virtual environment is not active
        python = os.path.relpath(sys.executable)
        program = f"{python} -m tensorflow.python.tools.saved_model_cli"
    return (
        f"{program} run --dir {shlex.quote(path)} --tag_set serve --signature_def {serving.RAW} "
        f"--inputs {shlex.quote(inputs)}"
    )


def _write(estimator, settings, checkpoint, staging):
    requests = serving.first_requests(
        settings.pipeline, settings.evaluation.split, _NUM_SAMPLES, settings.signatures
    )
    with tempfile.TemporaryDirectory() as folder:
        path = estimator.export_saved_model(
            staging,
            signatures.serving_input_receiver_fn(settings.pipeline),
            assets_extra=_write_extras(folder, settings, requests),
            checkpoint_path=checkpoint,
        ).decode()
    _remove_extra_tpu_inputs(path, settings.pipeline)
    if serving.CLASSIFY in model_card.signature_names(path):
        requests[serving.CLASSIFY] = requests[serving.TF_EXAMPLE]
    model_name = os.path.basename(os.path.normpath(settings.export.dir))
    warm_up.write(os.path.join(path, EXTRA, warm_up.FILE_NAME), model_name, requests)
    return path


def _remove_extra_tpu_inputs(path, pipeline):
    """Removes the inputs of other signatures from the raw signature of a TPU graph.

    TPUEstimator adds all receiver tensors of the CPU graph to it (--export_to_tpu).
    """
    saved_model = model_card.read(path)
    graphs = [graph for graph in saved_model.meta_graphs if "tpu" in graph.meta_info_def.tags]
    for graph in graphs:
        inputs = graph.signature_def[serving.RAW].inputs
        for name in inputs.keys() - pipeline.features.keys():
            del inputs[name]
    if graphs:
        with files.atomic_write(os.path.join(path, "saved_model.pb"), "wb") as file:
            file.write(saved_model.SerializeToString())


def _write_extras(folder, settings, requests):
    """Writes sample inputs and class names to `folder`; returns `{name in assets.extra: path}`."""
    for inputs in requests.values():
        for name, examples in inputs.items():
            array = examples
            if examples.dtype == object:
                array = examples.astype("S")
                if not np.array_equal(array, examples):
                    continue  # NumPy strips NUL bytes at the end, such as those of a WAV file
            np.save(os.path.join(folder, sample_file(name)), array)
    if settings.dataset.all_class_names:
        with open(os.path.join(folder, "class_names.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in settings.dataset.all_class_names)
    return {name: os.path.join(folder, name) for name in os.listdir(folder)}
