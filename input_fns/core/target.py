"""What a model predicts for each example if it is not one class: labels, probabilities, numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common import names
from common.constants import TARGETS
from input_fns import DataError
from input_fns.core.dataset_parts import Feature
from input_fns.core.json_fields import array, field, one_of, strings

if TYPE_CHECKING:
    from input_fns.dataset_info import DatasetInfo

FEATURE = "target"  # name of the stored label
_TOLERANCE = 0.01  # of the sum of probabilities, which tables round
_BAR = 40


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise DataError(f"{where} is {value!a}, and must be a number")
    return float(value)


@dataclasses.dataclass(frozen=True)
class Target:
    """The target of a data set whose examples do not have one class each.

    Examples have the label "target", float32 `[len(names)]`. A model gets it alone, as its labels.

    Attributes:
      kind: "multilabel": 1 for each class of the example, 0 for the others; "soft_labels":
        probabilities of the classes; or "regression": numbers.
      names: names of the classes or of the numbers.
      mean: mean of each number in "train"; () if unknown, and for classes.
      scale: standard deviation of each number in "train", 1 of a constant one; likewise.
    """

    kind: str = field(one_of(TARGETS[1:]))
    names: tuple[str, ...] = field(strings)
    mean: tuple[float, ...] = field(array(_number), omitted=True, default=())
    scale: tuple[float, ...] = field(array(_number), omitted=True, default=())

    @property
    def feature(self) -> Feature:
        """The stored label."""
        return Feature("raw", "float32", (len(self.names),))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; () for numbers."""
        return () if self.kind == "regression" else self.names

    @property
    def properties(self) -> dict[str, Any]:
        """Properties of the data set that models read."""
        found = {"target": self.kind, "num_classes": len(self.names)}
        if self.mean:
            found.update(target_mean=self.mean, target_scale=self.scale)
        return found

    def validate(self, where: str) -> None:
        """Raises DataError if names are invalid or the sizes of its fields, of `where`, differ."""
        wrong = names.find_class_name_problem(self.names)
        if wrong or not self.names:
            raise DataError(f"{where}.names: {wrong or 'it is empty'}")
        sizes = {len(self.mean), len(self.scale)}
        if len(sizes) > 1 or not sizes <= {0, len(self.names)} or min(self.scale, default=1) <= 0:
            raise DataError(f"{where}.mean and .scale must have a number for each name, scales > 0")

    def check(self, features: Mapping[str, Feature], labels: Sequence[str], classes: Sequence[str]):
        """Raises DataError if the features, labels or classes of the data set do not fit."""
        self.validate(FEATURE)
        if features.get(FEATURE) != self.feature or tuple(labels) != (FEATURE,) or classes:
            raise DataError(
                f"target needs the label '{FEATURE}', raw float32 [{len(self.names)}], no other "
                "label, and no class_names"
            )

    def measured(self, values: np.ndarray) -> Target:
        """Returns the target with mean and scale of numbers, float32 `[size, len(names)]`."""
        if self.kind != "regression":
            return self
        values = values.astype(np.float64)
        scale = values.std(axis=0)
        scale[scale == 0] = 1
        mean = values.mean(axis=0)
        return dataclasses.replace(self, mean=tuple(mean.tolist()), scale=tuple(scale.tolist()))

    def find_problem(self, values: np.ndarray) -> str | None:
        """Returns what is wrong with the values of an example, float32 `[len(names)]`, or None."""
        if not np.isfinite(values).all():
            return f"{self.names[int(np.argmin(np.isfinite(values)))]} is not a finite number"
        if self.kind == "multilabel" and not np.isin(values, (0, 1)).all():
            return f"its labels are {values.tolist()}, and must be 0 or 1"
        if self.kind == "soft_labels" and (
            values.min() < 0 or abs(values.sum(dtype=np.float64) - 1) > _TOLERANCE
        ):
            return f"its probabilities are {values.tolist()}, and must be at least 0 with the sum 1"
        return None

    def random(self, random: np.random.Generator, size: int) -> np.ndarray:
        """Returns random values, float32 `[size, len(names)]`."""
        shape = [size, len(self.names)]
        if self.kind == "multilabel":
            return random.integers(0, 2, shape).astype(np.float32)
        if self.kind == "soft_labels":
            return random.dirichlet(np.ones(shape[1]), size).astype(np.float32)
        return random.normal(size=shape).astype(np.float32)


class TargetStatistics:
    """Checks and sums up the targets of a split; see `Kind.statistics`."""

    decodes_images = False

    def __init__(self, data: DatasetInfo):
        """Starts with no example."""
        self._target, self._values = data.target, []

    def facts(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the targets of a batch, a float32 tensor `[batch, len(names)]`."""
        from input_fns.image import images  # imports TensorFlow

        return {FEATURE: images.decode_raw(stored[FEATURE], self._target.feature)}

    def find_problem(self, example: Mapping[str, np.ndarray]) -> str | None:
        """Returns what is wrong with the `facts` of one example; None if nothing is."""
        return self._target.find_problem(example[FEATURE])

    def add(self, facts: Mapping[str, np.ndarray]) -> None:
        """Adds the `facts` of a batch.

        Raises:
          ValueError: an example is invalid.
        """
        for problem in filter(None, map(self._target.find_problem, facts[FEATURE])):
            raise ValueError(problem)
        self._values.append(facts[FEATURE])

    def lines(self) -> list[str]:
        """Returns examples of each class, or lowest, mean and highest number, for people."""
        if not self._values:
            return []
        values, target = np.concatenate(self._values), self._target
        width = max(map(len, target.names))
        if target.kind == "regression":
            return [
                f"  {name:{width}} from {column.min():g} to {column.max():g}, mean "
                f"{column.mean(dtype=np.float64):g}, standard deviation "
                f"{column.std(dtype=np.float64):g}"
                for name, column in zip(target.names, values.T)
            ]
        counts = values.sum(axis=0, dtype=np.float64)
        lines = [
            f"  {name:{width}} {count:11,.6g} {'#' * round(_BAR * count / max(1, counts.max()))}"
            for name, count in zip(target.names, counts.tolist())
        ]
        if target.kind == "multilabel":
            per_example = values.sum(axis=1)
            lines.append(
                f"  {per_example.mean():.2f} labels per example, {int((per_example == 0).sum())} "
                "examples without a label"
            )
        return lines

    def problems(self, split_name: str) -> list[str]:
        """Returns what is wrong with the split."""
        del split_name
        return []
