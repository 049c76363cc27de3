"""SavedModels that serve the model: versioned, whole or not there, with an example to try."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import tensorflow as tf

SIGNATURE = "serving_default"
SAMPLE_FILE = "sample_{}.npy"
_NUM_SAMPLES = 3


def export_outputs(predictions, pipeline):
    """Returns the signatures of the SavedModel, whose outputs are `pipeline.serving_outputs`."""
    return {SIGNATURE: tf.estimator.export.PredictOutput(pipeline.serving_outputs(predictions))}


def export_saved_model(estimator, pipeline, split: str, checkpoint: str, export_dir: str):
    """Writes `export_dir/<seconds since 1970>/`, and returns its path as text.

    Beside the SavedModel, `assets.extra/` holds `class_names.txt`, if there are classes, a name a
    line in the order of the probabilities, and `sample_<feature>.npy`, the first examples of
    `split`, ready to be fed.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = estimator.export_saved_model(
                export_dir,
                pipeline.serving_input_receiver_fn(),
                assets_extra=_write_extras(folder, pipeline, split),
                checkpoint_path=checkpoint,
            )
        except BaseException:
            _remove_unfinished(export_dir)
            raise
    return path.decode()


def command_line(pipeline, path: str) -> str:
    """Returns the command that feeds the samples, or a text, to the SavedModel at `path`."""
    if pipeline.serves_text:
        return (
            'python -c "import tensorflow as tf, tensorflow_text; '
            f"print(tf.saved_model.load('{path}').signatures['{SIGNATURE}']"
            "(text=tf.constant(['...']))['text'])\""
        )
    inputs = ";".join(
        f"{name}={os.path.join(path, 'assets.extra', SAMPLE_FILE.format(name))}"
        for name in pipeline.features
    )
    return (
        f"saved_model_cli run --dir {path} --tag_set serve --signature_def {SIGNATURE} "
        f"--inputs '{inputs}'"
    )


def _write_extras(folder, pipeline, split):
    """Writes the extra files into `folder`; returns `{name in assets.extra: path}`."""
    extras = {}
    if pipeline.data.class_names:
        extras["class_names.txt"] = os.path.join(folder, "class_names.txt")
        with open(extras["class_names.txt"], "w") as file:
            file.writelines(f"{name}\n" for name in pipeline.data.class_names)
    for feature, examples in _samples(pipeline, split).items():
        name = SAMPLE_FILE.format(feature)
        extras[name] = os.path.join(folder, name)
        np.save(extras[name], examples)
    return extras


def _samples(pipeline, split):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        batches = pipeline.predict_input_fn(split)({"batch_size": _NUM_SAMPLES})
        return session.run(tf.compat.v1.data.make_one_shot_iterator(batches).get_next())


def _remove_unfinished(export_dir):
    # tf.estimator writes into temp-<version> and renames it when it is whole.
    for name in tf.io.gfile.listdir(export_dir) if tf.io.gfile.exists(export_dir) else []:
        if name.startswith("temp-"):
            tf.io.gfile.rmtree(os.path.join(export_dir, name))
