"""Reads WAV files as mono at one sampling rate. Imports no TensorFlow: worker processes run it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from input_fns.convert import resample, wav

_SCALE = 2**15  # of 16-bit samples


def read_many(paths: Sequence[str], sample_rate: int, max_seconds: float) -> list[np.ndarray | str]:
    """Reads files; returns the reason instead of the samples if a file is invalid."""
    return [_read_one(path, sample_rate, max_seconds) for path in paths]


def _read_one(path, sample_rate, max_seconds):
    try:
        return read(path, sample_rate, max_seconds)
    except (OSError, ValueError) as error:
        return " ".join(str(error).split())


def read(path: str, sample_rate: int, max_seconds: float) -> np.ndarray:
    """Returns the samples of a WAV file, int16 `[n]`, at `sample_rate`.

    Raises:
      OSError, ValueError: it is missing, not a valid WAV file, too long or silent.
    """
    # Bytes of the longest recording: a larger file is too long, or has a header that is.
    limit = wav.MAX_HEADER_BYTES + math.ceil(max_seconds * wav.HIGHEST_RATE) * wav.MAX_CHANNELS * 8
    data, num_bytes = _read_start(path, limit)
    header = wav.read_header(data[: wav.MAX_HEADER_BYTES], num_bytes)
    if header.num_samples > max_seconds * header.rate:
        raise ValueError(
            f"it has {header.num_samples / header.rate:.2f} s, above --max_seconds={max_seconds:g}"
        )
    samples = resample.resample(wav.decode(data, header), header.rate, sample_rate)
    samples = np.clip(np.round(samples * _SCALE), -_SCALE, _SCALE - 1).astype(np.int16)
    if samples.min() == samples.max():
        raise ValueError("it is silent: all samples are equal")
    return samples


def _read_start(path, limit):
    """Returns up to `limit` bytes of a file, and its size."""
    if "://" in path:
        import tensorflow as tf  # for remote files only: worker processes start faster without it

        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read(limit), tf.io.gfile.stat(path).length
    if os.path.exists(path) and not os.path.isfile(path):  # such as a pipe, which never ends
        raise OSError("it is not a file")
    with open(path, "rb") as file:
        return file.read(limit), os.fstat(file.fileno()).st_size
