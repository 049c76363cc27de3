"""Semantic segmentation: hyperparameters, losses, metrics, predictions and reports of its models.

Features are `{"image": uint8 [batch, height, width, channels]}`, labels
`{"mask": uint8 [batch, height, width]}` with the class of each pixel or `IGNORED_CLASS`, and
outputs `{"logits": float32 [batch, height, width, num_classes]}`.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import IGNORED_CLASS
from common.params import Floats, Strings
from models.layers import dense, device
from models.layers.resize import resize_bilinear
from models.model import Loss, Model, ModelError
from models.segmentation import iou, overlay

_LOSSES = ("cross_entropy", "focal", "dice")
# 1 - p of the focal loss is at least this, so that its power has a finite gradient at p = 1.
_SMALLEST = 1e-7


def default_params():
    """Returns the hyperparameters of every segmentation model."""
    return {
        "num_classes": 2,  # set by the data set
        "losses": Strings(["cross_entropy"]),  # terms: cross_entropy, focal, dice; or dice:0.5
        "focal_gamma": 2.0,  # of the term focal
        "class_weights": Floats(),  # of each class in the loss; [] for equal weights
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    num_classes, class_weights = params["num_classes"], params["class_weights"]
    if not 2 <= num_classes <= IGNORED_CLASS:
        raise ModelError(
            f"num_classes={num_classes} must be from 2 to {IGNORED_CLASS}. Objects on a "
            "background are two classes"
        )
    if class_weights and len(class_weights) != num_classes:
        raise ModelError(
            f"class_weights has {len(class_weights)} values, but there are {num_classes} classes"
        )
    is_valid = all(0 <= weight < float("inf") for weight in class_weights)
    if class_weights and not (is_valid and any(class_weights)):
        raise ModelError(
            f"class_weights={class_weights} must be numbers of at least 0, and not all 0"
        )
    if not 0 <= params["focal_gamma"] <= 10:
        raise ModelError(f"focal_gamma={params['focal_gamma']} must be from 0 to 10")
    loss_scales(params)


def unused_params(params):
    """Returns the hyperparameters of terms that are not in the loss; see `Model`."""
    return {} if "focal" in loss_scales(params) else {"focal_gamma": "losses"}


def loss_scales(params):
    """Returns `{term: scale}` of the hyperparameter `losses`.

    Raises:
      ModelError: a term is unknown or repeated, or its scale is not a positive number.
    """
    scales = {}
    for term in params["losses"]:
        name, _, text = term.partition(":")
        try:
            scale = float(text or 1)
        except ValueError:
            scale = 0.0
        if name not in _LOSSES or name in scales or not 0 < scale < float("inf"):
            raise ModelError(
                f"losses={params['losses']}: '{term}' is not valid. Use each of "
                f"{', '.join(_LOSSES)} at most once, with a scale above 0, such as dice:0.5"
            )
        scales[name] = scale
    if not scales:
        raise ModelError(f"losses=[] has no term. Use some of {', '.join(_LOSSES)}")
    return scales


def classify(x, params, height, width):
    """Returns the logits of every pixel: a 1x1 convolution, `logits`, of a map, resized.

    Args:
      x: `[batch, map_height, map_width, channels]`.
      params: see `default_params`.
      height: of the image.
      width: of the image.

    Returns:
      float32 `[batch, height, width, num_classes]`.
    """
    shape = [1, 1, x.shape.as_list()[-1], params["num_classes"]]
    kernel, bias = dense.kernel_and_bias("logits", shape, x.dtype)
    if device.is_tpu():  # in the order of _of_pixels, where lanes hold pixels
        logits = tf.einsum("bhwc,cn->bnhw", x, kernel[0, 0]) + bias[:, tf.newaxis, tf.newaxis]
        logits = tf.transpose(tf.cast(logits, tf.float32), [0, 2, 3, 1])
    else:
        logits = tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "VALID"), bias)
        logits = tf.cast(logits, tf.float32)
    return resize_bilinear(logits, height, width)


def model_losses(features, labels, outputs, params):
    """The terms of the hyperparameter `losses`: cross-entropy, focal loss, Dice loss.

    Weights are a function of the labels only, so the loss of a global batch does not depend on how
    images with different numbers of ignored pixels are distributed over replicas.
    """
    del features
    functions = {
        "cross_entropy": cross_entropy,
        "focal": lambda *args: cross_entropy(*args, params["focal_gamma"]),
        "dice": dice,
    }
    terms = {}
    for name, scale in loss_scales(params).items():
        with tf.name_scope(name):
            pair = functions[name](labels["mask"], outputs["logits"], params["class_weights"])
            terms[name] = Loss(*pair, scale)
    return terms


def cross_entropy(labels, logits, class_weights=(), focal_gamma=0.0):
    """Softmax cross-entropy or focal loss, the weighted mean over the labeled pixels of an image.

    The focal loss of a pixel with the probability p of its class is `(1 - p) ** gamma * -log(p)`
    (Lin et al. 2017, arXiv:1708.02002).

    Args:
      labels: uint8 `[batch, height, width]`, the class of each pixel, or `IGNORED_CLASS`.
      logits: float32 `[batch, height, width, num_classes]`.
      class_weights: weight of the pixels of each class; () for 1.
      focal_gamma: gamma of the focal loss; 0 is cross-entropy.

    Returns:
      (values, weights), float32 `[batch]`. The weights are the sums of the weights of the labeled
      pixels; an image without labeled pixels has a value and a weight of 0.
    """
    is_labeled = tf.not_equal(labels, IGNORED_CLASS)
    classes = tf.where(is_labeled, tf.cast(labels, tf.int32), 0)
    values = _of_pixels(classes, logits)
    if focal_gamma:
        values *= tf.maximum(-tf.math.expm1(-values), _SMALLEST) ** focal_gamma
    weights = tf.cast(is_labeled, tf.float32)
    if class_weights:
        table = tf.constant(class_weights, tf.float32)
        # Not a gather of each pixel, which is slow on a TPU.
        weights *= tf.reduce_sum(tf.one_hot(classes, len(class_weights)) * table, -1)
    total, weight = tf.reduce_sum(values * weights, [1, 2]), tf.reduce_sum(weights, [1, 2])
    return tf.math.divide_no_nan(total, weight), weight


def _of_pixels(classes, logits):
    """Returns the softmax cross-entropy of each pixel, float32 `[batch, height, width]`."""
    # Reductions over a few classes are slow in the last dimension: a CPU has no vectors for them,
    # and most lanes of a TPU would be idle.
    num_classes = logits.shape.as_list()[-1]
    is_tpu = device.is_tpu()
    order, axis = ([0, 3, 1, 2], 1) if is_tpu else ([3, 0, 1, 2], 0)
    logits = tf.transpose(logits, order)
    checks = []  # no assertion stops a TPU, but a loss of NaN does
    if not is_tpu:
        largest = tf.reduce_max(classes)
        checks.append(tf.debugging.Assert(largest < num_classes, ["not a class:", largest]))
    with tf.control_dependencies(checks):
        targets = tf.one_hot(classes, num_classes, axis=axis)
    logits -= tf.stop_gradient(tf.reduce_max(logits, axis, keepdims=True))
    of_class = tf.reduce_sum(logits * targets, axis)
    losses = tf.math.log(tf.reduce_sum(tf.exp(logits), axis)) - of_class
    return tf.where(classes < num_classes, losses, float("nan")) if is_tpu else losses


def dice(labels, logits, class_weights=()):
    """Soft Dice loss (Milletari et al. 2016, arXiv:1606.04797) of the classes of an image.

    The loss of a class is `1 - 2 * sum(p * t) / (sum(p) + sum(t))` over the labeled pixels of the
    image, where p is the probability of the class and t is 1 for its pixels. Classes without
    pixels in the image are left out: their loss would be 1 for any small p.

    Args:
      labels: uint8 `[batch, height, width]`, the class of each pixel, or `IGNORED_CLASS`.
      logits: float32 `[batch, height, width, num_classes]`.
      class_weights: weight of each class; () for 1.

    Returns:
      (values, weights), float32 `[batch]`. The weights are the sums of the weights of the classes
      that the image has.
    """
    num_classes = logits.shape.as_list()[-1]
    # All zeros for IGNORED_CLASS.
    targets = tf.one_hot(tf.cast(labels, tf.int32), num_classes)
    is_labeled = tf.cast(tf.not_equal(labels, IGNORED_CLASS), tf.float32)
    probabilities = tf.nn.softmax(logits) * is_labeled[..., tf.newaxis]
    sizes = tf.reduce_sum(targets, [1, 2])
    shared = tf.reduce_sum(probabilities * targets, [1, 2])
    sums = tf.reduce_sum(probabilities, [1, 2]) + sizes
    values = 1 - 2 * tf.math.divide_no_nan(shared, sums)  # [batch, num_classes]
    weights = tf.cast(sizes > 0, tf.float32)
    if class_weights:
        weights *= tf.constant(class_weights, tf.float32)
    weight = tf.reduce_sum(weights, -1)
    return tf.math.divide_no_nan(tf.reduce_sum(values * weights, -1), weight), weight


def eval_outputs(features, labels, outputs, params):
    """Returns the most probable class of each pixel, uint8 `[batch, height, width]`."""
    del features, labels, params
    return {"classes": tf.cast(_classes(outputs), tf.uint8)}


def metrics(labels, outputs, weights, params):
    """Streaming `mean_iou`, `pixel_accuracy`, and `confusion_matrix` for its report."""
    return iou.streaming(labels["mask"], outputs["classes"], weights, params["num_classes"])


def predictions(features, outputs, params):
    """Returns `{"classes": int32 [batch, height, width]}`, the most probable classes."""
    del features, params
    return {"classes": _classes(outputs)}


def reports(params, pipeline):
    """IoU per class, and images with their masks: the first ones and those with the lowest IoU."""
    names = pipeline.data.all_class_names or tuple(map(str, range(params["num_classes"])))
    return [iou.IoUReport(names), overlay.Overlays(names)]


def model(name, default_params, inference, check_params, unused_params=unused_params):
    """Returns the Model of a segmentation network."""
    return Model(
        name=name,
        default_params=default_params,
        inference=inference,
        losses=model_losses,
        predictions=predictions,
        metrics=metrics,
        metric_directions={"mean_iou": "max", "pixel_accuracy": "max"},
        eval_outputs=eval_outputs,
        reports=reports,
        check_params=check_params,
        unused_params=unused_params,
        features=("image",),
        labels=("mask",),
        dataset_properties=("num_classes",),
    )


def _classes(outputs):
    return tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)
