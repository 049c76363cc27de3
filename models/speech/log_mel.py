"""Log-mel spectrograms in the graph: the front end of speech models.

The same ops with static shapes run on a CPU, GPU and TPU and in a SavedModel. Frame i covers the
samples from `i * hop` on; a recording of n samples has `ceil(n / hop)` frames, and the last ones
are padded with zeros.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models.layers import device
from models.model import ModelError, check_positive

_SILENCE = 1e-10  # added to the power of a recording
_EPSILON = 1e-3  # of the variance
NORMALIZATIONS = ("level", "mean", "mean_variance")


def default_params(num_mels=80):
    """Returns the hyperparameters of `log_mel`."""
    return {
        "sample_rate": 16000,  # Hz; set by the data set
        "window_ms": 25.0,  # length of a frame
        "hop_ms": 10.0,  # from the start of a frame to the next
        "num_mels": num_mels,
        "lowest_hz": 20.0,  # of the mel filters; the highest is half the sampling rate
        # Added to the power, relative to the mean of the recording: hides its background noise.
        "floor_db": -50.0,
        # Mean and variance of 0 and 1 over the frames of a recording: of all mel bins together
        # (level), or of each (mean_variance, mean), which removes the response of a microphone and
        # needs recordings of more than a word.
        "normalization": "mean_variance",
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_positive(params, "sample_rate", "num_mels")
    for name in ("window_ms", "hop_ms"):
        if params[name] * params["sample_rate"] < 1000:
            raise ModelError(f"{name}={params[name]} must be one sample at least")
    if not 0 <= params["lowest_hz"] < params["sample_rate"] / 2:
        raise ModelError(f"lowest_hz={params['lowest_hz']} must be in [0, sample_rate / 2)")
    if params["floor_db"] > 0:
        raise ModelError(f"floor_db={params['floor_db']} must not be above 0")
    if params["normalization"] not in NORMALIZATIONS:
        raise ModelError(
            f"normalization={params['normalization']} must be {', '.join(NORMALIZATIONS)}"
        )


def hop_samples(params) -> int:
    """Returns the samples from the start of a frame to that of the next."""
    return int(params["hop_ms"] * params["sample_rate"] / 1000)


def num_frames_of(num_samples, params):
    """Returns the number of frames of int32 `[batch]` samples."""
    hop = hop_samples(params)
    return (num_samples + hop - 1) // hop


def log_mel(features, params):
    """Log-mel spectrograms, normalized, with the masks of SpecAugment.

    Args:
      features: "waveform", float32 `[batch, max_samples]` in [-1, 1]; "num_samples", int32
        `[batch]`; optionally "time_masks" and "mel_masks", float32 `[batch, n, 2]`, start and end
        of masks as fractions of the frames and of the mel bins; "mel_shift", float32 `[batch]`, a
        fraction of the mel bins.
      params: see `default_params`.

    Returns:
      float32 `[batch, frames, num_mels]`, 0 where masked and after the end, with
      `frames = ceil(max_samples / hop)`; and int32 `[batch]`, frames of each recording.
    """
    with tf.name_scope("log_mel"):
        power = _power_spectrum(features, params)  # [batch, frames, bins]
        filters = tf.signal.linear_to_mel_weight_matrix(
            params["num_mels"],
            power.shape.as_list()[-1],
            params["sample_rate"],
            params["lowest_hz"],
            params["sample_rate"] / 2,
        )
        power = tf.tensordot(power, filters, 1)  # [batch, frames, num_mels]
        num_frames = num_frames_of(features["num_samples"], params)
        level = _mean(power, num_frames, [1, 2]) + _SILENCE
        x = tf.math.log(power / level + 10 ** (params["floor_db"] / 10))
        x = _normalize(x, num_frames, params["normalization"])
        if "mel_shift" in features:
            x = _shift_mels(x, features["mel_shift"])
        frames, num_mels = x.shape.as_list()[1:]
        is_kept = frame_mask(num_frames, frames)[..., tf.newaxis]
        if "time_masks" in features:
            size = tf.cast(num_frames, tf.float32)[:, tf.newaxis]
            is_kept &= ~_is_masked(features["time_masks"], frames, size)[..., tf.newaxis]
        if "mel_masks" in features:
            size = tf.constant([[float(num_mels)]])
            is_kept &= ~_is_masked(features["mel_masks"], num_mels, size)[:, tf.newaxis]
        return tf.where(is_kept, x, 0.0), num_frames


def frame_mask(num_frames, frames):
    """Returns bool `[batch, frames]`, True for the first `num_frames`, int32 `[batch]`."""
    return tf.range(frames) < num_frames[:, tf.newaxis]


def _power_spectrum(features, params):
    waveform = features["waveform"]
    is_inside = frame_mask(features["num_samples"], waveform.shape.as_list()[1])
    waveform = tf.where(is_inside, waveform, 0.0)
    window = int(params["window_ms"] * params["sample_rate"] / 1000)
    hop = hop_samples(params)
    frames = -(-waveform.shape.as_list()[1] // hop)
    missing = max(0, (frames - 1) * hop + window - waveform.shape.as_list()[1])
    waveform = tf.pad(waveform, [[0, 0], [0, missing]])
    framed = tf.signal.frame(waveform, window, hop)[:, :frames]
    length = _fft_length(window)
    if device.is_tpu():
        real, imaginary = _fourier_products(tf.reshape(framed, [-1, window]), length)
        power = tf.square(real) + tf.square(imaginary)
    else:
        framed *= tf.signal.hann_window(window)
        # tf2onnx converts this form only: 2-D, padded before, and the absolute value.
        framed = tf.reshape(tf.pad(framed, [[0, 0], [0, 0], [0, length - window]]), [-1, length])
        power = tf.square(tf.abs(tf.signal.rfft(framed, [length])))
    return tf.reshape(power, [-1, frames, length // 2 + 1])


def _fourier_products(framed, length):
    """Fourier transforms of windowed frames as one matrix product, which a TPU is faster at.

    A TPU rounds the factors of a product to bfloat16. Each factor is split into its value in
    bfloat16 and the rest, so that the sum of three products is exact to 2**-15 of the sum of the
    magnitudes of its terms.

    Args:
      framed: float32 `[n, window]`.
      length: of the transform, at least the window.

    Returns:
      Real and imaginary parts, float32 `[n, length / 2 + 1]`.
    """
    window, bins = framed.shape.as_list()[1], length // 2 + 1
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    angles = 2 * np.pi * np.arange(window)[:, np.newaxis] * np.arange(bins) / length
    matrix = hann[:, np.newaxis] * np.concatenate([np.cos(angles), -np.sin(angles)], axis=1)
    matrix = tf.constant(matrix, tf.float32)
    matrix_rounded, framed_rounded = _rounded(matrix), _rounded(framed)
    framed = tf.concat([framed_rounded, framed - framed_rounded, framed_rounded], axis=1)
    matrix = tf.concat([matrix_rounded, matrix_rounded, matrix - matrix_rounded], axis=0)
    products = tf.matmul(framed, matrix)
    return products[:, :bins], products[:, bins:]


def _rounded(x):
    """Returns float32 `x`, rounded to numbers that bfloat16 has."""
    # XLA may remove a cast and one back, as the result is more exact without them.
    bits = tf.bitcast(x, tf.int32) + 2**15
    return tf.bitcast(tf.bitwise.bitwise_and(bits, tf.constant(-(2**16), tf.int32)), tf.float32)


def _fft_length(window):
    """Returns the smallest power of two that holds a window."""
    return 1 << (window - 1).bit_length()


def _mean(x, num_frames, axes):
    """Returns the mean over the frames of a recording, and over the mel bins if `axes` has them."""
    mask = tf.cast(frame_mask(num_frames, x.shape.as_list()[1]), x.dtype)[..., tf.newaxis]
    size = x.shape.as_list()[2] if 2 in axes else 1
    count = tf.cast(tf.maximum(num_frames, 1) * size, x.dtype)[:, tf.newaxis, tf.newaxis]
    return tf.reduce_sum(x * mask, axis=axes, keepdims=True) / count


def _normalize(x, num_frames, normalization):
    axes = [1, 2] if normalization == "level" else [1]
    x -= _mean(x, num_frames, axes)
    if normalization == "mean":
        return x
    return x * tf.math.rsqrt(_mean(tf.square(x), num_frames, axes) + _EPSILON)


def _shift_mels(x, shift):
    """Linear interpolation of `[batch, frames, num_mels]` at mel bins that are `shift` higher."""
    num_mels = x.shape.as_list()[2]
    bins = tf.range(num_mels, dtype=tf.float32)
    source = tf.clip_by_value(bins + shift[:, tf.newaxis] * num_mels, 0.0, num_mels - 1.0)
    # A matrix product instead of a gather, for a TPU: [batch, source, target].
    weights = tf.nn.relu(1 - tf.abs(bins[:, tf.newaxis] - source[:, tf.newaxis]))
    return tf.matmul(x, weights)


def _is_masked(masks, size, used):
    """Returns bool `[batch, size]`, whether a place is in a mask.

    Args:
      masks: float32 `[batch, n, 2]`, fractions of `used`.
      size: number of places.
      used: float32 `[batch or 1, 1]`, places that the fractions refer to.
    """
    place = tf.range(size, dtype=tf.float32)[:, tf.newaxis]  # [size, 1]
    start, end = (tf.round(masks[..., i] * used)[:, tf.newaxis] for i in (0, 1))
    return tf.reduce_any((place >= start) & (place < end), axis=-1)
