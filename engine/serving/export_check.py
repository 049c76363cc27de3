"""Checks that the signatures of a SavedModel return what the Estimator predicts.

An export can be broken although its graph was correct: a variable was not saved, or an op is not
registered in another process. So a new process loads the SavedModel, like a server, runs every
signature on real examples, and the outputs are compared with `Estimator.predict`.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

from common.errors import RunError
from engine.serving import array_file, model_card, rotated_images
from input_fns.core import serving

# Maximum difference, relative to the largest number of the last axis, at least 1: float32 sums in a
# different order, as with a different batch size, differ in the sixth digit. A number near 0, such
# as a corner of a box at the edge of an image, is a difference of larger ones and has their errors.
_TOLERANCE = 1e-5
# From here on numbers stand for "none", such as the score of a masked position.
_NONE = 1e5
# For the median example, if the Estimator runs on a TPU or GPU or in bfloat16, which round
# differently from the CPU that runs the SavedModel.
_LOOSE_TOLERANCE = 5e-2
_REQUESTS, _ANSWERS = "requests.npz", "answers.npz"
# `python -c` puts the working folder first in sys.path, so a numpy.py there would be imported.
_PROGRAM = (
    "import sys; sys.path = [sys.argv[1], *filter(None, sys.path)]; "
    "from engine.serving import export_check; export_check.serve(*sys.argv[2:])"
)


class ExportError(RunError):
    """A SavedModel cannot be loaded, or its outputs differ from the predictions."""


@dataclasses.dataclass(frozen=True)
class Report:
    """Result of a check.

    Attributes:
      examples: number of examples that were compared; 0 if the check was skipped.
      differences: `{signature: largest relative difference from a prediction}`.
      problems: error messages, one line each.
    """

    examples: int = 0
    differences: dict[str, float] = dataclasses.field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def raise_problems(self, path: str) -> None:
        """Raises `ExportError` if there are problems."""
        if self.problems:
            raise ExportError(
                f"{path} returns other values than the Estimator predicts: "
                f"{'; '.join(self.problems)}. It is kept under this name, which no server loads. "
                "--noexport_check exports without this check"
            )


def check(estimator, settings, checkpoint: str, path: str) -> Report:
    """Compares the outputs of a SavedModel with a batch of predictions of the Estimator.

    Args:
      estimator: an Estimator or TPUEstimator.
      settings: `RunSettings`.
      checkpoint: path of the checkpoint that was exported.
      path: path of the SavedModel.
    """
    if not settings.export.check:
        return Report()
    predictions = predict_batch(estimator, settings, checkpoint)
    count = len(next(iter(predictions.values())))
    requests = serving.first_requests(settings.pipeline, settings.evaluation.split, count)
    expected = dict.fromkeys(requests, predictions)
    if serving.CLASSIFY in model_card.signature_names(path):
        requests[serving.CLASSIFY] = {"inputs": requests[serving.TF_EXAMPLE][serving.EXAMPLES]}
        scores = predictions["probabilities"]
        if settings.export.top_k:
            scores = -np.sort(-scores)[:, : settings.export.top_k]
        expected[serving.CLASSIFY] = {"scores": scores}
    if serving.IMAGE_BYTES in requests:
        requests[serving.IMAGE_BYTES] = _add_rotated_images(requests[serving.IMAGE_BYTES])
    try:
        answers = run_in_new_process(path, requests)
    except ExportError as error:
        return Report(count, problems=(str(error),))
    exactly = _estimator_runs_in_float32_on_cpu(settings)
    differences, problems = {}, []
    for name, answer in answers.items():
        first = {key: values[:count] for key, values in answer.items()}
        difference, wrong = _compare(expected[name], first, exactly)
        if name == serving.IMAGE_BYTES:
            # The outputs for rotated images and for the same images upright: two equal halves.
            halves = {key: np.split(values[count:], 2) for key, values in answer.items()}
            rotated, upright = ({key: half[i] for key, half in halves.items()} for i in range(2))
            _, differing = _compare(upright, rotated, exactly)
            wrong += [f"for images with an EXIF orientation, {line}" for line in differing]
        differences[name] = difference
        problems += [f"signature {name}: {line}" for line in wrong]
    return Report(count, differences, tuple(problems))


def run_in_new_process(
    path: str, requests: dict[str, dict[str, np.ndarray]]
) -> dict[str, dict[str, np.ndarray]]:
    """Runs signatures of a SavedModel in a new process.

    Args:
      path: path of the SavedModel.
      requests: `{signature: {input: array [batch, ...]}}`.

    Returns:
      `{signature: {output: array [batch, ...]}}`.

    Raises:
      ExportError: it cannot be loaded, or a signature fails.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = {
        **os.environ,
        "PYTHONPATH": _python_path(),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # This process occupies the GPU or TPU.
        "CUDA_VISIBLE_DEVICES": "-1",
        "TPU_LOAD_LIBRARY": "0",
    }
    with tempfile.TemporaryDirectory() as folder:
        array_file.save(os.path.join(folder, _REQUESTS), requests)
        command = [sys.executable, "-c", _PROGRAM, root, path, folder]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace"
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise ExportError(f"a new process cannot load and run it: {lines[-1]}")
        return array_file.load(os.path.join(folder, _ANSWERS))


def _python_path():
    """Returns PYTHONPATH without the working folder, which "." or an empty entry names."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    kept = [path for path in given if os.path.isabs(path) or os.path.normpath(path) != "."]
    return os.pathsep.join(map(os.path.abspath, kept))


def _add_rotated_images(inputs):
    """Appends the first image in all EXIF orientations, then upright, to inputs of image_bytes."""
    ((name, files),) = inputs.items()
    rotated, upright = rotated_images.rotate(files[0])
    return {name: np.concatenate([files, np.array([*rotated, *upright], object)])}


def predict_batch(estimator, settings, checkpoint):
    """Returns the predictions of the first batch of the split, `{name: array [batch, ...]}`."""

    def input_fn(params):
        # A TPUEstimator sets the batch size.
        params = {"batch_size": settings.prediction.batch_size, **params}
        return settings.pipeline.predict_input_fn(settings.evaluation.split)(params).take(1)

    batches = estimator.predict(input_fn, checkpoint_path=checkpoint, yield_single_examples=False)
    batches = list(batches)  # TPUEstimator may yield the batch in parts
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _estimator_runs_in_float32_on_cpu(settings):
    """Whether the Estimator computes with the arithmetic of the new process."""
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    return not (settings.use_tpu or has_gpu or settings.params.get("precision") == "bfloat16")


def _differences(predicted, given):
    """Returns abs(predicted - given), relative as `_TOLERANCE`, elementwise."""
    size = np.abs(np.nan_to_num(predicted))
    largest = np.where(size < _NONE, size, 1.0).max(axis=-1, keepdims=True, initial=1.0)
    scale = np.maximum(largest, size)
    with np.errstate(invalid="ignore"):  # inf - inf
        return np.where(predicted == given, 0.0, np.abs(predicted - given) / scale)


def _compare(predictions, answer, exactly):
    """Returns the largest difference between floats, and an error message per wrong output."""
    largest, problems = 0.0, []
    tolerance = _TOLERANCE if exactly else _LOOSE_TOLERANCE
    for name in sorted(predictions.keys() & answer.keys()):
        predicted, given = predictions[name], answer[name]
        if predicted.shape != given.shape:
            problems.append(f"{name} has the shape {given.shape}, not {predicted.shape}")
        elif np.issubdtype(predicted.dtype, np.floating):
            per_example = _differences(predicted, given).reshape(len(predicted), -1).max(axis=1)
            difference = float(np.max(per_example) if exactly else np.median(per_example))
            largest = max(largest, difference)
            if not difference <= tolerance:
                problems.append(f"{name} differs by up to {difference:.3g}")
        elif exactly and not np.array_equal(predicted, given):
            rows = (predicted != given).reshape(len(predicted), -1).any(axis=1)
            problems.append(f"{name} differs in {np.count_nonzero(rows)} of {len(rows)} examples")
    return largest, problems


def serve(path: str, folder: str) -> None:
    """Runs the requests in `folder` through the SavedModel at `path`; runs in the new process."""
    requests = array_file.load(os.path.join(folder, _REQUESTS))
    if serving.TEXT in requests:
        import tensorflow_text  # noqa: F401 registers its ops
    answers = {}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
        for name, inputs in requests.items():
            signature = meta_graph.signature_def[name]
            answers[name] = session.run(
                {key: tensor.name for key, tensor in signature.outputs.items()},
                {signature.inputs[key].name: array for key, array in inputs.items()},
            )
    array_file.save(os.path.join(folder, _ANSWERS), answers)
