"""The resampler, equal to SciPy's polyphase filter, and as good as it for tones."""

import math

import numpy as np
import pytest

from input_fns.audio.sources.audio_files import filter_bank, resample

RATES = [
    (8000, 16000),
    (11025, 16000),
    (22050, 8000),
    (44100, 16000),
    (48000, 16000),
    (96000, 16000),
    (11999, 8000),
]


@pytest.mark.parametrize(("rate", "new_rate"), RATES[:-1])
def test_equals_scipy_with_the_same_filter(rate, new_rate):
    signal = pytest.importorskip("scipy.signal")
    divisor = math.gcd(rate, new_rate)
    up, down = new_rate // divisor, rate // divisor
    samples = np.random.default_rng(0).normal(size=501)
    bank = filter_bank(up, down)  # phase p of tap j is the filter at p - up * (j - taps // 2)
    taps = bank.shape[1]
    full = np.zeros(2 * up * (taps // 2) + 2 * up + 1)
    middle = len(full) // 2
    for phase in range(up):
        for tap in range(taps):
            full[middle + phase - up * (tap - taps // 2)] = bank[phase, tap]
    expected = signal.resample_poly(samples, up, down, window=full / up)
    found = resample(samples, rate, new_rate)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("rate", "new_rate"), RATES)
@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.85])
def test_a_tone_keeps_its_samples(rate, new_rate, fraction):
    hertz = fraction * min(rate, new_rate) / 2
    found = resample(np.sin(2 * np.pi * hertz * np.arange(4000) / rate), rate, new_rate)
    expected = np.sin(2 * np.pi * hertz * np.arange(len(found)) / new_rate)
    inner = slice(len(found) // 4, -len(found) // 4)
    # -90 dB: the rounding of 16-bit samples is at -98 dB of a full tone.
    assert np.sqrt(np.mean((found - expected)[inner] ** 2)) < 10 ** (-90 / 20)


@pytest.mark.parametrize(("rate", "new_rate"), [(16000, 8000), (44100, 16000), (48000, 8000)])
def test_a_tone_above_the_new_nyquist_frequency_is_removed(rate, new_rate):
    hertz = 1.05 * new_rate / 2
    found = resample(np.sin(2 * np.pi * hertz * np.arange(6000) / rate), rate, new_rate)
    assert np.abs(found[len(found) // 4 : -len(found) // 4]).max() < 10 ** (-85 / 20)


def test_the_same_rate_changes_nothing():
    samples = np.arange(7.0)
    assert resample(samples, 8000, 8000) is samples


@pytest.mark.parametrize("size", [1, 2, 101])
def test_the_number_of_samples(size):
    assert len(resample(np.ones(size), 44100, 16000)) == math.ceil(size * 16000 / 44100)


def test_a_large_filter_bank_is_made_in_blocks():
    samples = np.random.default_rng(0).normal(size=3001)
    rate, new_rate = 9001, 8000  # 8000 filters of 115 taps
    found = resample(samples, rate, new_rate)
    bank = filter_bank(new_rate, rate)
    half = bank.shape[1] // 2
    padded = np.pad(samples, half + 1)
    for number in (0, 1, 511, 512, 513, len(found) - 1):
        start, phase = divmod(number * rate, new_rate)
        window = padded[start + 1 : start + 2 + 2 * half]
        assert abs(found[number] - window @ bank[phase]) < 1e-12
