"""Metrics and report of predicted numbers: R2, correlations and errors of each number."""

from __future__ import annotations

import numpy as np

from models import collapse
from models.targets import plots, ranking

_MAX_NAME = 24  # letters
_MAX_PLOTS = 16
_MEASURES = {"r2": ranking.r2, "pearson": ranking.pearson, "spearman": ranking.spearman}


class NumberReport:
    """A host metric and report of labels and `numbers`, `[n, num_numbers]`.

    `r2`, `pearson` and `spearman` are means over the numbers.
    """

    names = tuple(_MEASURES)
    directions = dict.fromkeys(names, "max")
    num_examples = 0

    def __init__(self, number_names):
        """Takes the names of the numbers."""
        self._names = number_names
        self._labels, self._numbers = [], []

    def update(self, features, labels, predictions):
        """Adds a batch; see `models.model.HostMetric`."""
        del features
        self._labels.append(labels)
        self._numbers.append(predictions["numbers"])

    def result(self):
        """Returns the means over the numbers."""
        rows = self.per_number().values()
        return {name: float(np.mean([row[name] for row in rows])) for name in self.names}

    def per_number(self):
        """Returns `{name: {"r2", "pearson", "spearman", "mean_absolute_error", ...}}`."""
        found = {}
        for name, labels, numbers in self._columns():
            errors = numbers.astype(np.float64) - labels
            found[name] = {
                **{key: measure(labels, numbers) for key, measure in _MEASURES.items()},
                "mean_absolute_error": float(np.mean(np.abs(errors))),
                "root_mean_squared_error": float(np.sqrt(np.mean(np.square(errors)))),
            }
        return found

    def write(self, evaluation):
        """Writes the table and scatter plots of the first numbers; returns `numbers`."""
        evaluation.write_file(f"numbers_{evaluation.step}.txt", self.text(evaluation))
        for place, (name, labels, numbers) in enumerate(self._columns()):
            if place < _MAX_PLOTS:
                image = plots.scatter(labels, numbers, f"{name}: label", "prediction")
                evaluation.write_file(f"scatter_{place}_{evaluation.step}.png", image)
                evaluation.write_image(f"scatter/{place}", image)
        return {"numbers": self.per_number()}

    def text(self, evaluation):
        """Returns the table."""
        del evaluation
        rows = self.per_number()
        width = max(len(name[:_MAX_NAME]) for name in ("number", *rows))
        columns = tuple(next(iter(rows.values())))
        lines = [" ".join([f"{'number':{width}}", *(f"{column:>23}" for column in columns)])]
        for name, row in rows.items():
            cells = (f"{row[column]:>23.6g}" for column in columns)
            lines.append(" ".join([f"{name[:_MAX_NAME]:{width}}", *cells]))
        return "\n".join(lines) + "\n"

    def find_collapse(self, evaluation):
        """Returns a line if predictions are equal; see `models.model.CollapseFinder`."""
        del evaluation
        lines = (collapse.of_numbers(*column) for column in self._columns())
        return next(filter(None, lines), "")

    def _columns(self):
        labels, numbers = np.concatenate(self._labels), np.concatenate(self._numbers)
        return zip(self._names, labels.T, numbers.T)
