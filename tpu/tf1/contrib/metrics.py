"""tf.contrib.metrics."""

from __future__ import annotations

SOURCES = ("tf_slim.metrics",)
NAMES = {
    "v1.metrics": """streaming_mean=mean streaming_mean_absolute_error=mean_absolute_error
        streaming_mean_iou=mean_iou streaming_mean_squared_error=mean_squared_error
        streaming_root_mean_squared_error=root_mean_squared_error""",
    "v1.math": "confusion_matrix",
    "v1.sets": """set_difference=difference set_intersection=intersection set_size=size
        set_union=union""",
}
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
