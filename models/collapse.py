"""Collapsed predictions: nearly the same for all examples of a split, whatever their labels.

Host metrics and reports find them in what they have; an evaluation prints the line.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Smaller splits, and those with fewer other labels, may be right with one prediction.
_FEWEST_EXAMPLES, _FEWEST_OTHERS = 20, 5
_RARE = 0.2  # share of the examples of all other classes
_LARGEST_SPREAD = 0.01  # standard deviation of predictions, in those of the labels
_TRAIN = "Train longer, or with a smaller learning rate"


def of_classes(matrix: np.ndarray, class_names: Sequence[str]) -> str:
    """Returns a line if all predictions are one class, else "".

    Args:
      matrix: confusion matrix, int `[num_classes, num_classes]`, labels as rows.
      class_names: of the rows and columns.
    """
    total, predicted = int(matrix.sum()), np.flatnonzero(matrix.sum(axis=0))
    if len(predicted) != 1:
        return ""
    (number,) = predicted.tolist()
    others = total - int(matrix[number, number])
    if total < _FEWEST_EXAMPLES or others < _FEWEST_OTHERS:
        return ""
    line = f"all {total} predictions are '{class_names[number]}'"
    if others > _RARE * total:
        return f"{line}: the model has not learned the classes. {_TRAIN}"
    return (
        f"{line}, as are {100 - 100 * others / total:.3g} % of the labels: the model has not "
        "learned the other classes. Train longer, or weight the classes "
        "(docs/targets.md#imbalanced-classes)"
    )


def of_labels(labels: np.ndarray, predicted: np.ndarray, class_names: Sequence[str]) -> str:
    """Returns a line if no label is predicted, or the same ones for all examples, else "".

    Args:
      labels: bool `[n, num_classes]`.
      predicted: like `labels`.
      class_names: of the columns.
    """
    total, others = len(labels), int((labels != predicted).any(axis=1).sum())
    is_collapsed = total >= _FEWEST_EXAMPLES and others >= _FEWEST_OTHERS
    if not is_collapsed or (predicted != predicted[0]).any():
        return ""
    found = [name for name, is_predicted in zip(class_names, predicted[0]) if is_predicted]
    if found:
        return (
            f"all {total} predictions are the labels {', '.join(found)}: the model has not learned "
            f"the labels. {_TRAIN}"
        )
    return (
        f"no label is predicted for any of the {total} examples: all probabilities are below the "
        "threshold. --mode=eval prints the thresholds with the best F1 (docs/targets.md). "
        f"{_TRAIN}, if its AUC is about 0.5"
    )


def of_numbers(name: str, labels: np.ndarray, numbers: np.ndarray) -> str:
    """Returns a line if all predicted numbers are about one, else "".

    Args:
      name: of the number.
      labels: `[n]`.
      numbers: predictions, `[n]`.
    """
    labels, numbers = labels.astype(np.float64), numbers.astype(np.float64)
    total, spread = len(labels), numbers.std()
    if total < _FEWEST_EXAMPLES or not labels.std() or spread > _LARGEST_SPREAD * labels.std():
        return ""
    return (
        f"all {total} predictions of '{name}' are about {numbers.mean():.4g}: the model has not "
        f"learned the numbers. {_TRAIN}"
    )


def of_entities(num_wanted: int, num_predicted: int) -> str:
    """Returns a line if no entity is predicted, and a split has some, else ""."""
    if num_predicted or num_wanted < _FEWEST_EXAMPLES:
        return ""
    return (
        f"no entity is predicted, and the split has {num_wanted}: the model has not learned the "
        f"tags. {_TRAIN}"
    )
