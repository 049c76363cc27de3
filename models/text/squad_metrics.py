"""Exact match and F1 of answers to the questions of SQuAD 1.1 and 2.0, and the null threshold.

The numbers are those of the official scripts, to the last bit: evaluate-v1.1.py (Rajpurkar et al.
2016, arXiv:1606.05250) and evaluate-v2.0.py (Rajpurkar et al. 2018, arXiv:1806.03822). The two
differ: 1.1 scores a missing prediction 0 and has no answer without words, 2.0 skips a missing
prediction and gives an empty one full score if the question has no answer.
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Mapping, Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

Answers = Mapping[str, Sequence[str]]  # {id of a question: correct answers; () without one}


def normalize(text: str) -> str:
    """Returns the text in lower case, without ASCII punctuation, articles and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def f1(prediction: str, answer: str) -> float:
    """Returns the F1 of the words of two normalized texts; 0 if they share none."""
    predicted, correct = prediction.split(), answer.split()
    common = sum((collections.Counter(predicted) & collections.Counter(correct)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(correct)
    return (2 * precision * recall) / (precision + recall)


def scores_v1(answers: Answers, predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns `exact_match` and `f1` in percent, as evaluate-v1.1.py does.

    Args:
      answers: the correct answers of every question, at least one each.
      predictions: `{id: text}`; a question without a prediction scores 0.
    """
    exact_sum, f1_sum = 0, 0.0
    for name, texts in answers.items():
        if name in predictions:
            prediction = normalize(predictions[name])
            correct = [normalize(text) for text in texts]
            exact_sum += prediction in correct
            f1_sum += max((f1(prediction, text) for text in correct), default=0.0)
    return {
        "exact_match": 100.0 * exact_sum / len(answers),
        "f1": 100.0 * f1_sum / len(answers),
    }


def scores_v2(
    answers: Answers, predictions: Mapping[str, str], null_odds: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Returns the metrics of evaluate-v2.0.py, in percent, under its names.

    Args:
      answers: the correct answers of every question; () for one without an answer.
      predictions: `{id: text}`, "" for no answer. Questions without a prediction are skipped.
      null_odds: `{id: score}`, larger if an answer is less likely, to find the best thresholds.

    Returns:
      `exact` and `f1`; `HasAns_exact`, `HasAns_f1`, `NoAns_exact` and `NoAns_f1` over the questions
      with and without an answer, if there are any; with `null_odds` also `best_exact`, `best_f1`
      and their thresholds, `best_exact_thresh` and `best_f1_thresh`.
    """
    exact, overlap = {}, {}
    for name, texts in answers.items():
        if name not in predictions:
            continue
        correct = [text for text in map(normalize, texts) if text] or [""]
        prediction = normalize(predictions[name])
        exact[name] = int(prediction in correct)
        # Without words on one side, F1 is 1 if both have none.
        overlap[name] = max(
            f1(prediction, text) if prediction and text else int(prediction == text)
            for text in correct
        )
    found = _means(exact, overlap, list(exact), "")
    for prefix, has_answer in (("HasAns_", True), ("NoAns_", False)):
        chosen = [name for name in exact if bool(answers[name]) == has_answer]
        found.update(_means(exact, overlap, chosen, prefix) if chosen else {})
    if null_odds is not None:
        for name, scores in (("exact", exact), ("f1", overlap)):
            best, threshold = best_threshold(answers, predictions, scores, null_odds)
            found.update({f"best_{name}": best, f"best_{name}_thresh": threshold})
    return found


def best_threshold(
    answers: Answers,
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """Returns the best mean score in percent, and the threshold that reaches it.

    A question counts as answered by "" if its null odds are above the threshold. The threshold is
    one of the null odds; 0.0 if no answer to any question scores best.

    Args:
      answers: like in `scores_v2`.
      predictions: like in `scores_v2`; those that are "" keep their score at every threshold.
      scores: the score of each prediction, 0 to 1.
      null_odds: like in `scores_v2`.
    """
    score = best = sum(1 for texts in answers.values() if not texts)
    threshold = 0.0
    for name in sorted(null_odds, key=lambda name: null_odds[name]):
        if name not in scores:
            continue
        if answers[name]:
            score += scores[name]
        elif predictions[name]:
            score -= 1
        if score > best:
            best, threshold = score, null_odds[name]
    return 100.0 * best / len(scores), threshold


def _means(exact, overlap, names, prefix):
    """Returns means over `names`; sums in the order of the questions, like the script."""
    return {
        f"{prefix}{metric}": 100.0 * sum(scores[name] for name in names) / len(names)
        for metric, scores in (("exact", exact), ("f1", overlap))
    }
