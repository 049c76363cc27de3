"""What a model predicts for an example, a property of the data set: the hyperparameter `target`.

    classification  one class: `models.classification`
    soft_labels     the same, trained with probabilities of the classes
    multilabel      any number of classes: `multilabel`
    regression      one or more numbers: `regression`

Each is a module with LOSSES, METRIC_DIRECTIONS, functions of `Model` (losses, metrics, predictions,
mean_outputs, host_metrics, reports) and `outputs`, which completes those of inference. A network
has "logits", `[batch, num_classes]`, for any of them; its `Model` takes the functions below.
"""

from __future__ import annotations

from common.params import Floats
from models import classification
from models.model import ModelError, check_not_negative, check_positive
from models.targets import multilabel, regression

_TARGETS = {
    "classification": classification,
    "soft_labels": classification,
    "multilabel": multilabel,
    "regression": regression,
}
DEFAULT_LOSS = "default"
# Hyperparameters that one loss reads, and those of targets.
_OF_LOSS = {"focal_gamma": "focal", "focal_alpha": "focal", "huber_delta": "huber"}
_OF_TARGETS = {
    "label_smoothing": ("classification", "soft_labels", "multilabel"),
    "class_weights": ("classification", "soft_labels", "multilabel"),
    "threshold": ("multilabel",),
}
PROPERTIES = ("target", "target_mean", "target_scale")  # of a data set; a custom one may lack them


def default_params():
    """Returns the hyperparameters of losses and predictions, besides `num_classes`."""
    return {
        **classification.default_params(),
        "target": "classification",  # set by the data set
        # Means and standard deviations of the numbers of a regression, set by the data set.
        "target_mean": Floats(),
        "target_scale": Floats(),
        # sigmoid_cross_entropy or focal (multilabel), squared_error or huber (regression);
        # cross_entropy of one class. default: the first of these.
        "loss": DEFAULT_LOSS,
        "focal_gamma": 2.0,  # exponent of the probability of the wrong answer
        "focal_alpha": 0.25,  # weight of labels that are 1; 1 - focal_alpha of those that are 0
        "huber_delta": 1.0,  # where the loss becomes linear, in standard deviations of the number
        "threshold": Floats([0.5]),  # probability from which a label is 1: one, or one per class
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    classification.check_params(params)
    target = params["target"]
    if target not in _TARGETS:
        raise ModelError(f"target={target} must be one of {', '.join(_TARGETS)}")
    valid = (DEFAULT_LOSS, *_TARGETS[target].LOSSES)
    if params["loss"] not in valid:
        raise ModelError(f"loss={params['loss']} must be one of {', '.join(valid)} for {target}")
    if not 0 < params["focal_alpha"] < 1:
        raise ModelError(f"focal_alpha={params['focal_alpha']} must be in (0, 1)")
    check_not_negative(params, "focal_gamma")
    check_positive(params, "huber_delta")
    threshold, count = params["threshold"], params["num_classes"]
    if len(threshold) not in (1, count) or not all(0 < value < 1 for value in threshold):
        raise ModelError(f"threshold={threshold} must be one number in (0, 1), or {count} of them")
    for name in ("target_mean", "target_scale"):
        if len(params[name]) not in (0, count):
            raise ModelError(f"{name}={params[name]} must have {count} numbers")
    check_positive(params, "target_scale")


def unused_params(params):
    """Returns the hyperparameters that the loss or the target does not read; see `Model`."""
    of_loss = {name: "loss" for name, loss in _OF_LOSS.items() if params["loss"] != loss}
    of_target = {
        name: "target" for name, targets in _OF_TARGETS.items() if params["target"] not in targets
    }
    if params["loss"] == "focal":
        of_target["label_smoothing"] = "loss"
    return {**of_loss, **of_target}


def find(params):
    """Returns the module of the target of a run; a model without `target` has classes."""
    return _TARGETS[params.get("target", "classification")]


def inference(network):
    """Returns the inference function of a network; that of a regression adds its numbers.

    Args:
      network: `(features, params, training) -> {"logits": [batch, num_classes], ...}`.
    """

    def infer(features, params, training):
        return find(params).outputs(network(features, params, training), params)

    return infer


def dataset_variables(params):
    """Returns the variables that start with values of the data set; see `Model`."""
    return regression.dataset_variables(params) if find(params) is regression else []


def losses(features, labels, outputs, params):
    """Returns the loss of the target."""
    return find(params).losses(features, labels, outputs, params)


def metrics(labels, outputs, weights, params):
    """Returns the streaming metrics of the target."""
    return find(params).metrics(labels, outputs, weights, params)


def metric_directions(params):
    """Returns whether lower or higher is better of each of `metrics`; see `Model`."""
    return find(params).METRIC_DIRECTIONS


def predictions(features, outputs, params):
    """Returns the predictions of the target."""
    return find(params).predictions(features, outputs, params)


def mean_outputs(outputs, params):
    """Returns the outputs of the mean prediction of several networks."""
    return find(params).mean_outputs(outputs, params)


def host_metrics(params, pipeline):
    """Returns the metrics of a whole split, which are reports too."""
    return find(params).host_metrics(params, pipeline)


def reports(params, pipeline):
    """Returns the reports of the streaming metrics."""
    return find(params).reports(params, pipeline)
