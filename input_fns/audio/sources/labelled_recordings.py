"""Recordings with classes: one folder for each class, or listed in a table, such as ESC-50.

`class_folders` and `labelled_rows` say how. The lists of Google's Speech Commands (Warden 2018,
arXiv:1804.03209) are read if they are in the folder: SOURCE/validation_list.txt and
SOURCE/testing_list.txt, one CLASS/FILE per line.
"""

from __future__ import annotations

import os

import numpy as np

from common import folders
from common.names import normalized
from input_fns import DataError
from input_fns.audio.sources import recordings, table_recordings
from input_fns.audio.sources.recordings import Recordings
from input_fns.convert import class_folders, labelled_rows
from input_fns.convert.files import read_lines
from input_fns.convert.find_files import Finder
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.core.target import FEATURE
from input_fns.dataset_info import LeftOut

_LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
_NOISE = "_background_noise_"  # of Speech Commands: minutes of noise, not a class
_KIND = labelled_rows.Kind(
    *("recording", "audio_column", table_recordings.EXTENSIONS, table_recordings.USUAL),
    *(table_recordings.PARTS, "offset"),
)
_MISSING = "entries of lists whose recording is missing"


def read(options: Options) -> RawDataset:
    """Returns the splits of audio_folder or audio_csv.

    Raises:
      DataError: see `class_folders.find` and `labelled_rows.read`, or all recordings of a list are
        missing.
    """
    if options.dataset == "audio_csv":
        found = labelled_rows.read(options, _KIND)
    else:
        found = class_folders.find(options, "recording", recordings.EXTENSIONS, (_NOISE,))
    splits = {
        name: Recordings(
            files.paths, options, files.labels, groups=files.groups, targets=files.targets
        )
        for name, files in found.splits.items()
    }
    left_out = LeftOut()
    if options.dataset == "audio_folder" and list(splits) == ["train"]:
        splits = _by_lists(splits["train"], options, left_out)
    return RawDataset(
        options.dataset,
        found.class_names,
        splits,
        labels=(FEATURE,) if found.target else (),
        target=found.target,
        kind=recordings.metadata(options),
        left_out=left_out,
        left_out_paths=found.left_out,
    )


def _by_lists(split, options, left_out):
    """Returns the splits of the lists; "train" has the files that are in none."""
    split_of = np.full(len(split), "train", object)
    rows = {path: row for row, path in enumerate(split.paths)}
    finder = Finder(options.source, recordings.EXTENSIONS)
    for name, file_name in _LISTS.items():
        path = os.path.join(options.source, file_name)
        if not folders.is_file(path):
            continue
        listed = [normalized(line.decode()) for line in read_lines(path)]
        missing = []
        for number, entry in enumerate(listed, start=1):
            found = finder.find(entry)
            if entry and not found:
                missing.append(f"{file_name}, line {number} ({entry})")
            if found in rows:  # otherwise of a class that --class_names does not have
                split_of[rows[found]] = name
        if missing and len(missing) == len(list(filter(None, listed))):
            raise DataError(
                f"{path}: none of its {len(missing)} recordings is below {options.source}, such as "
                f"line {missing[0].partition('line ')[2]}. Write CLASS/FILE, or remove the list"
            )
        for place in missing:
            left_out.add(_MISSING, place)
    return {
        name: split.take(np.flatnonzero(split_of == name))
        for name in ("train", *_LISTS)
        if (split_of == name).any()
    }
