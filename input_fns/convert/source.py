"""What every converter hands to the writer."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class RawSplit:
    """Images `[n, height, width, channels]` and int64 labels `[n]`, in the source's order."""

    images: np.ndarray
    labels: np.ndarray


@dataclasses.dataclass(frozen=True)
class RawDataset:
    """A data set as its source holds it: every image of one shape and dtype."""

    name: str
    class_names: tuple[str, ...]
    splits: dict[str, RawSplit]
