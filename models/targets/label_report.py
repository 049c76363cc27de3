"""Metrics and report of several labels: average precision, AUC, F1 and best threshold per class."""

from __future__ import annotations

import numpy as np

from models import collapse
from models.targets import plots, ranking

_MAX_LISTED = 100  # classes of a table in the result file
_MAX_NAME = 24  # letters


class LabelReport:
    """A host metric and report of labels and `probabilities`, `[n, num_classes]`.

    `mean_average_precision` and `macro_auc` are means over the classes that have a positive, and
    for AUC also a negative, example.
    """

    names = ("mean_average_precision", "macro_auc")
    directions = dict.fromkeys(names, "max")
    num_examples = 0

    def __init__(self, class_names, thresholds):
        """Takes the names of the classes, and the thresholds of the predictions, one or as many."""
        self._class_names, self._thresholds = class_names, thresholds
        self._labels, self._probabilities, self._per_class = [], [], None

    def update(self, features, labels, predictions):
        """Adds a batch; see `models.model.HostMetric`."""
        del features
        self._per_class = None
        self._labels.append(labels >= 0.5)
        self._probabilities.append(predictions["probabilities"])

    def result(self):
        """Returns the means over the classes; 0 without any."""
        rows = self.per_class().values()
        return {
            name: _mean([row[key] for row in rows if row[key] is not None])
            for name, key in zip(self.names, ("average_precision", "auc"))
        }

    def per_class(self):
        """Returns `{class name: {"average_precision", "auc", "precision", "recall", ...}}`.

        `threshold` is the one of the predictions, `best_threshold` has the highest F1 of this
        split. Values that do not exist, as of a class without a positive example, are None.
        """
        if self._per_class is None:  # sorts the scores of each class
            self._per_class = self._measure(*self._arrays())
        return self._per_class

    def _measure(self, labels, probabilities):
        thresholds = np.broadcast_to(np.float32(self._thresholds), probabilities.shape[1:])
        found = {}
        for number, name in enumerate(self._class_names):
            truth, scores = labels[:, number], probabilities[:, number]
            predicted = scores >= thresholds[number]
            both, positives = int((truth & predicted).sum()), int(truth.sum())
            curve = ranking.curve(truth, scores) if positives else None
            has_both = 0 < positives < len(truth)
            found[name] = {
                "average_precision": curve and ranking.average_precision(curve),
                "auc": ranking.area_under_roc(truth, scores) if has_both else None,
                "precision": _ratio(both, int(predicted.sum())),
                "recall": _ratio(both, positives),
                "f1": _ratio(2 * both, positives + int(predicted.sum())),
                "examples": positives,
                "threshold": float(thresholds[number]),
                "best_threshold": curve and ranking.best_threshold(curve),
            }
        return found

    def write(self, evaluation):
        """Writes the table and the precision-recall curves; returns `classes`."""
        labels, probabilities = self._arrays()
        drawn = np.flatnonzero(labels.any(axis=0))[: plots.MAX_LINES]
        curves = {n: ranking.curve(labels[:, n], probabilities[:, n]) for n in drawn.tolist()}
        lines = {self._class_names[n]: (c.recall, c.precision) for n, c in curves.items()}
        image = plots.lines(lines, "recall", "precision")
        evaluation.write_file(f"classes_{evaluation.step}.txt", self.text(evaluation))
        evaluation.write_file(f"precision_recall_{evaluation.step}.png", image)
        evaluation.write_image("precision_recall/classes", image)
        return {"classes": self.per_class()} if len(self._class_names) <= _MAX_LISTED else {}

    def text(self, evaluation):
        """Returns the table, and the flag that sets the best thresholds."""
        del evaluation
        rows = self.per_class()
        width = max(len(name[:_MAX_NAME]) for name in ("label", *rows))
        columns = ("average_precision", "auc", "precision", "recall", "f1", "best_threshold")
        lines = [" ".join([f"{'label':{width}}", *(f"{c:>17}" for c in columns), "examples"])]
        for name, row in rows.items():
            cells = (f"{_decimal(row[column]):>17}" for column in columns)
            lines.append(" ".join([f"{name[:_MAX_NAME]:{width}}", *cells, f"{row['examples']:8}"]))
        best = [row["best_threshold"] or row["threshold"] for row in rows.values()]
        flag = ",".join(f"{value:.6g}" for value in best)
        lines += ["", f"thresholds with the best F1 of each class: --params=threshold=[{flag}]"]
        return "\n".join(lines) + "\n"

    def find_collapse(self, evaluation):
        """Returns a line if all predictions are equal; see `models.model.CollapseFinder`."""
        del evaluation
        labels, probabilities = self._arrays()
        return collapse.of_labels(
            labels, probabilities >= np.float32(self._thresholds), self._class_names
        )

    def _arrays(self):
        return np.concatenate(self._labels), np.concatenate(self._probabilities)


def _mean(values):
    return float(np.mean(values)) if values else 0.0


def _ratio(part, whole):
    return part / whole if whole else None


def _decimal(value):
    return "-" if value is None else f"{value:.4f}"
