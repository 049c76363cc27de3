"""Texts: tokens, tags and scores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from input_fns.anomalies import token_shares
from input_fns.anomalies.sample import MANY, MOST, Anomaly, Sample


def of_tokens(sample: Sample) -> Iterator[Anomaly]:
    """Yields texts of which the vocabulary does not know many words."""
    data = sample.data
    text = data.wordpiece or data.text
    if not text:
        return
    pieces = token_shares.pieces_of(data, sample.content(text.vocabulary))
    for name in ["input_ids"] if data.wordpiece else ["source", "target"]:
        ids = sample.values(name)
        if "masked_lm_ids" in data.features:
            masked = sample.values("masked_lm_ids")[sample.values("masked_lm_weights") > 0]
            ids = np.concatenate([ids.ravel(), masked])
        share = pieces.unknown_share(ids)
        if share > MANY:
            side = "" if data.wordpiece else f" of the {name}"
            to_learn_from = sample.is_train or "train" not in data.splits
            yield Anomaly(
                to_learn_from and share > MOST,
                f"{share:.0%} of the words{side} of {sample.where} are {pieces.name}: the "
                "vocabulary is of text in another script or case. Choose another --vocabulary, or "
                "learn one",
            )


def of_pairs(sample: Sample) -> Iterator[Anomaly]:
    """Yields rows of sentences whose translations are the same text."""
    if not sample.data.text:
        return
    source, target = sample.values("source"), sample.values("target")
    share = (source == target).all(axis=1).mean() if source.shape == target.shape else 0
    if share > MANY:
        yield Anomaly(
            sample.is_train and share > MOST,
            f"{share:.0%} of the rows of {sample.where} have equal source and target: a file "
            "may be of the other language",
        )


def of_tags(sample: Sample) -> Iterator[Anomaly]:
    """Yields words without any tag."""
    if "tag_ids" not in sample.data.features or not sample.info.has_labels:
        return
    if not (sample.values("tag_ids") >= 0).any():
        yield Anomaly(sample.is_train, f"no word of {sample.where} has a tag")


def of_scores(sample: Sample) -> Iterator[Anomaly]:
    """Yields scores that are all equal."""
    if "score" not in sample.data.features or not sample.info.has_labels:
        return
    scores = sample.values("score")
    if len(scores) > 1 and (scores == scores[0]).all():
        yield Anomaly(False, f"all scores of {sample.where} are {scores[0]:g}")
