"""Whether the metric of `--best_metric` is minimized or maximized. Imports no TensorFlow.

A model declares the directions of its metrics (`Model.metric_directions`, `HostMetric.directions`).
Losses are minimized.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.errors import UsageError
from common.messages import similar

AVERAGE_LOSS = "average_loss"


def split(best_metric: str) -> tuple[str, str]:
    """Returns the name of the metric and the given direction, "min", "max" or "".

    Args:
      best_metric: value of --best_metric: `NAME`, `-NAME` (lower is better), `NAME:min` or
        `NAME:max`.

    Raises:
      UsageError: it has no name, or a minus and a direction.
    """
    name, _, direction = best_metric.rpartition(":")
    if direction not in ("min", "max"):
        name, direction = best_metric, ""
    if best_metric and name in ("", "-"):
        raise UsageError(f"--best_metric={best_metric} names no metric")
    if not name.startswith("-"):
        return name, direction
    if direction:
        raise UsageError(
            f"--best_metric={best_metric} has a minus and :{direction}. Write {name[1:]}:min or "
            f"{name[1:]}:max"
        )
    return name[1:], "min"


def resolve(best_metric: str, declared: Mapping[str, str]) -> tuple[str, str]:
    """Returns the name of the metric and its direction, "min" or "max"; "" and "" for "".

    Args:
      best_metric: see `split`.
      declared: `{name: "min" or "max"}`, the directions that the model declares.

    Raises:
      UsageError: the direction is neither given nor declared.
    """
    name, direction = split(best_metric)
    if not name or direction:
        return name, direction
    if name in declared:
        return name, declared[name]
    if name == AVERAGE_LOSS or name.endswith("_loss"):
        return name, "min"
    known = sorted({*declared, AVERAGE_LOSS})
    nearest = similar(name, known) or next((m for m in known if name in m.split("_")), None)
    hint = (
        f" is unknown. Did you mean '{nearest}'? If not, write"
        if nearest
        else f": the model declares no direction of it, only of {', '.join(known)}. Write"
    )
    raise UsageError(
        f"--best_metric={best_metric}{hint} --best_metric={name}:max if higher is better, "
        f"{name}:min if lower is"
    )
