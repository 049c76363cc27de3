"""Quality of generated images: Fréchet distance, precision and recall, accuracy of a classifier.

All are computed from the features of a classifier that the hyperparameter `feature_network` names,
over all images of a split and as many generated images of the same classes.
"""

from __future__ import annotations

import numpy as np

from models.generation import feature_network, frechet, precision_recall
from models.model import ModelError, check_positive

_DIRECTIONS = {"frechet_distance": "min", "precision": "max", "recall": "max"}
_ACCURACY = {"class_accuracy": "max"}


def default_params():
    """Returns the hyperparameters of `host_metrics`."""
    return {
        "feature_network": "",  # see `feature_network.load`; "": no metrics of the images
        "neighbors": 3,  # k of precision and recall
    }


def check_params(params):
    """Raises `ModelError` for a value out of range, or a path without a network."""
    check_positive(params, "neighbors")
    if params["feature_network"]:
        feature_network.check(params["feature_network"])


def unused_params(params):
    """Returns the hyperparameters without effect; see `Model`."""
    return {} if params["feature_network"] else {"neighbors": "feature_network"}


def host_metrics(params, pipeline):
    """Returns the metrics; see `Model`."""
    if not params["feature_network"]:
        return []
    num_classes = pipeline.data.num_classes if "class_id" in pipeline.features else 0
    has_classes = feature_network.num_classes(params["feature_network"]) == num_classes > 0
    return [SampleQuality(params, has_classes)]


class SampleQuality:
    """Compares generated images with those of a split; a `models.model.HostMetric`."""

    def __init__(self, params, has_classes):
        """Takes all hyperparameters; and whether generator and classifier have the same classes.

        Only then there is `class_accuracy`, the fraction of generated images of which the
        classifier names the class.
        """
        self._path, self._neighbors = params["feature_network"], params["neighbors"]
        self.directions = {**_DIRECTIONS, **(_ACCURACY if has_classes else {})}
        self.names = tuple(self.directions)
        self._real, self._generated, self._hits = [], [], []

    def update(self, features, labels, predictions):
        """Adds a batch of real and generated images; see `HostMetric`."""
        network = feature_network.load(self._path)
        self._real.append(network(features["image"])[0])
        found, classes = network(to_pixels(predictions["image"]))
        self._generated.append(found)
        if "class_accuracy" in self.names:
            self._hits.append(classes == labels)

    def result(self):
        """Returns the metrics of all images."""
        real, generated = np.concatenate(self._real), np.concatenate(self._generated)
        if len(real) <= self._neighbors:
            raise ModelError(
                f"neighbors={self._neighbors} needs more than the {len(real)} images of the split"
            )
        precision, recall = precision_recall.precision_and_recall(real, generated, self._neighbors)
        found = {
            "frechet_distance": frechet.distance(*map(frechet.moments, (real, generated))),
            "precision": precision,
            "recall": recall,
        }
        if self._hits:
            found["class_accuracy"] = float(np.concatenate(self._hits).mean())
        return found


def to_pixels(images: np.ndarray) -> np.ndarray:
    """Returns images in [0, 1] as uint8."""
    return np.round(255 * np.clip(images, 0, 1)).astype(np.uint8)
