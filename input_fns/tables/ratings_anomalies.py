"""Rankings of items."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from input_fns.anomalies.sample import Anomaly, Sample

# Candidates of a ranking (the default of ranking_k), and share of the users that are ranked.
_FEW_CANDIDATES, _FEW_USERS = 10, 0.1


def of_negatives(sample: Sample) -> Iterator[Anomaly]:
    """Yields evaluation rows with too few candidates, or of too few users."""
    ratings = sample.data.kind
    if sample.split not in ratings.negatives:
        return
    content = sample.content(ratings.negatives[sample.split])
    negatives = np.frombuffer(content, "<i4").reshape(-1, ratings.num_negatives)
    candidates = 1 + np.median((negatives >= 0).sum(axis=1)) if len(negatives) else 1
    if candidates <= _FEW_CANDIDATES:
        yield Anomaly(
            f"rows of '{sample.split}' have {candidates:g} candidates in the median, of "
            f"{ratings.num_items} items: hits among the first {_FEW_CANDIDATES} are nearly certain",
        )
    if len(negatives) < _FEW_USERS * ratings.num_users:
        yield Anomaly(
            f"only {len(negatives)} of {ratings.num_users} users are in '{sample.split}': the "
            "others have fewer than 3 items. --user_column and --item_column name the columns",
        )
