"""LibriSpeech as published: SUBSET/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NUMBER.flac.

Each folder of a chapter has SPEAKER-CHAPTER.trans.txt, whose lines are the name of a recording
without its extension, and its text. SOURCE is the folder of the subsets, or has it as LibriSpeech:

    train-clean-100, train-clean-360, train-other-500   joined as "train"
    dev-clean, test-clean                               "validation" and "test"
    dev-other, test-other                               splits of these names

Speakers stay in one split if it is held out.
"""

from __future__ import annotations

import os
import re

import numpy as np

from common.names import is_plain_name, printable
from input_fns import DataError
from input_fns.audio.sources import speech_manifest, table_recordings
from input_fns.audio.sources.speech_manifest import Manifest
from input_fns.convert import inventory
from input_fns.convert.files import iterate_lines
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.dataset_info import LeftOut

_SUBSET = re.compile(r"(train|dev|test)-(clean|other)(-\d+)?")
_SPLITS = {"dev-clean": "validation", "test-clean": "test"}
_END = ".trans.txt"
_NO_TEXT = "recordings without a transcript"


def read(options: Options) -> RawDataset:
    """Returns a split for each subset, those to train on as one; see `speech_manifest.read`.

    Raises:
      DataError: there is no subset, a line is not a name and a text, or no recording is there.
    """
    left_out, unused = LeftOut(), {}
    manifests = {
        split: _read_split(paths, options, left_out, unused)
        for split, paths in _find_subsets(options).items()
    }
    return speech_manifest.to_dataset(options, manifests, left_out, unused)


def _find_subsets(options):
    """Returns `{split: folders}`."""
    found: dict[str, list[str]] = {}
    for folder in (options.source, os.path.join(options.source, "LibriSpeech")):
        for name in inventory.subfolders(folder, options):
            if _SUBSET.fullmatch(name):
                split = "train" if name.startswith("train") else _SPLITS.get(name, name)
                found.setdefault(split, []).append(os.path.join(folder, name))
        if found:
            return found
    hint = ""
    if any(name.endswith(".tar.gz") for name in inventory.names(options.source, options)):
        hint = ". Unpack its archives, such as with tar -xzf train-clean-100.tar.gz"
    raise DataError(
        f"--source={options.source} has no folder of LibriSpeech, such as train-clean-100 or "
        f"dev-clean{hint}"
    )


def _read_split(subsets, options, left_out, unused):
    """Returns the `Manifest` of some subsets; `unused` gets recordings without a transcript."""
    places, texts, paths = [], [], []
    for subset in subsets:
        files = list(inventory.files(subset, options))
        there = {path for path in files if path.lower().endswith(table_recordings.EXTENSIONS)}
        for transcript in (path for path in files if path.endswith(_END)):
            for place, stem, text in _read_transcript(transcript):
                path = os.path.join(os.path.dirname(transcript), stem)
                named = (path + extension for extension in (".flac", *table_recordings.EXTENSIONS))
                # A missing one is listed when it is read.
                paths.append(next((name for name in named if name in there), f"{path}.flac"))
                places.append(place)
                texts.append(text)
        unused.update(dict.fromkeys(there.difference(paths), _NO_TEXT))
        if not there.intersection(paths):
            raise DataError(
                f"{subset} has no recording of LibriSpeech with a text: SPEAKER/CHAPTER/*.flac "
                f"and *{_END}"
            )
    speakers = [os.path.basename(os.path.dirname(os.path.dirname(path))) for path in paths]
    kept, texts = speech_manifest.clean_texts(texts, places, options, left_out)
    found = table_recordings.recordings_of(
        np.array(paths, object)[kept], None, options, groups=np.array(speakers, object)[kept]
    )
    return Manifest([places[row] for row in kept], texts, found)


def _read_transcript(path):
    """Yields place, name and text of each line of a file of transcripts."""
    for number, line in enumerate(iterate_lines(path), start=1):
        place = f"{path}, line {number}"
        stem, _, text = line.partition(" ")
        if not is_plain_name(stem):
            raise DataError(
                f"{place}: {printable(stem)[:60]!a} is not the name of a recording. A line is its "
                "name, a space and its text"
            )
        yield place, stem, text
