"""Changes the sampling rate of audio by a polyphase filter (Crochiere and Rabiner 1983).

The filter is a sinc with a Kaiser window. NumPy only; tests compare it with SciPy.
"""

from __future__ import annotations

import functools
import math

import numpy as np

# Zero crossings of the sinc on each side, parameter of the window, and cutoff relative to the lower
# Nyquist frequency: 0.1 dB at 0.89 of it, -90 dB from 1.0 on.
_ZEROS, _BETA, _CUTOFF = 48, 9.0, 0.942
# Outputs that are filtered together, and numbers of a filter bank to keep: the rates of a file are
# untrusted, and those of 191,999 and 16,000 Hz would fill 150 MiB.
_BLOCK, _MAX_CACHED = 512, 2**20


def resample(samples: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Returns float64 `[ceil(n * new_rate / rate)]` from float64 `[n]`."""
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
    for first in range(0, min(up, count), _BLOCK):  # outputs of one phase: every up-th
        numbers = range(first, min(up, count, first + _BLOCK))
        for number, taps in zip(numbers, _bank(up, down, numbers)):
            outputs = result[number::up]
            outputs[:] = windows[number * down // up :: down][: len(outputs)] @ taps
    return result


def _bank(up, down, numbers):
    """Returns the filters of outputs, float64 `[len(numbers), taps]`."""
    phases = np.array(numbers) * down % up
    if up * (2 * _half(up, down) + 1) <= _MAX_CACHED:
        return filter_bank(up, down)[phases]
    return _filters(up, down, phases)


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
