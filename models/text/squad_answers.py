"""Answers to the questions of SQuAD from the logits of windows: the n best, on the host.

The choice and the files are those of google-research/bert's `run_squad.py`. One thing differs: the
text of an answer is the part of the context that its tokens cover, not a reconstruction.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from models.model import check_positive
from models.text import squad_metrics

# Null odds of a question without any possible answer, such as one about an empty context.
NO_ANSWER_ODDS = 1e6


def default_params() -> dict[str, Any]:
    """Returns the hyperparameters of answers."""
    return {
        "n_best_size": 20,  # first and last tokens that are combined; answers to list
        "max_answer_length": 30,  # tokens
        # SQuAD 2.0: no answer if its score exceeds that of the best answer by more.
        "null_threshold": 0.0,
    }


def check_params(params: Mapping[str, Any]) -> None:
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_positive(params, "n_best_size", "max_answer_length")


class Question(Protocol):
    """A question of a split.

    Attributes:
      id: key in the files.
      context: the text that answers it.
      answers: `(text, start)` of each correct answer; () for none.
    """

    id: str
    context: str
    answers: Sequence[tuple[str, int]]


class Spans(NamedTuple):
    """Possible answers in a window, in the order of their logits."""

    starts: np.ndarray  # code point of the context where each answer starts, int `[n]`
    ends: np.ndarray  # code point after each answer
    start_logits: np.ndarray  # of their first tokens, float64 `[n]`
    end_logits: np.ndarray  # of their last tokens
    null_logits: tuple[float, float]  # first and last logit of [CLS]: there is no answer


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to a question."""

    text: str  # "" for no answer
    nbest: list[dict[str, Any]]  # entries of nbest_predictions.json
    null_odds: float  # score of no answer less that of the best answer


def find_spans(features, predictions, params) -> list[Spans]:
    """Returns the possible answers of each window.

    They start and end with one of the `n_best_size` largest logits, in the context, have at most
    `max_answer_length` tokens, and start where the window has the most context.

    Args:
      features: `token_starts`, `token_ends` and `is_max_context`, integers `[n, length]`; a token
        that is not of the context ends at 0.
      predictions: `start_logits` and `end_logits`, float32 `[n, length]`.
      params: see `default_params`.
    """
    logits = [predictions[name].astype(np.float64) for name in ("start_logits", "end_logits")]
    best = [
        np.argsort(-values, axis=1, kind="stable")[:, : params["n_best_size"]] for values in logits
    ]
    first, last = np.broadcast_arrays(best[0][:, :, None], best[1][:, None, :])  # [n, k, k]
    rows = np.arange(len(first))[:, None, None]
    in_context = features["token_ends"] > 0
    is_first = in_context & (features["is_max_context"] > 0)
    num_tokens = last - first + 1
    is_valid = is_first[rows, first] & in_context[rows, last]
    is_valid &= (num_tokens >= 1) & (num_tokens <= params["max_answer_length"])
    found = []
    for i, valid in enumerate(is_valid):
        starts, ends = first[i][valid], last[i][valid]
        found.append(
            Spans(
                features["token_starts"][i][starts],
                features["token_ends"][i][ends],
                logits[0][i][starts],
                logits[1][i][ends],
                (float(logits[0][i, 0]), float(logits[1][i, 0])),
            )
        )
    return found


def choose(context: str, windows: Sequence[Spans], params, has_impossible: bool) -> Answer:
    """Returns the answer to a question from the spans of all its windows.

    Args:
      context: the text.
      windows: spans of each window, in order; may be empty.
      params: see `default_params`.
      has_impossible: whether "" may be the answer (SQuAD 2.0).
    """
    if not windows:
        return Answer("", [_entry("", (0.0, 0.0), 1.0)], NO_ANSWER_ODDS)
    starts, ends, start_logits, end_logits = (
        np.concatenate(parts) for parts in list(zip(*windows))[:4]
    )
    scores = start_logits + end_logits
    null = min((window.null_logits for window in windows), key=sum)
    in_order = np.argsort(-scores, kind="stable").tolist()
    found, texts = [], set()
    for i in in_order:
        if has_impossible and "" not in texts and scores[i] < sum(null):
            found.append(("", null))
            texts.add("")
        if len(found) >= params["n_best_size"]:
            break
        text = context[starts[i] : ends[i]]
        if text not in texts:
            texts.add(text)
            found.append((text, (float(start_logits[i]), float(end_logits[i]))))
    if not found or (has_impossible and "" not in texts):
        found.append(("", null if has_impossible else (0.0, 0.0)))
    totals = [sum(logits) for _, logits in found]
    weights = [math.exp(total - max(totals)) for total in totals]
    nbest = [_entry(*one, weight / sum(weights)) for one, weight in zip(found, weights)]
    if not in_order:
        return Answer("", nbest, NO_ANSWER_ODDS)
    best = in_order[0]
    odds = float(sum(null) - start_logits[best] - end_logits[best])
    is_null = has_impossible and odds > params["null_threshold"]
    return Answer("" if is_null else context[starts[best] : ends[best]], nbest, odds)


class SquadAnswers:
    """Exact match, F1 and the null threshold of a split: a host metric with files.

    `names` are those of the official script of the version of SQuAD; see `squad_metrics`.
    """

    def __init__(self, params: Mapping[str, Any], pipeline: Any):
        """Reads no question yet.

        Args:
          params: see `default_params`.
          pipeline: `questions_around(index)` returns the number of the first question of the split
            that holds a question, and all questions of that split.
        """
        self._params, self._pipeline = params, pipeline
        self._has_impossible = bool(pipeline.properties.get("has_impossible"))
        self.names = ("exact_match", "f1")
        if self._has_impossible:
            parts = [f"{part}_{name}" for part in ("HasAns", "NoAns") for name in ("exact", "f1")]
            best = [f"best_{name}{end}" for name in ("exact", "f1") for end in ("", "_thresh")]
            self.names = ("exact", "f1", *parts, *best)
        self.directions = {name: "max" for name in self.names if not name.endswith("_thresh")}
        self._windows: dict[int, list[Spans]] = {}
        self._questions: Sequence[Question] = ()
        self._answers: dict[str, Answer] = {}

    def update(self, features, labels, predictions):
        """Adds windows: `question_index`, int `[n]`, and what `find_spans` needs."""
        del labels
        spans = find_spans(features, predictions, self._params)
        for index, found in zip(features["question_index"].tolist(), spans):
            self._windows.setdefault(index, []).append(found)

    def result(self):
        """Returns the metrics over all questions of the split."""
        answers = self._choose_all()
        correct = {one.id: [text for text, _ in one.answers] for one in self._questions}
        predicted = {name: answer.text for name, answer in answers.items()}
        if not self._has_impossible:
            return squad_metrics.scores_v1(correct, predicted)
        odds = {name: answer.null_odds for name, answer in answers.items()}
        return squad_metrics.scores_v2(correct, predicted, odds)

    def files(self) -> dict[str, str]:
        """Returns `{name: JSON}`: predictions, n best and, for SQuAD 2.0, null odds."""
        answers = self._choose_all()
        contents = {
            "predictions.json": {name: answer.text for name, answer in answers.items()},
            "nbest_predictions.json": {name: answer.nbest for name, answer in answers.items()},
        }
        if self._has_impossible:
            odds = {name: answer.null_odds for name, answer in answers.items()}
            contents["null_odds.json"] = odds
        return {name: json.dumps(value, indent=4) + "\n" for name, value in contents.items()}

    def _choose_all(self):
        """Returns `{id: Answer}` of every question up to the last one seen, in order."""
        if not self._answers:
            first, questions = self._pipeline.questions_around(min(self._windows))
            # An evaluation of the first examples of a split has seen the first questions.
            self._questions = questions[: max(self._windows) - first + 1]
            for index, question in enumerate(self._questions, start=first):
                windows = self._windows.get(index, ())
                self._answers[question.id] = choose(
                    question.context, windows, self._params, self._has_impossible
                )
        return self._answers


def _entry(text, logits, probability):
    return {
        "text": text,
        "probability": probability,
        "start_logit": logits[0],
        "end_logit": logits[1],
    }
