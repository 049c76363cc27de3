"""A split of recordings: read, mixed to mono, resampled once, stored as 16-bit samples."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from common.names import printable
from input_fns.audio.kind import Audio, stored_features
from input_fns.audio.sources import audio_files, compressed_audio
from input_fns.audio.sources.audio_files import Segment
from input_fns.convert.options import Options
from input_fns.convert.source import Broken, RawSplit, Row, is_known
from input_fns.image.sources.image_files import name_in

# Extensions of the recordings that can be read.
EXTENSIONS = (".wav", *(compressed_audio.EXTENSIONS if compressed_audio.is_available() else ()))
# Recordings to read for the size of a split.
_MEASURED = 16


@dataclasses.dataclass(frozen=True)
class Recordings(RawSplit):
    """A split of recordings.

    Attributes:
      paths: objects `[size]`, paths of the files, local or gs://.
      options: `source`, `sample_rate` and `max_seconds` are used.
      labels: classes, int64 `[size]`, or None without classes; a split without labels and tokens
        can only be predicted.
      tokens: int32 `[size, max_tokens]`, the transcripts, or None with classes.
      groups: `[size]`, equal where examples must stay in one split; None: each is its own.
      segments: begin and length in seconds, float64 `[size, 2]`, of parts of the files; NaN is
        the length up to the end. None: whole files.
      has_parts: whether several recordings of the split that is stored are of one file; then their
        names have the seconds. None: it is this split.
      targets: see `RawSplit`.
    """

    KEYS = ("paths", "labels", "tokens", "groups", "segments", "targets")

    paths: np.ndarray
    options: Options
    labels: np.ndarray | None = None
    tokens: np.ndarray | None = None
    groups: np.ndarray | None = None
    segments: np.ndarray | None = None
    has_parts: bool | None = None
    targets: np.ndarray | None = None

    @property
    def has_labels(self) -> bool:
        """False if the split can only be predicted."""
        is_labelled = self.labels is not None or self.tokens is not None
        return is_labelled or is_known(self.targets)

    @property
    def num_bytes(self) -> int:
        """Approximate size of the rows, of which some are read."""
        rows = map(self.read, range(0, len(self), -(-len(self) // _MEASURED)))
        sizes = [sum(map(len, row.values.values())) for row in rows if isinstance(row, Row)]
        if not sizes:
            return len(self) * sum(feature.num_bytes for feature in self._features.values())
        return len(self) * sum(sizes) // len(sizes)

    @functools.cached_property
    def _features(self):
        max_tokens = 0 if self.tokens is None else self.tokens.shape[1]
        return stored_features(max_samples(self.options), max_tokens)

    @functools.cached_property
    def _has_parts(self):
        return len(set(self.paths)) < len(self) if self.has_parts is None else self.has_parts

    def part(self, begin: int, end: int) -> Recordings:
        """Returns the examples from `begin` to `end`."""
        return dataclasses.replace(super().part(begin, end), has_parts=self._has_parts)

    def item(self, i: int) -> str | Segment:
        """Returns the path or the part of a file of a recording."""
        begin, seconds = (0.0, math.nan) if self.segments is None else self.segments[i].tolist()
        if not begin and math.isnan(seconds):
            return self.paths[i]
        return Segment(self.paths[i], begin, None if math.isnan(seconds) else seconds)

    def read(self, i: int) -> Row | Broken:
        """Reads and resamples a recording."""
        item, options = self.item(i), self.options
        samples = audio_files.read_file(item, options.sample_rate, options.max_seconds)
        if isinstance(samples, str):
            return Broken(printable(audio_files.name_of(item)), samples)
        values = {
            "waveform": samples.astype("<i2", copy=False).tobytes(),
            "num_samples": np.array(len(samples), "<i4").tobytes(),
        }
        if self.tokens is not None:
            values["tokens"] = self.tokens[i].astype("<i4").tobytes()
        name = audio_files.name_of(item) if self._has_parts else self.paths[i]
        return Row(values, self._features, name_in(options.source, name))


def max_samples(options: Options) -> int:
    """Returns the samples of a row: `max_seconds` at `sample_rate`."""
    return math.ceil(options.max_seconds * options.sample_rate)


def metadata(options: Options, **of_text) -> Audio:
    """Returns the metadata of a data set."""
    return Audio(options.sample_rate, max_samples(options), **of_text)
