"""Finds the recordings, or parts of recordings, that the rows of a table name."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np

from common import folders
from common.names import printable
from input_fns import DataError
from input_fns.audio.sources import audio_files, compressed_audio, recordings
from input_fns.convert import columns, inventory
from input_fns.convert.find_files import Finder, is_another, leads_out
from input_fns.convert.options import Options
from input_fns.convert.tables import Table

USUAL = tuple(
    f"{what}{end}"
    for what in ("", "audio", "file", "wav", "clip", "slicefile", "audiofile")
    for end in ("", "path", "name", "file", "filename", "filepath")
    if what + end not in ("", "name", "filefile", "filefilename", "filefilepath")
)
_BEGIN, _SECONDS = "offset", "duration"  # of NeMo, in seconds
# Columns of other tables whose rows are parts of recordings.
PARTS = ("start", "end", "begin", "starttime", "endtime", "segmentstart", "segmentend")
# Also of files that only an extra reads: their names are found, and the message names the extra.
EXTENSIONS = (".wav", *compressed_audio.EXTENSIONS)


class RecordingFinder:
    """Finds recordings in --audio_folder, by default in the folder of the table or of --source."""

    def __init__(self, options: Options):
        """Uses `source`, `audio_folder` and `audio_column` of the options.

        Raises:
          DataError: --audio_folder is not a folder.
        """
        self._options = options
        self._root = source_folder(options)
        self._finders: dict[str, Finder] = {}
        if options.audio_folder:
            self._root = os.path.join(self._root, options.audio_folder)
            if not folders.is_folder(self._root):
                raise DataError(f"--audio_folder: {self._root} is not a folder")

    def find(self, table: Table) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns the recordings of a table.

        Returns:
          paths, objects `[size]`, of files that may be missing, and begin and length in seconds,
          float64 `[size, 2]`, of parts of recordings; None if the rows are whole recordings.

        Raises:
          DataError: a row names no recording, or one outside of the folder; or all are missing.
        """
        given = self._options.audio_column
        name_of = columns.require(table.path, table.columns, USUAL, "audio_column", given)
        names = table.cleaned(name_of)
        paths, outside, first_of = [], [], {}
        num_found = 0
        for row, name in enumerate(names):
            if not name:
                raise DataError(f"{table.where(row)}: no {name_of}. Remove the row, or name a file")
            path = self._find(table, name)
            num_found += path is not None
            if path is None and leads_out(name):
                outside.append(row)
            elif path is None:
                path = os.path.join(self._folders(table)[0], name.replace("\\", "/"))
            before = first_of.setdefault(path, row)
            if path and is_another(names[before], name):
                raise DataError(
                    f"{table.where(row)}: {name!a} and {names[before]!a} of {table.where(before)} "
                    f"both end in {printable(path)}. Name the files below one folder"
                )
            paths.append(path)
        if outside:
            more = f" (and those of {len(outside) - 1} other rows)" if outside[1:] else ""
            raise DataError(
                f"{table.where(outside[0])}: {names[outside[0]][:200]!a}{more} is not a file below "
                f"the folder {self._folders(table)[0]}. Write paths of files there, without '..'"
            )
        if not num_found and paths:
            raise DataError(self._describe_missing(table, names))
        segments = self._segments(table, name_of)
        if segments is None:
            _check_parts(table, names)
        return np.array(paths, object), segments

    def _folders(self, table):
        """Returns where recordings may be, without repetition."""
        if self._options.audio_folder:
            return [self._root]
        return list(dict.fromkeys((os.path.dirname(table.path) or ".", self._root)))

    def _find(self, table, name):
        for folder in self._folders(table):
            if folder not in self._finders:
                self._finders[folder] = Finder(folder, EXTENSIONS)
            path = self._finders[folder].find(name)
            if path is not None and not folders.is_folder(path):
                return path
        return None

    def _describe_missing(self, table, names):
        """Returns the error for a table without a recording that is there."""
        where = f"{table.where(0)}: {names[0][:200]!a} is not in {self._folders(table)[0]}"
        if len(names) > 1:
            where = f"{where}, and the {len(names) - 1} other recordings are missing, too"
        source = source_folder(self._options)
        base = os.path.basename(names[0].replace("\\", "/"))
        wanted = {base, *(base + extension for extension in EXTENSIONS)}
        for path in inventory.files(source, self._options):
            if os.path.basename(path) in wanted:
                folder = os.path.dirname(path[len(source) :].lstrip("/"))
                for _ in range(names[0].replace("\\", "/").strip("./").count("/")):
                    folder = os.path.dirname(folder)
                if folder:
                    return f"{where}. If they are in {folder}/, set --audio_folder={folder}"
        return f"{where}. Name their folder with --audio_folder, their column with --audio_column"

    def _segments(self, table, name_of):
        lower = {name.lower(): name for name in table.columns}
        is_nemo = name_of.lower() == "audio_filepath" and _SECONDS in lower
        if _BEGIN not in lower and not is_nemo:
            return None
        found = np.full([len(table.rows), 2], [0.0, np.nan])
        for place, name in enumerate((_BEGIN, _SECONDS)):
            values = table.column(lower[name]) if name in lower else []
            for row, value in enumerate(values):
                if value is not None and value.strip():
                    found[row, place] = _seconds(table.where(row), lower[name], value)
        return found


def source_folder(options: Options) -> str:
    """Returns the folder of --source, which may be a table."""
    source = options.source
    return source if folders.is_folder(source) else os.path.dirname(source) or "."


def recordings_of(
    paths: np.ndarray, segments: np.ndarray | None, options: Options, **labels
) -> recordings.Recordings:
    """Returns a split of the recordings that `RecordingFinder.find` returns."""
    options = dataclasses.replace(options, source=source_folder(options))
    return recordings.Recordings(paths, options, segments=segments, **labels)


def _seconds(where, name, text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise DataError(f"{where}: {name} {text[:60]!a} is not a number of seconds")
    return value


def _check_parts(table, names):
    """Checks that rows of one recording are not parts of it in a form that is not read."""
    parts = [c for c in table.columns if c.lower().replace("_", "").replace(" ", "") in PARTS]
    if not parts or len(set(names)) == len(names):
        return
    first: dict[str, int] = {}
    row = next(row for row, name in enumerate(names) if first.setdefault(name, row) != row)
    raise DataError(
        f"{table.where(row)}: the recording of {table.where(first[names[row]])} again, and a "
        f"column '{parts[0]}'. Write parts of recordings as columns {_BEGIN} and {_SECONDS}, in "
        "seconds"
    )


def check_splits(splits: Mapping[str, tuple[Sequence[str], recordings.Recordings]]) -> None:
    """Checks that no recording is in two splits `{name: (place of each row, recordings)}`.

    Raises:
      DataError: a recording is in two splits.
    """
    seen: dict[str, tuple[str, str]] = {}
    for split, (places, found) in splits.items():
        for row, place in enumerate(places):
            item = audio_files.name_of(found.item(row))
            first, other = seen.setdefault(item, (split, place))
            if first != split:
                raise DataError(f"{place}: {printable(item)} is also in '{first}', {other}")
