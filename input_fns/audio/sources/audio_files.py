"""Reads recordings as mono at one sampling rate. Imports no TensorFlow: worker processes run it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from common import folders
from input_fns.audio.sources import compressed_audio, resample, wav

_SCALE = 2**15  # of 16-bit samples
# Seconds by which the length of a recording may differ in a table, which has rounded numbers.
_ROUNDING = 0.1


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of a recording: `seconds` from `begin` on, to the end if `seconds` is None."""

    path: str
    begin: float
    seconds: float | None

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The path with begin and end."""
        end = "" if self.seconds is None else f"{self.begin + self.seconds:g}"
        return f"{self.path}[{self.begin:g}:{end}]"


def name_of(item: str | Segment) -> str:
    """Returns the path of a recording, of a part of one with its begin and end."""
    return item.name if isinstance(item, Segment) else item


def read_many(
    items: Sequence[str | Segment], sample_rate: int, max_seconds: float
) -> list[np.ndarray | str]:
    """Reads recordings; returns the reason instead of the samples if one is invalid."""
    return [_read_one(item, sample_rate, max_seconds) for item in items]


def _read_one(item, sample_rate, max_seconds):
    path = item.path if isinstance(item, Segment) else item
    try:
        return read(item, sample_rate, max_seconds)
    except folders.missing_error(path):
        return "it is missing"
    except (ValueError, *folders.errors(path)) as error:
        return " ".join(str(error).split())


def read(item: str | Segment, sample_rate: int, max_seconds: float) -> np.ndarray:
    """Returns the samples of a recording, int16 `[n]`, at `sample_rate`.

    Args:
      item: a path, or a part of a file.
      sample_rate: Hz.
      max_seconds: length of the longest recording.

    Raises:
      OSError, ValueError: it is missing, not a valid recording, too long or silent.
      tensorflow.errors.OpError: a remote file cannot be read.
    """
    segment = item if isinstance(item, Segment) else Segment(item, 0.0, None)

    def choose(num_samples, rate):
        return _choose(segment, num_samples, rate, max_seconds)

    with _opened(segment.path) as (file, num_bytes):
        start = file.read(wav.MAX_HEADER_BYTES)
        kind = compressed_audio.kind_of(start)
        if kind:
            samples, rate = compressed_audio.read(file, num_bytes, kind, choose)
        else:
            header = wav.read_header(start, num_bytes)
            first, count = choose(header.num_samples, header.rate)
            file.seek(header.offset + first * header.frame_bytes)
            samples = wav.decode(file.read(count * header.frame_bytes), header)
            rate = header.rate
    samples = resample.resample(samples, rate, sample_rate)
    samples = np.clip(np.round(samples * _SCALE), -_SCALE, _SCALE - 1).astype(np.int16)
    if samples.min() == samples.max():
        raise ValueError("it is silent: all samples are equal")
    return samples


def _choose(segment, num_samples, rate, max_seconds):
    """Returns the first sample to read and their number.

    Args:
      segment: the part of the recording.
      num_samples: samples of each channel in the file.
      rate: Hz.
      max_seconds: length of the longest recording.

    Raises:
      ValueError: the segment is not in the recording, or there are too many samples.
    """
    first, end = round(segment.begin * rate), num_samples
    if segment.seconds is not None:
        end = round((segment.begin + segment.seconds) * rate)
    if first < 0 or first >= min(end, num_samples) or end - num_samples > _ROUNDING * rate:
        raise ValueError(
            f"the segment from {first / rate:g} to {end / rate:g} s is not in the recording of "
            f"{num_samples / rate:g} s"
        )
    if first == 0 and num_samples - end <= _ROUNDING * rate:  # the whole recording
        end = num_samples
    count = min(end, num_samples) - first
    if count > max_seconds * rate:
        raise ValueError(f"it has {count / rate:.2f} s, above --max_seconds={max_seconds:g}")
    return first, count


@contextlib.contextmanager
def _opened(path):
    """Yields a file object and the size of the file."""
    if folders.is_remote(path):
        import tensorflow as tf  # for remote files only: worker processes start faster without it

        num_bytes = tf.io.gfile.stat(path).length
        with tf.io.gfile.GFile(path, "rb") as file:
            yield file, num_bytes
        return
    if os.path.exists(path) and not os.path.isfile(path):  # such as a pipe, which never ends
        raise OSError("it is not a file")
    with open(path, "rb") as file:
        yield file, os.fstat(file.fileno()).st_size
