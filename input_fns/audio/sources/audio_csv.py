"""Recordings and their classes listed in a table, such as ESC-50; see `labelled_rows`."""

from __future__ import annotations

from input_fns.audio.sources import recordings, table_recordings
from input_fns.audio.sources.recordings import Recordings
from input_fns.convert import labelled_rows
from input_fns.convert.source import Options, RawDataset

_KIND = labelled_rows.Kind(
    "recording",
    "audio_column",
    table_recordings.EXTENSIONS,
    table_recordings.USUAL,
    parts=table_recordings.PARTS,
    begin="offset",
)


def read(options: Options) -> RawDataset:
    """Returns the split "train", or the splits of `split_column`.

    Raises:
      DataError: see `labelled_rows.read`.
    """
    class_names, found = labelled_rows.read(options, _KIND)
    splits = {
        name: Recordings(files.paths, options, files.labels, groups=files.groups)
        for name, files in found.items()
    }
    audio = recordings.metadata(options)
    return RawDataset(options.dataset, class_names, splits, kind=audio)
