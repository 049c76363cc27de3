"""The Free Spoken Digit Dataset: SOURCE/DIGIT_SPEAKER_NUMBER.wav, at 8 kHz.

https://github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA 4.0. The official test split has
the recordings 0 to 4 of each speaker and digit. With --test_speaker it has all recordings of one
speaker, and the others are in "train": digits of an unseen speaker.
"""

from __future__ import annotations

import os
import re

import numpy as np

from common.names import printable
from input_fns import DataError
from input_fns.audio.sources import recordings
from input_fns.audio.sources.recordings import Recordings
from input_fns.convert import inventory
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset

CLASS_NAMES = tuple("0123456789")
_NAME = re.compile(r"([0-9])_([a-z]+)_([0-9]+)\.(?i:wav)")
_FOLDER = "recordings"  # of the repository
NUM_TEST = 5  # of each speaker and digit


def read(options: Options) -> RawDataset:
    """Returns "train" and "test".

    Raises:
      DataError: a file has another name, or there is no such speaker.
    """
    splits = {"train": [], "test": []}
    for name, digit, speaker, number in list_recordings(options):
        is_test = speaker == options.test_speaker if options.test_speaker else number < NUM_TEST
        path = os.path.join(options.source, name)
        splits["test" if is_test else "train"].append((path, int(digit), speaker))
    if not splits["test"]:
        found = sorted({speaker for _, _, speaker in splits["train"]})
        raise DataError(
            f"--test_speaker={options.test_speaker} has no recording in {options.source}; there "
            f"are {', '.join(found)}"
        )
    found = {}
    for split, rows in splits.items():
        paths, labels, speakers = zip(*rows) if rows else ((), (), ())
        found[split] = Recordings(
            np.array(paths, object),
            options,
            np.array(labels, np.int64),
            # A validation split that is held out of "train" has speakers that are not in it.
            groups=np.array(speakers, object) if options.test_speaker else None,
        )
    audio = recordings.metadata(options)
    return RawDataset(options.dataset, CLASS_NAMES, found, kind=audio)


def list_recordings(options: Options) -> list[tuple[str, str, str, int]]:
    """Returns file name, digit, speaker and number of each recording, sorted by name.

    Args:
      options: `source` and `skip` are used.

    Raises:
      DataError: there is none, or a WAV file has another name.
    """
    found, source = [], options.source
    for name in inventory.names(source, options):
        match = _NAME.fullmatch(name)
        if match:
            digit, speaker, number = match.groups()
            found.append((name, digit, speaker, int(number)))
        elif name.lower().endswith(recordings.EXTENSIONS):
            raise DataError(
                f"{source}: {printable(name)} is not DIGIT_SPEAKER_NUMBER.wav. Rename it, or leave "
                "it out with --skip"
            )
    if not found:
        inside = inventory.subfolders(source, options)
        hint = f"; try --source={os.path.join(source, _FOLDER)}" if _FOLDER in inside else ""
        raise DataError(f"--source={source} has no DIGIT_SPEAKER_NUMBER.wav{hint}")
    return found
