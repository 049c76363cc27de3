"""A folder of WAV files with one sub-folder per class; see `class_folders`.

The lists of Google's Speech Commands (Warden 2018, arXiv:1804.03209) are read if they are there:
SOURCE/validation_list.txt and SOURCE/testing_list.txt, one CLASS/FILE per line.
"""

from __future__ import annotations

import os

import numpy as np

from common import folders
from input_fns import DataError
from input_fns.convert import class_folders, recordings
from input_fns.convert.files import read_lines
from input_fns.convert.recordings import Recordings
from input_fns.convert.source import Options, RawDataset

_LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
_NOISE = "_background_noise_"  # of Speech Commands: minutes of noise, not a class


def read(options: Options) -> RawDataset:
    """Returns the splits; classes are sorted by name unless `class_names` is set.

    Raises:
      DataError: see `class_folders.read`, or a list names a file that is not there.
    """
    class_names, found = class_folders.read(
        options, "recording", recordings.EXTENSIONS, ignored=(_NOISE,)
    )
    splits = {
        name: Recordings(files.paths, options, files.labels, groups=files.groups)
        for name, files in found.items()
    }
    if list(splits) == ["train"]:
        splits = _by_lists(splits["train"], options.source)
    audio = recordings.metadata(options)
    return RawDataset(options.dataset, class_names, splits, audio=audio)


def _by_lists(split, source):
    """Returns the splits of the lists; "train" has the files that are in none."""
    split_of = np.full(len(split), "train", object)
    rows = {os.path.relpath(path, source): row for row, path in enumerate(split.paths)}
    for name, file_name in _LISTS.items():
        path = os.path.join(source, file_name)
        if not folders.is_file(path):
            continue
        for number, line in enumerate(read_lines(path), start=1):
            listed = os.path.normpath(line.decode())
            if listed not in rows:
                raise DataError(f"{path}, line {number}: no recording {line.decode()!a}")
            split_of[rows[listed]] = name
    return {
        name: split.take(np.flatnonzero(split_of == name))
        for name in ("train", *_LISTS)
        if (split_of == name).any()
    }
