"""Questions about texts in the JSON of SQuAD 1.1 and 2.0.

    SOURCE/train-v2.0.json   SOURCE/dev-v2.0.json.xz   ...

A split is the part of the name before the first "-" or "."; "dev" is the split "validation".
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence

import numpy as np

from common import folders
from input_fns import DataError, squad_json
from input_fns.convert.files import read_text
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import split_names
from input_fns.squad_json import Question

_FILE = re.compile(r"(?P<split>[^-.]+)(-.*)?\.json(\.gz|\.xz)?")


@dataclasses.dataclass(frozen=True)
class RawQuestions:
    """Questions; `squad_windows.encode` turns them into a `RawSplit`.

    Attributes:
      path: path of the file.
      questions: all questions of the file.
      indices: int64 `[size]`, the questions of this split.
    """

    path: str
    questions: Sequence[Question]
    indices: np.ndarray
    labels: None = None

    @property
    def groups(self) -> np.ndarray:
        """Number of the context: its questions must stay in one split."""
        return np.array([self.questions[i].paragraph for i in self.indices])

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, indices: Sequence[int]) -> RawQuestions:
        """Returns the split of these questions, in the order of the indices."""
        return dataclasses.replace(self, indices=self.indices[indices])


def read(options: Options) -> RawDataset:
    """Returns one split per file.

    Raises:
      DataError: there is no such file, two are of one split, or one is not JSON of SQuAD.
    """
    paths: dict[str, str] = {}
    for name in folders.names(options.source):
        found = _FILE.fullmatch(name)
        if not found:
            continue
        if found["split"] in paths:
            raise DataError(
                f"--source={options.source} has {os.path.basename(paths[found['split']])} and "
                f"{name}, both of the split '{found['split']}': keep one of them in the folder"
            )
        paths[found["split"]] = os.path.join(options.source, name)
    if not paths:
        raise DataError(
            f"--source={options.source} has no file such as train-v1.1.json or dev-v2.0.json.gz"
        )
    splits = split_names(paths, f"--source={options.source}")
    return RawDataset(
        options.dataset, (), {ours: _read_split(paths[name]) for ours, name in splits.items()}
    )


def _read_split(path):
    questions = squad_json.parse(read_text(path), path)
    return RawQuestions(path, questions, np.arange(len(questions)))
