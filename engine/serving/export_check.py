"""Whether a SavedModel answers what the Estimator predicts.

A SavedModel can be broken in ways that the graph it was made from hides: a variable that was not
saved, an operation that another process does not know. So a fresh process loads it, as a server
would, and its answers to real examples, by each signature, are compared with the predictions.
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
from input_fns import serving

# Relative to a number, or to 1 if it is smaller: float32 sums in another order, as in a batch of
# another size, differ in the sixth digit.
_TOLERANCE = 1e-5
# For the median example: a TPU, a GPU and bfloat16 round in their own way.
_LOOSE_TOLERANCE = 5e-2
_REQUESTS, _ANSWERS = "requests.npz", "answers.npz"
# `python -m` and `python -c` put the working folder first on the path: a numpy.py there would run.
_PROGRAM = (
    "import sys; sys.path = [sys.argv[1], *filter(None, sys.path)]; "
    "from engine.serving import export_check; export_check.serve(*sys.argv[2:])"
)


class ExportError(RunError):
    """A SavedModel answers other than the Estimator predicts."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What a check found.

    Attributes:
      examples: that were compared; 0 if nothing was.
      differences: the largest to a predicted number, by signature.
      problems: what is wrong, a line each.
    """

    examples: int = 0
    differences: dict[str, float] = dataclasses.field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def raise_problems(self, path: str) -> None:
        """Raises `ExportError` if there are any."""
        if self.problems:
            raise ExportError(
                f"{path} does not answer as the Estimator predicts: {'; '.join(self.problems)}. It "
                "is kept under this name, which no server loads; --noexport_check exports unchecked"
            )


def check(estimator, settings, checkpoint: str, path: str) -> Report:
    """Compares the SavedModel at `path` with a batch of predictions of the Estimator."""
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
        requests[serving.IMAGE_BYTES] = _with_turned_pictures(requests[serving.IMAGE_BYTES])
    try:
        answers = ask(path, requests)
    except ExportError as error:
        return Report(count, problems=(str(error),))
    exactly = _is_computed_alike(settings)
    differences, problems = {}, []
    for name, answer in answers.items():
        of_examples = {key: values[:count] for key, values in answer.items()}
        difference, wrong = _compare(expected[name], of_examples, exactly)
        if name == serving.IMAGE_BYTES:
            turned, upright = _of_turned_pictures(answer, count)
            _, differing = _compare(upright, turned, exactly)
            wrong += [f"of pictures with an EXIF orientation {line}" for line in differing]
        differences[name] = difference
        problems += [f"signature {name}: {line}" for line in wrong]
    return Report(count, differences, tuple(problems))


def ask(path: str, requests: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """Returns the answers of a SavedModel in a fresh process, by signature.

    Raises:
      ExportError: it cannot be loaded, or fails.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = {
        **os.environ,
        "PYTHONPATH": _python_path(),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # The device, if there is one, is this process's.
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
            raise ExportError(f"a fresh process could not serve it: {lines[-1]}")
        return array_file.load(os.path.join(folder, _ANSWERS))


def _python_path():
    """Returns PYTHONPATH without the working folder, which "." or an empty entry names."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    kept = [path for path in given if os.path.isabs(path) or os.path.normpath(path) != "."]
    return os.pathsep.join(map(os.path.abspath, kept))


def _with_turned_pictures(inputs):
    """Returns the inputs of image_bytes with more files: turned ones, then the same upright."""
    ((name, files),) = inputs.items()
    more = [file for group in rotated_images.rotate(files[0]) for file in group]
    return {name: np.concatenate([files, np.array(more, object)])}


def _of_turned_pictures(answer, count):
    """Returns the answers to turned pictures and to the same upright, behind those to examples."""
    pairs = {name: np.split(values[count:], 2) for name, values in answer.items()}
    return tuple({name: pair[i] for name, pair in pairs.items()} for i in range(2))


def predict_batch(estimator, settings, checkpoint):
    """Returns the predictions of the first batch of the split."""

    def input_fn(params):
        # A TPUEstimator says the batch size itself.
        params = {"batch_size": settings.prediction.batch_size, **params}
        return settings.pipeline.predict_input_fn(settings.evaluation.split)(params).take(1)

    batches = estimator.predict(input_fn, checkpoint_path=checkpoint, yield_single_examples=False)
    batches = list(batches)  # one, but that a TPU's last batch may come in pieces
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _is_computed_alike(settings):
    """Whether the fresh process, which has a CPU alone, computes as the Estimator does."""
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    return not (settings.use_tpu or has_gpu or settings.params.get("precision") == "bfloat16")


def _differences(predicted, given):
    """Returns the differences of floats, those of numbers above 1 relative to the number."""
    scale = np.maximum(1.0, np.abs(np.nan_to_num(predicted)))
    with np.errstate(invalid="ignore"):  # infinity less infinity; equal numbers differ by 0
        return np.where(predicted == given, 0.0, np.abs(predicted - given) / scale)


def _compare(predictions, answer, exactly):
    """Returns the largest difference between floats, and a line for each output that is wrong."""
    largest, problems = 0.0, []
    tolerance = _TOLERANCE if exactly else _LOOSE_TOLERANCE
    for name in sorted(predictions.keys() & answer.keys()):
        predicted, given = predictions[name], answer[name]
        if predicted.shape != given.shape:
            problems.append(f"{name} has the shape {given.shape}, not {predicted.shape}")
        elif np.issubdtype(predicted.dtype, np.floating):
            of_example = _differences(predicted, given).reshape(len(predicted), -1).max(axis=1)
            difference = float(np.max(of_example) if exactly else np.median(of_example))
            largest = max(largest, difference)
            if not difference <= tolerance:
                problems.append(f"{name} differs by up to {difference:.3g}")
        elif exactly and not np.array_equal(predicted, given):
            rows = (predicted != given).reshape(len(predicted), -1).any(axis=1)
            problems.append(f"{name} differs in {np.count_nonzero(rows)} of {len(rows)} examples")
    return largest, problems


def serve(path: str, folder: str) -> None:
    """Answers the requests in `folder` by the SavedModel at `path`: the fresh process."""
    requests = array_file.load(os.path.join(folder, _REQUESTS))
    if serving.TEXT in requests:
        import tensorflow_text  # noqa: F401 the operations of the graph
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
