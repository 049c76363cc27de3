"""A split of recordings: read, mixed to mono, resampled once, stored as 16-bit samples."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from common.names import printable
from input_fns.audio.kind import Audio
from input_fns.audio.sources import audio_files, compressed_audio
from input_fns.audio.sources.audio_files import Segment
from input_fns.convert.source import Broken, Options, Row
from input_fns.dataset_info import Feature
from input_fns.image.sources.image_files import each, name_in

# What can be read here.
EXTENSIONS = (".wav", *(compressed_audio.EXTENSIONS if compressed_audio.is_available() else ()))


@dataclasses.dataclass(frozen=True)
class Recordings:
    """A `RawSplit` of recordings.

    Attributes:
      paths: objects `[size]`, paths of the files, local or gs://.
      options: `source`, `sample_rate`, `max_seconds` and `workers` are used.
      labels: classes, int64 `[size]`, or None without classes; a split without labels and tokens
        can only be predicted.
      tokens: int32 `[size, max_tokens]`, the transcripts, or None with classes.
      groups: `[size]`, equal where examples must stay in one split; None: each is its own.
      segments: begin and length in seconds, float64 `[size, 2]`, of parts of the files; NaN is
        the length up to the end. None: whole files.
    """

    paths: np.ndarray
    options: Options
    labels: np.ndarray | None = None
    tokens: np.ndarray | None = None
    groups: np.ndarray | None = None
    segments: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def has_labels(self) -> bool:
        """False if the split can only be predicted."""
        return self.labels is not None or self.tokens is not None

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows."""
        return len(self) * sum(feature.num_bytes for feature in self._features.values())

    @property
    def _features(self):
        features = {
            "waveform": Feature("raw", "int16", (max_samples(self.options),)),
            "num_samples": Feature("raw", "int32", ()),
        }
        if self.tokens is not None:
            features["tokens"] = Feature("raw", "int32", self.tokens.shape[1:])
        return features

    def take(self, indices: Sequence[int]) -> Recordings:
        """Returns the split of these examples, in the order of the indices."""
        rows = {
            name: None if values is None else values[indices]
            for name, values in (
                ("labels", self.labels),
                ("tokens", self.tokens),
                ("groups", self.groups),
                ("segments", self.segments),
            )
        }
        return dataclasses.replace(self, paths=self.paths[indices], **rows)

    def items(self) -> list[str | Segment]:
        """Returns the path or the part of a file of each recording."""
        if self.segments is None:
            return self.paths.tolist()
        return [
            Segment(path, begin, None if math.isnan(seconds) else seconds)
            if begin or not math.isnan(seconds)
            else path
            for path, (begin, seconds) in zip(self.paths, self.segments.tolist())
        ]

    def __iter__(self) -> Iterator[Row | Broken]:
        features, size = self._features, max_samples(self.options)
        read = functools.partial(
            audio_files.read_many,
            sample_rate=self.options.sample_rate,
            max_seconds=self.options.max_seconds,
        )
        # The name of a recording is its path, and that of one of its parts has the seconds.
        has_parts = len(set(self.paths.tolist())) < len(self)
        found = each(read, self.items(), self.options.workers)
        for number, (item, samples) in enumerate(found):
            if isinstance(samples, str):
                yield Broken(printable(audio_files.name_of(item)), samples)
                continue
            values = {
                "waveform": np.pad(samples, (0, size - len(samples))).astype("<i2").tobytes(),
                "num_samples": np.array(len(samples), "<i4").tobytes(),
            }
            if self.tokens is not None:
                values["tokens"] = self.tokens[number].astype("<i4").tobytes()
            name = audio_files.name_of(item) if has_parts else self.paths[number]
            yield Row(values, features, name_in(self.options.source, name))


def max_samples(options: Options) -> int:
    """Returns the samples of a row: `max_seconds` at `sample_rate`."""
    return math.ceil(options.max_seconds * options.sample_rate)


def metadata(options: Options, **of_text) -> Audio:
    """Returns the metadata of a data set."""
    return Audio(options.sample_rate, max_samples(options), **of_text)
