"""Replay buffer: experience of the newest iterations, and the data set that the learner reads.

Experience is `{name: array [n, ...]}`, one .npz file an iteration. `write` turns examples into
TFRecord shards and dataset.json, as prepare_data.py does. Both replace files atomically.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import numpy as np

from common import files
from input_fns.convert import writer
from input_fns.convert.source import RawDataset, Row
from input_fns.dataset_info import Feature

Arrays = dict[str, np.ndarray]

_TEST_SHARE = 0.1


def save(path: str, experience: Arrays) -> None:
    """Writes the experience of one iteration."""
    with files.atomic_write(path, "wb") as file:
        np.savez(file, **experience)


def load(path: str) -> Arrays:
    """Returns the experience of one iteration."""
    with np.load(path) as arrays:
        return dict(arrays)


def path(run_dir: str, iteration: int) -> str:
    """Returns the path of the experience of an iteration."""
    return os.path.join(run_dir, "experience", f"{iteration:04d}.npz")


def write(data_dir: str, name: str, examples: list[Arrays], labels: tuple[str, ...]) -> None:
    """Replaces the data set in `data_dir`.

    The last tenth of the newest iteration is the split "test"; the next iteration trains on it.

    Args:
      data_dir: folder of shards and dataset.json.
      name: name of the data set.
      examples: `{feature or label: array [n, ...]}` of each iteration, oldest first.
      labels: names of the labels.
    """
    num_test = max(1, int(_size(examples[-1]) * _TEST_SHARE))
    arrays = {key: np.concatenate([part[key] for part in examples]) for key in examples[-1]}
    splits = {
        "train": _Split({key: array[:-num_test] for key, array in arrays.items()}),
        "test": _Split({key: array[-num_test:] for key, array in arrays.items()}),
    }
    writer.write(RawDataset(name, (), splits, labels=labels), data_dir)


def _size(arrays):
    return len(next(iter(arrays.values())))


@dataclasses.dataclass(frozen=True)
class _Split:
    """An `input_fns.convert.source.RawSplit` of arrays in memory."""

    arrays: Arrays
    labels: None = None
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def __len__(self) -> int:
        return _size(self.arrays)

    def __iter__(self) -> Iterator[Row]:
        features = {
            name: Feature("raw", array.dtype.name, array.shape[1:])
            for name, array in self.arrays.items()
        }
        little_endian = [
            array.astype(array.dtype.newbyteorder("<"), copy=False)
            for array in self.arrays.values()
        ]
        for rows in zip(*little_endian):
            yield Row({name: row.tobytes() for name, row in zip(features, rows)}, features)

    def take(self, indices: np.ndarray) -> _Split:
        """Returns the split of these examples, in the order of the indices."""
        return _Split({name: array[indices] for name, array in self.arrays.items()})
