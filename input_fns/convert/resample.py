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


def resample(samples: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Returns float64 `[ceil(n * new_rate / rate)]` from float64 `[n]`."""
    divisor = math.gcd(rate, new_rate)
    up, down = new_rate // divisor, rate // divisor
    if up == down:
        return samples
    bank = filter_bank(up, down)  # [up, taps]
    taps = bank.shape[1]
    count = -(-len(samples) * up // down)
    # Output k is at sample k * down / up; its window is centred there.
    padded = np.pad(samples, (taps // 2, taps // 2 + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps)
    result = np.empty(count)
    for first in range(min(up, count)):  # outputs of one phase: every up-th
        start, phase = divmod(first * down, up)
        outputs = result[first::up]
        outputs[:] = windows[start::down][: len(outputs)] @ bank[phase]
    return result


@functools.lru_cache(maxsize=8)
def filter_bank(up: int, down: int) -> np.ndarray:
    """Returns the filter of each phase, float64 `[up, taps]`.

    Output at `p / up` after sample i is the dot product of row p and the samples from
    `i - taps // 2` on.
    """
    # Lowpass below both Nyquist frequencies, in units of the input's.
    cutoff = _CUTOFF * min(1.0, up / down)
    half = math.ceil(_ZEROS / cutoff)
    distance = np.arange(up)[:, np.newaxis] / up - np.arange(-half, half + 1)
    window = np.i0(_BETA * np.sqrt(np.maximum(1 - (distance / (half + 1)) ** 2, 0))) / np.i0(_BETA)
    bank = cutoff * np.sinc(cutoff * distance) * window
    return bank / bank.sum(axis=1, keepdims=True)
