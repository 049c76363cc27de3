"""tf.contrib.metrics."""

from __future__ import annotations

__all__ = ["aggregate_metric_map", "aggregate_metrics"]


def aggregate_metrics(*value_update_tuples):
    """Returns (values, update ops), two lists, of metrics (value, update op)."""
    if not value_update_tuples:
        raise ValueError("aggregate_metrics: no metrics given")
    values, updates = zip(*value_update_tuples)
    return list(values), list(updates)


def aggregate_metric_map(names_to_tuples):
    """Returns ({name: value}, {name: update op}) for {name: (value, update op)}."""
    values = {name: value for name, (value, _) in names_to_tuples.items()}
    return values, {name: update for name, (_, update) in names_to_tuples.items()}
