"""tf.contrib.lookup."""

from __future__ import annotations

from tensorflow.python.ops import lookup_ops

__all__ = ["index_table_from_tensor", "index_to_string_table_from_tensor"]


def index_table_from_tensor(mapping, *args, **kwargs):
    """Returns a table from the strings of `mapping` to their indices."""
    return lookup_ops.index_table_from_tensor(mapping, *args, **kwargs)


def index_to_string_table_from_tensor(mapping, default_value="UNK", name=None):
    """Returns a table from indices to the strings of `mapping`."""
    return lookup_ops.index_to_string_table_from_tensor(mapping, default_value, name)
