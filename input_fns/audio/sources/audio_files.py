"""Reads recordings as mono at one sampling rate. Imports no TensorFlow: worker processes run it."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from common import folders
from input_fns.audio.sources import compressed_audio, wav
from input_fns.convert import files

_SCALE = 2.0**15  # of 16-bit samples
# Seconds by which the length of a recording may differ in a table, which has rounded numbers.
_ROUNDING = 0.1
# Zero crossings of the sinc on each side, parameter of the window, and cutoff relative to the lower
# Nyquist frequency: 0.1 dB at 0.89 of it, -90 dB from 1.0 on.
_ZEROS, _BETA, _CUTOFF = 48, 9.0, 0.942
# Outputs that are filtered together, and numbers of a filter bank to keep: the rates of a file are
# untrusted, and those of 191,999 and 16,000 Hz would fill 150 MiB.
_BLOCK, _MAX_CACHED = 512, 2**20


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


def read_file(item: str | Segment, sample_rate: int, max_seconds: float) -> np.ndarray | str:
    """Reads a recording; returns the reason instead of the samples if it is invalid. See `read`."""
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

    with files.open_file(segment.path) as file:
        num_bytes = files.num_bytes(segment.path)
        # Not MAX_HEADER_BYTES of every file: a buffer of 1 MiB takes longer than 100 kB of samples.
        start = file.read(min(num_bytes, wav.MAX_HEADER_BYTES))
        kind = compressed_audio.kind_of(start)
        if kind:
            samples, rate = compressed_audio.read(file, num_bytes, kind, choose)
        else:
            header = wav.read_header(start, num_bytes)
            rate = header.rate
            first, count = choose(header.num_samples, rate)
            place = header.offset + first * header.frame_bytes
            end = place + count * header.frame_bytes
            if end > len(start):
                file.seek(place)
                start, place, end = file.read(end - place), 0, end - place
            samples = wav.decode(memoryview(start)[place:end], header)
    if samples.dtype != np.int16 or rate != sample_rate:
        if samples.dtype == np.int16:
            samples = samples / _SCALE
        samples = resample(samples, rate, sample_rate) * _SCALE
        samples = np.clip(np.round(samples), -_SCALE, _SCALE - 1).astype(np.int16)
    if samples.min() == samples.max():
        raise ValueError("it is silent: all samples are equal")
    return samples


def _choose(segment, num_samples, rate, max_seconds):
    """Returns the first sample of a segment of a file, and their number.

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


def resample(samples: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Changes the sampling rate by a polyphase filter (Crochiere and Rabiner 1983).

    The filter is a sinc with a Kaiser window.

    Args:
      samples: float64 `[n]`.
      rate: their rate.
      new_rate: the rate of the result.

    Returns:
      float64 `[ceil(n * new_rate / rate)]`.
    """
    divisor = math.gcd(rate, new_rate)
    up, down = new_rate // divisor, rate // divisor
    if up == down:
        return samples
    count = -(-len(samples) * up // down)
    half = _half(up, down)
    # Output k is at sample k * down / up; its window is centred there.
    padded = np.pad(samples, (half, half + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    result = np.empty(count)
    # Outputs whose windows do not overlap, or NumPy would compute their products without BLAS.
    apart = -(-windows.shape[1] // down)
    for first in range(0, min(up, count), _BLOCK):  # outputs of one phase: every up-th
        numbers = range(first, min(up, count, first + _BLOCK))
        phases = np.array(numbers) * down % up
        is_cached = up * (2 * half + 1) <= _MAX_CACHED
        bank = filter_bank(up, down)[phases] if is_cached else _filters(up, down, phases)
        for number, taps in zip(numbers, bank):
            for begin in range(number, min(count, number + apart * up), up):
                outputs = result[begin :: apart * up]
                outputs[:] = windows[begin * down // up :: apart * down][: len(outputs)] @ taps
    return result


def _half(up, down):
    """Returns the taps on each side of the middle one."""
    return math.ceil(_ZEROS / (_CUTOFF * min(1.0, up / down)))


@functools.lru_cache(maxsize=8)
def filter_bank(up: int, down: int) -> np.ndarray:
    """Returns the filter of each phase, float64 `[up, taps]`.

    Output at `p / up` after sample i is the dot product of row p and the samples from
    `i - taps // 2` on.
    """
    return _filters(up, down, np.arange(up))


def _filters(up, down, phases):
    """Returns rows of `filter_bank`."""
    # Lowpass below both Nyquist frequencies, in units of the input's.
    cutoff = _CUTOFF * min(1.0, up / down)
    half = _half(up, down)
    distance = phases[:, np.newaxis] / up - np.arange(-half, half + 1)
    window = np.i0(_BETA * np.sqrt(np.maximum(1 - (distance / (half + 1)) ** 2, 0))) / np.i0(_BETA)
    bank = cutoff * np.sinc(cutoff * distance) * window
    return bank / bank.sum(axis=1, keepdims=True)
