"""How wrong a prediction is, and what it says beside the label, for each form of labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from input_fns.pipeline import Pipeline

_MOST_NAMES, _MOST_CHARACTERS = 4, 300
_WRONG = "{wrong} of the first {count} predictions are wrong"
_ERRORS = "the largest errors of the first {count} predictions"


@dataclasses.dataclass(frozen=True)
class Mistake:
    """The difference of a prediction and its label.

    Attributes:
      size: 0 for an exact prediction; the largest ones are shown first.
      is_wrong: whether it counts as wrong; False for numbers, which are never exact.
      caption: prediction and label, for people.
    """

    size: float
    is_wrong: bool
    caption: str


def judge_of(
    pipeline: Pipeline, row: Mapping[str, Any]
) -> tuple[Callable[[Any, Mapping], Mistake], str] | None:
    """Returns (function of a label and a line of predictions, text about what it is).

    The text has places for `wrong` and `count`, and tells the order of what is shown. None if no
    predictions like `row`, one of the lines, are judged.
    """
    data = pipeline.data
    if data.target:
        key, make = _OF_TARGETS[data.target.kind]
        return make(data.target) if key in row else None
    if data.num_classes and not data.labels and "class_names" in row:
        return _of_class(data.class_names)
    if data.labels == ("tokens",) and "text" in row and hasattr(pipeline, "to_text"):
        return _of_transcript(pipeline.to_text)
    if data.labels == ("score",) and "scores" in row:
        return _of_score, _ERRORS
    return None


def _of_class(class_names):
    def judge(label, row):
        name, score = row["class_names"], max(row.get("probabilities", []), default=0)
        if name == class_names[label]:
            return Mistake(0, False, f"{name} {score:.2f}")
        return Mistake(score, True, f"{name} {score:.2f}, label {class_names[label]}")

    return judge, f"{_WRONG}; the surest ones first"


def _of_labels(target):
    def named(values):
        return _listed([name for name, value in zip(target.names, values) if value]) or "none"

    def judge(label, row):
        is_wrong = row["labels"] != label.astype(int).tolist()
        size = np.abs(np.subtract(row["probabilities"], label)).max()
        return Mistake(size, is_wrong, f"{named(row['labels'])}; labels {named(label)}")

    return judge, f"{_WRONG}; those with the surest wrong label first"


def _of_probabilities(target):
    def judge(label, row):
        size = np.abs(np.subtract(row["probabilities"], label)).sum() / 2
        found, wanted = int(np.argmax(row["probabilities"])), int(np.argmax(label))
        caption = f"{target.names[found]} {row['probabilities'][found]:.2f}"
        caption += f", label {target.names[wanted]} {label[wanted]:.2f}"
        return Mistake(size, found != wanted, caption)

    return judge, f"{_WRONG}; those with the most wrong probabilities first"


def _of_numbers(target):
    scale = np.array(target.scale or 1.0)

    def judge(label, row):
        pairs = zip(target.names, row["numbers"], label.tolist())
        texts = [f"{name} {found:.4g}, label {wanted:.4g}" for name, found, wanted in pairs]
        size = np.abs(np.subtract(row["numbers"], label) / scale).max()
        return Mistake(size, False, _listed(texts))

    return judge, _ERRORS


def _of_score(label, row):
    score, wanted = row["scores"], float(label["score"])
    return Mistake(abs(score - wanted), False, f"{score:.4g}, label {wanted:.4g}")


def _of_transcript(to_text):
    from models.speech.conformer_ctc import edit_distance

    def judge(label, row):
        (wanted,), found = to_text(label["tokens"][np.newaxis]), row["text"]
        size = edit_distance(wanted, found) / max(1, len(wanted))
        shown = found[:_MOST_CHARACTERS], wanted[:_MOST_CHARACTERS]
        return Mistake(size, found != wanted, "{}; text {}".format(*shown))

    return judge, f"{_WRONG}; those with the most wrong characters first"


def _listed(texts):
    more = f" and {len(texts) - _MOST_NAMES} more" if len(texts) > _MOST_NAMES else ""
    return "; ".join(texts[:_MOST_NAMES]) + more


# Kind of target -> the column of predictions that it needs, and its judge.
_OF_TARGETS = {
    "multilabel": ("labels", _of_labels),
    "soft_labels": ("probabilities", _of_probabilities),
    "regression": ("numbers", _of_numbers),
}
