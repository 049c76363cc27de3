"""Questions about texts in the JSON of SQuAD 1.1 and 2.0.

    SOURCE/train-v2.0.json   SOURCE/dev-v2.0.json.xz   SOURCE/cmrc2018_test.json   ...

`split_names` says which names are splits.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from input_fns import DataError
from input_fns.convert.files import note, read_text
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset, RawSplit
from input_fns.convert.split_names import by_split, find_files, is_split, named_files
from input_fns.dataset_info import LeftOut
from input_fns.text import squad_json
from input_fns.text.squad_json import Question

_EXTENSIONS = (".json",)


@dataclasses.dataclass(frozen=True)
class RawQuestions(RawSplit):
    """Questions; `squad_encode.encode` turns them into a `RawSplit`.

    Attributes:
      path: path of the file.
      questions: all questions of the file.
      indices: int64 `[size]`, the questions of this split.
    """

    KEYS = ("indices",)

    path: str
    questions: Sequence[Question]
    indices: np.ndarray

    @property
    def groups(self) -> np.ndarray:
        """Number of the context: its questions must stay in one split."""
        return np.array([self.questions[i].paragraph for i in self.indices])


def read(options: Options) -> RawDataset:
    """Returns one split per file.

    Raises:
      DataError: there is no such file, two are of one split, or one is not JSON of SQuAD.
    """
    left_out = LeftOut()
    splits = {}
    for split, path in _split_files(options).items():
        questions = squad_json.parse(read_text(path), path, left_out, note)
        splits[split] = RawQuestions(path, questions, np.arange(len(questions)))
    return RawDataset(
        options.dataset, (), splits, left_out=left_out, encoder="text.sources.squad_encode"
    )


def _split_files(options):
    """Returns `{split: path}`; two versions of a split are refused."""
    if options.split_files:
        return find_files(options, _EXTENSIONS)
    found: dict[str, str] = {}
    for stem, path in named_files(options, _EXTENSIONS).items():
        split, dash, _ = stem.partition("-")  # train-v2.0
        name = split if dash and is_split(split) else stem
        if name in found:
            raise DataError(
                f"--source={options.source} has {os.path.basename(found[name])} and "
                f"{os.path.basename(path)}, both of the split '{name}': leave one out with --skip"
            )
        found[name] = path
    return by_split(found, options)
