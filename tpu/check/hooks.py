"""Tensors of the TPU loop that hooks keep: a session cannot fetch them."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from tpu.findings import ERROR, WARNING

# Attributes of TensorFlow's hooks whose tensors, or names of tensors, the session fetches.
_FETCHED = ("_tensors", "_loss_tensor", "_summary_op", "_final_ops")
_MOST_NAMES = 3  # in one message


def find_faults(hooks, graph: tf.Graph) -> list[tuple[str, str, tf.Operation]]:
    """Returns (level, message, operation) of each hook that keeps values of the TPU loop."""
    faults = []
    for hook in hooks:
        found = {}  # a hook may keep the same tensor in two attributes
        for attribute, value in kept_values(hook):
            value = _named(value, graph) if isinstance(value, str) else value
            if value is not None and not graph.is_fetchable(value):
                is_fetched = attribute in _FETCHED or found.get(value.name, (False,))[0]
                found[value.name] = is_fetched, value
        if not found:
            continue
        fetched = [value for is_fetched, value in found.values() if is_fetched]
        values = fetched or [value for _, value in found.values()]
        more = f" and {len(values) - _MOST_NAMES} more" if len(values) > _MOST_NAMES else ""
        names = ", ".join(f"'{value.name}'" for value in values[:_MOST_NAMES])
        where = f"{names}{more} inside the TPU loop"
        level, verb = (
            (ERROR, f"reads {where}")
            if fetched
            else (WARNING, f"keeps {where}, which a session cannot read")
        )
        it = "it" if len(values) == 1 else "them"
        message = f"{type(hook).__name__} {verb}. Pass {it} to host_call instead"
        first = values[0]
        faults.append((level, message, first if isinstance(first, tf.Operation) else first.op))
    return faults


def kept_values(hook) -> Iterator[tuple[str, tf.Tensor | tf.Operation | str]]:
    """Yields (attribute, value) of the tensors, operations and names of tensors of a hook."""
    for attribute, value in getattr(hook, "__dict__", {}).items():
        for item in _items(value):
            is_name = isinstance(item, str) and attribute in _FETCHED
            if is_name or isinstance(item, (tf.Tensor, tf.Operation)):
                yield attribute, item


def _items(value):
    """Yields the values in lists and dicts, or the value if it is neither."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _items(item)
    else:
        yield value


def _named(name, graph):
    """Returns the tensor of a graph that a hook names; None without one."""
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError):
        return None
