"""Ranking metrics of an item of a user against its negatives, a host metric.

A row has one positive, the first candidate, and negatives; candidates of -1 are left out. With rank
r of the positive, 1 for the highest logit:

    hr_at_k    1 if r <= k: hit ratio, recall at k
    ndcg_at_k  1 / log2(1 + r) if r <= k, else 0
    mrr        1 / r
    auc        fraction of the negatives below the positive; a tie counts half
    log_loss   binary cross-entropy of all candidates, their mean over the split

All but the last are means over the rows. Ties are pessimistic: the positive ranks behind all
negatives with the same logit, so that a model with equal logits for all items hits nothing. A NaN
among the logits counts against the positive. A row without negatives has rank 1 and no AUC.
"""

from __future__ import annotations

import numpy as np


class RankingMetrics:
    """Metrics of predictions `logits` for features `items`, both `[n, candidates]`."""

    def __init__(self, k: int, has_log_loss: bool = True):
        """Starts without rows.

        Args:
          k: number of candidates that a user would see.
          has_log_loss: whether the logits are those of independent interactions.
        """
        self._k = k
        names = (f"hr_at_{k}", f"ndcg_at_{k}", "mrr", "auc", "log_loss")
        self.names = names if has_log_loss else names[:-1]
        self.directions = {**dict.fromkeys(names, "max"), "log_loss": "min"}
        self._ranks, self._aucs = [], []
        self._loss, self._num_candidates = 0.0, 0

    def update(self, features, labels, predictions):
        """Adds a batch; see `models.model.HostMetric`."""
        del labels
        logits = np.asarray(predictions["logits"], np.float64)
        is_item = features["items"] >= 0
        positive, negatives = logits[:, :1], logits[:, 1:]
        is_negative = is_item[:, 1:]
        # Comparisons with NaN are false: it counts against the positive.
        num_above = (~(negatives <= positive) & is_negative).sum(axis=1)
        num_tied = ((negatives == positive) & is_negative).sum(axis=1)
        num_negatives = is_negative.sum(axis=1)
        self._ranks.append(1 + num_above + num_tied)
        has_negatives = num_negatives > 0
        below = num_negatives - num_above - num_tied / 2
        self._aucs.append(below[has_negatives] / num_negatives[has_negatives])
        # log(1 + exp(-logit)) of the positive, log(1 + exp(logit)) of the negatives.
        with np.errstate(invalid="ignore"):  # of NaN
            losses = np.logaddexp(0, np.concatenate([-positive, negatives], axis=1))
        self._loss += losses[is_item].sum()
        self._num_candidates += is_item.sum()

    def result(self):
        """Returns `{name: float}`, all of `names`."""
        ranks, aucs = np.concatenate(self._ranks), np.concatenate(self._aucs)
        is_hit = ranks <= self._k
        values = (
            is_hit.mean(),
            np.where(is_hit, 1 / np.log2(1 + ranks), 0).mean(),
            (1 / ranks).mean(),
            aucs.mean() if len(aucs) else 0.0,
            self._loss / self._num_candidates,
        )
        return {name: float(value) for name, value in zip(self.names, values)}
