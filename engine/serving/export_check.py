"""Checks that the signatures of a SavedModel return what the Estimator predicts.

An export can be broken although its graph was correct: a variable was not saved, or an op is not
registered in another process. So a new process loads the SavedModel, like a server, runs every
signature on real examples, and the outputs are compared with `Estimator.predict`.
"""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

from engine.serving import model_card, new_process
from engine.serving.new_process import ExportError
from input_fns.core import serving

# Maximum difference, relative to the largest number of the last axis, at least 1: float32 sums in a
# different order, as with a different batch size, differ in the sixth digit. A number near 0, such
# as a corner of a box at the edge of an image, is a difference of larger ones and has their errors.
_TOLERANCE = 1e-5
# For `Model.sensitive_predictions`: a hundred times the error of what they are computed from.
_SENSITIVE_TOLERANCE = 1e-3
# From here on numbers stand for "none", such as the score of a masked position.
_NONE = 1e5
# For the median example, if the Estimator runs on a TPU or GPU or in bfloat16, which round
# differently from the CPU that runs the SavedModel.
_LOOSE_TOLERANCE = 5e-2
_ORIENTATION = 0x0112  # EXIF tag
_MAX_SIZE = (256, 256)  # encoding a photo 28 times would take seconds


@dataclasses.dataclass(frozen=True)
class Report:
    """Result of a check."""

    examples: int = 0  # number of examples that were compared; 0 if the check was skipped
    # `{signature: largest relative difference from a prediction}`.
    differences: dict[str, float] = dataclasses.field(default_factory=dict)
    problems: tuple[str, ...] = ()  # error messages, one line each

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
    requests = serving.first_requests(
        settings.pipeline, settings.evaluation.split, count, settings.signatures
    )
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
        answers = new_process.run(path, requests)
    except ExportError as error:
        return Report(count, problems=(str(error),))
    exactly = _estimator_runs_in_float32_on_cpu(settings)
    differences, problems = {}, []
    for name, answer in answers.items():
        first = {key: values[:count] for key, values in answer.items()}
        sensitive = settings.model.sensitive_predictions
        difference, wrong = _compare(expected[name], first, exactly, sensitive)
        if name == serving.IMAGE_BYTES:
            # The outputs for rotated images and for the same images upright: two equal halves.
            halves = {key: np.split(values[count:], 2) for key, values in answer.items()}
            rotated, upright = ({key: half[i] for key, half in halves.items()} for i in range(2))
            _, differing = _compare(upright, rotated, exactly, sensitive)
            wrong += [f"for images with an EXIF orientation, {line}" for line in differing]
        differences[name] = difference
        problems += [f"signature {name}: {line}" for line in wrong]
    return Report(count, differences, tuple(problems))


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


def _compare(predictions, answer, exactly, sensitive=()):
    """Returns the largest difference between floats, and an error message per wrong output."""
    largest, problems = 0.0, []
    for name in sorted(predictions.keys() & answer.keys()):
        tolerance = _SENSITIVE_TOLERANCE if name in sensitive else _TOLERANCE
        tolerance = tolerance if exactly else _LOOSE_TOLERANCE
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


def _add_rotated_images(inputs):
    """Appends the first image in all EXIF orientations, then upright, to inputs of image_bytes."""
    ((name, files),) = inputs.items()
    rotated, upright = _rotate(files[0])
    return {name: np.concatenate([files, np.array([*rotated, *upright], object)])}


def _rotate(image_file: bytes) -> tuple[list[bytes], list[bytes]]:
    """Returns copies of an image file in the EXIF orientations 2 to 8, and their upright pixels.

    Args:
      image_file: JPEG or PNG, grayscale or color; scaled down to at most 256 x 256.

    Returns:
      JPEG and PNG files with an orientation, and a PNG file of the upright pixels for each.
    """
    with Image.open(io.BytesIO(image_file)) as image:
        image = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    image.thumbnail(_MAX_SIZE)
    rotated = [
        (_encode(image, kind, exif=_exif(orientation, byte_order)), orientation)
        for kind in ("JPEG", "PNG")
        for orientation, byte_order in zip(range(2, 9), "<>" * 4)
    ]
    files = [file for file, _ in rotated]
    upright = []
    for pixels, (_, orientation) in zip(_decode(files), rotated):
        image = Image.fromarray(np.squeeze(pixels, -1) if pixels.shape[-1] == 1 else pixels)
        image.getexif()[_ORIENTATION] = orientation
        upright.append(_encode(ImageOps.exif_transpose(image), "PNG"))
    return files, upright


def _exif(orientation, byte_order):
    exif = Image.Exif()
    exif.endian, exif[_ORIENTATION] = byte_order, orientation
    return exif


def _encode(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _decode(files):
    """Decodes like the SavedModel, without the orientation: Pillow may use another JPEG decoder."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        file_tensor = tf.compat.v1.placeholder(tf.string, [])
        decode = tf.io.decode_jpeg(file_tensor, dct_method="INTEGER_ACCURATE")
        return [session.run(decode, {file_tensor: file}) for file in files]
