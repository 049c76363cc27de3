"""The log-mel front end, equal to NumPy and librosa's formulas; unequal lengths; XLA."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from models.layers import device
from models.model import ModelError
from models.speech import log_mel
from tests import numerics
from tpu.check import compiler
from tpu.connect import topology

PARAMS = {
    **log_mel.default_params(num_mels=13),
    "sample_rate": 8000,
    "window_ms": 20.0,
    "hop_ms": 7.5,
}
SIZE = 1111  # 60 samples from a frame to the next: 19 frames
NUM_SAMPLES = np.array([1111, 700, 61, 60, 1], np.int32)


def waveforms(size=SIZE):
    random = np.random.default_rng(0)
    time = np.arange(size) / 8000
    tones = [np.sin(2 * np.pi * hertz * time) for hertz in (200, 440, 900, 1500, 3000)]
    samples = 0.2 * np.stack(tones) + random.normal(size=[5, size], scale=0.05)
    samples *= np.arange(size) < NUM_SAMPLES[:, np.newaxis]
    return samples.astype(np.float32)


def compute(features, params=PARAMS, jit_compile=False):
    @tf.function(jit_compile=jit_compile, autograph=False)
    def run(features):
        return log_mel.log_mel(features, params)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(run({name: tf.constant(value) for name, value in features.items()}))


def features(**more):
    return {"waveform": waveforms(), "num_samples": NUM_SAMPLES, **more}


def mel_filters(bins, num_mels, rate, lowest):
    """Triangles on the mel scale of HTK, 1127 ln(1 + f / 700), without the constant bin."""

    def to_mel(hertz):
        return 1127 * np.log1p(np.asarray(hertz) / 700)

    edges = np.linspace(to_mel(lowest), to_mel(rate / 2), num_mels + 2)
    places = to_mel(np.linspace(0, rate / 2, bins))[:, np.newaxis]
    rising = (places - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - places) / (edges[2:] - edges[1:-1])
    filters = np.maximum(0, np.minimum(rising, falling))
    filters[0] = 0
    return filters


def reference(normalization, samples=None):
    """Returns `[batch, frames, mels]` in float64, computed frame by frame."""
    samples = waveforms() if samples is None else samples
    filters = mel_filters(129, 13, 8000, 20)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(160) / 160)
    result = np.zeros([5, 19, 13])
    for i, count in enumerate(NUM_SAMPLES):
        row = np.pad(samples[i, :count].astype(np.float64), (0, SIZE))
        frames = [row[start : start + 160] * window for start in range(0, count, 60)]
        power = np.stack([np.abs(np.fft.rfft(frame, 256)) ** 2 @ filters for frame in frames])
        used = np.log(power / (power.mean() + 1e-10) + 1e-5)
        axis = None if normalization == "level" else 0
        used -= used.mean(axis=axis)
        if normalization != "mean":
            used /= np.sqrt((used**2).mean(axis=axis) + 1e-3)
        result[i, : len(used)] = used
    return result


# The window, 8 stages of the FFT, power, filter, level, logarithm, mean and variance; the longest
# sum has 129 products. The logarithm of the least power, 1e-5 of the mean, magnifies errors.
ARITHMETIC = {"terms": 129, "depth": 16, "magnitude": 11.5}


@pytest.mark.parametrize("normalization", log_mel.NORMALIZATIONS)
@pytest.mark.parametrize("jit_compile", [False, True], ids=["", "xla"])
def test_equals_numpy(normalization, jit_compile):
    found, num_frames = compute(
        features(), {**PARAMS, "normalization": normalization}, jit_compile=jit_compile
    )
    assert num_frames.tolist() == [19, 12, 2, 1, 1]
    numerics.assert_close(found, reference(normalization), **ARITHMETIC)
    # One changed sample of a thousand, which is in two frames.
    other = waveforms()
    other[:, 30] += 0.01
    numerics.assert_far(reference(normalization, other), reference(normalization), **ARITHMETIC)


def power_as_a_tpu_computes_it(monkeypatch):
    """Returns the power spectra of a TPU core, whose products have factors in bfloat16."""

    def matmul(*factors):
        return product(*(tf.cast(tf.cast(factor, tf.bfloat16), tf.float32) for factor in factors))

    product = tf.matmul
    monkeypatch.setattr(tf, "matmul", matmul)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = {name: tf.constant(value) for name, value in features().items()}
        with device.scope({"use_tpu": True}):
            return session.run(log_mel._power_spectrum(fed, PARAMS))


def power_error(power):
    """Returns the largest error of an amplitude, as a part of the sum of its terms' magnitudes."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(160) / 160)
    largest = 0.0
    for i, count in enumerate(NUM_SAMPLES):
        row = np.pad(waveforms()[i, :count].astype(np.float64), (0, SIZE + 160))
        for frame in range(19):
            windowed = row[60 * frame : 60 * frame + 160] * window
            if windowed.any():
                error = np.sqrt(power[i, frame]) - np.abs(np.fft.rfft(windowed, 256))
                largest = max(largest, np.abs(error).max() / np.abs(windowed).sum())
    return largest


def test_a_product_of_rounded_factors_on_a_tpu_is_exact_to_15_bits(monkeypatch):
    assert power_error(power_as_a_tpu_computes_it(monkeypatch)) < 2**-15


def test_without_the_rest_of_the_factors_it_is_not(monkeypatch):
    monkeypatch.setattr(log_mel, "_rounded", tf.identity)
    assert power_error(power_as_a_tpu_computes_it(monkeypatch)) > 2**-14


def test_padding_and_what_is_after_the_end_have_no_effect():
    found, _ = compute(features())
    noise = features()
    noise["waveform"] = noise["waveform"] + (np.arange(SIZE) >= NUM_SAMPLES[:, np.newaxis])
    numerics.assert_close(compute(noise)[0], found, **ARITHMETIC)
    longer = {"waveform": np.pad(waveforms(), ((0, 0), (0, 400))), "num_samples": NUM_SAMPLES}
    longer, _ = compute(longer)
    numerics.assert_close(longer[:, :19], found, **ARITHMETIC)
    assert not longer[:, 19:].any()


def test_masks_set_frames_and_bins_to_zero():
    masks = {
        "time_masks": np.tile(np.float32([[[0.25, 0.5], [0.9, 0.9]]]), [5, 1, 1]),
        "mel_masks": np.tile(np.float32([[[0, 2.4 / 13]]]), [5, 1, 1]),
    }
    plain, num_frames = compute(features())
    found, _ = compute(features(**masks))
    kept = np.ones([5, 19, 13], bool)
    for i, count in enumerate(num_frames):
        kept[i, round(0.25 * count) : round(0.5 * count)] = False
    kept[..., :2] = False
    numerics.assert_close(found, plain * kept, **ARITHMETIC)
    assert not found[~kept].any()


def test_a_shift_moves_the_mel_bins():
    plain, _ = compute(features())
    shift = np.float32([0, 1 / 13, -2 / 13, 0.5 / 13, 20])
    found, _ = compute(features(mel_shift=shift))
    expected = plain.copy()
    expected[1] = plain[1][:, [*range(1, 13), 12]]
    expected[2] = plain[2][:, [0, 0, *range(11)]]
    expected[3] = (plain[3] + plain[3][:, [*range(1, 13), 12]]) / 2
    expected[4] = plain[4][:, 12:]
    numerics.assert_close(found, expected, **ARITHMETIC)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sample_rate": 0},
        {"window_ms": 0.1},
        {"hop_ms": 0.0},
        {"num_mels": 0},
        {"lowest_hz": 4000.0},
        {"normalization": "max"},
        {"floor_db": 3.0},
    ],
)
def test_invalid_parameters(wrong):
    with pytest.raises(ModelError, match=next(iter(wrong))):
        log_mel.check_params({**PARAMS, **wrong})


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu is not installed: Linux, x86-64, Python 3.11 and the 'check' extra",
)
def test_tpu_compiler_lowers_the_front_end():
    params = {**log_mel.default_params(), "sample_rate": 16000}

    def run(waveform, num_samples):
        return log_mel.log_mel({"waveform": waveform, "num_samples": num_samples}, params)

    with context.eager_mode():
        specs = [tf.TensorSpec([4, 16000], tf.float32), tf.TensorSpec([4], tf.int32)]
        function = tf.function(run, specs, autograph=False, jit_compile=True)
        hlo = function.experimental_get_compiler_ir(*specs)(stage="hlo_serialized")
    assert compiler.compile_hlo(hlo, compiler.get_target(topology.find("v3-8"))).fits
