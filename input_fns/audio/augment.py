"""Augmentation of recordings on the host, on whole batches.

`--augment` lists operations, applied from left to right, with their arguments after colons:

    speed:LOW:HIGH        LOW to HIGH times the speed, with the pitch (Ko et al. 2015)
    shift:SECONDS         silence of up to SECONDS before the recording
    filter:RADIUS         a random filter with two pairs of zeros, like another microphone and room
    noise:LOW:HIGH        noise at a signal-to-noise ratio of LOW to HIGH dB, white to red or blue
    time_mask:N:FRACTION  SpecAugment: N masks of up to FRACTION of the frames of an example
    mel_mask:N:FRACTION   SpecAugment: N masks of up to FRACTION of the mel bins
    mel_shift:FRACTION    up to FRACTION of the mel bins up or down, like another vocal tract

Each operation is a function of the examples and of their random numbers. The two masks of
SpecAugment (Park et al. 2019, arXiv:1904.08779) are sampled here, as features "time_masks" and
"mel_masks", float32 `[batch, N, 2]`: start and end as fractions; likewise "mel_shift", float32
`[batch]`. The model applies them to its log-mel spectrograms.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from common import names
from input_fns import DataError
from input_fns.image.augment.augmentation import Operation, make_operation

# Samples of the noise that all examples take windows of.
_NOISE_SAMPLES = 2**19


def speed(features, numbers, low, high):
    """Interpolates at another speed (Catmull-Rom); a slow copy still fits into its row."""
    waveform, num_samples = features["waveform"], features["num_samples"]
    speed = low + numbers[:, 0] * (high - low)
    size = waveform.shape.as_list()[1]
    speed = tf.maximum(speed, tf.cast(num_samples, tf.float32) / size)
    place = tf.range(size, dtype=tf.float32) * speed[:, tf.newaxis]
    before = tf.cast(place, tf.int32)
    t = place - tf.cast(before, tf.float32)
    padded = tf.pad(waveform, [[0, 0], [1, 2]])
    a, b, c, d = (
        tf.gather(padded, tf.minimum(before + i, size + 2), batch_dims=1) for i in range(4)
    )
    curve = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
    count = tf.cast(tf.cast(num_samples, tf.float32) / speed, tf.int32)
    count = tf.clip_by_value(count, 1, size)
    return {**features, "waveform": _masked(curve, count), "num_samples": count}


def shift(features, numbers, seconds):
    """Puts silence before the recordings, as far as their rows have room."""
    waveform, num_samples = features["waveform"], features["num_samples"]
    size = waveform.shape.as_list()[1]
    most = tf.minimum(size - num_samples, int(seconds * features["sample_rate"]))
    shift = tf.cast(numbers[:, 0] * tf.cast(most + 1, tf.float32), tf.int32)
    source = tf.range(size) - shift[:, tf.newaxis]
    moved = tf.gather(waveform, tf.maximum(source, 0), batch_dims=1)
    moved = tf.where(source >= 0, moved, 0.0)
    return {**features, "waveform": moved, "num_samples": num_samples + shift}


def random_filter(features, numbers, largest):
    """Applies two finite filters, each with a conjugate pair of zeros, and keeps the power.

    The frequencies of the zeros are random, and their radii up to `largest`.
    """
    waveform, num_samples = features["waveform"], features["num_samples"]
    filtered = waveform
    for i in (0, 2):
        radius = largest * numbers[:, i : i + 1]
        middle = -2 * radius * tf.cos(np.pi * numbers[:, i + 1 : i + 2])
        padded = tf.pad(filtered, [[0, 0], [2, 0]])
        filtered = padded[:, 2:] + middle * padded[:, 1:-1] + radius**2 * padded[:, :-2]
    filtered = _masked(filtered, num_samples)
    powers = [tf.reduce_sum(x**2, axis=1, keepdims=True) for x in (waveform, filtered)]
    scale = tf.sqrt(tf.math.divide_no_nan(*powers))
    return {**features, "waveform": filtered * scale}


def noise(features, numbers, low, high):
    """Adds Gaussian noise through a filter of first order, at a random signal-to-noise ratio."""
    waveform, num_samples = features["waveform"], features["num_samples"]
    size = waveform.shape.as_list()[1]
    samples = tf.random.stateless_normal([_NOISE_SAMPLES + size + 1], [34, 34])
    start = tf.cast(numbers[:, 0] * _NOISE_SAMPLES, tf.int32)
    window = tf.gather(samples, start[:, tf.newaxis] + tf.range(size + 1))
    color = 2 * numbers[:, 1:2] - 1
    window = (window[:, 1:] + color * window[:, :-1]) * tf.math.rsqrt(1 + color**2)
    power = tf.reduce_sum(waveform**2, axis=1) / tf.cast(num_samples, tf.float32)
    decibels = low + numbers[:, 2] * (high - low)
    scale = tf.sqrt(power * 10 ** (-decibels / 10))
    noisy = waveform + window * scale[:, tf.newaxis]
    return {**features, "waveform": _masked(noisy, num_samples)}


def masks(name, features, numbers, count, fraction):
    """Samples masks as fractions: widths uniform up to `fraction`, then places."""
    place, width = tf.split(tf.reshape(numbers, [-1, count, 2]), 2, axis=-1)
    width *= fraction
    start = place * (1 - width)
    return {**features, name: tf.concat([start, start + width], axis=-1)}


def mel_shift(features, numbers, fraction):
    """Samples a shift of the mel bins."""
    return {**features, "mel_shift": (2 * numbers[:, 0] - 1) * fraction}


_MASKS = {"time_mask": "time_masks", "mel_mask": "mel_masks"}
_OPERATIONS = {
    "speed": Operation(1, (("LOW", 0.25, 4), ("HIGH", 0.25, 4)), speed),
    "shift": Operation(1, (("SECONDS", 0, 60),), shift),
    "filter": Operation(4, (("RADIUS", 0, 1),), random_filter),
    "noise": Operation(3, (("LOW", -20, 100), ("HIGH", -20, 100)), noise),
    **{
        word: Operation(
            lambda count, fraction: 2 * count,
            (("N", 1, 20), ("FRACTION", 0, 1)),
            functools.partial(masks, feature),
        )
        for word, feature in _MASKS.items()
    },
    "mel_shift": Operation(1, (("FRACTION", 0, 0.5),), mel_shift),
}


def parse(text: str) -> AudioAugmentation:
    """Returns the augmentation that a value of `--augment` describes.

    Raises:
      DataError: an operation is unknown or repeated, or its arguments are invalid.
    """
    operations = tuple(make_operation(word, _OPERATIONS) for word in text.split())
    twice = names.repeated(operation.name for operation in operations)
    if twice:
        raise DataError(f"--augment={text}: '{twice[0]}' is repeated")
    return AudioAugmentation(operations)


@dataclasses.dataclass(frozen=True)
class AudioAugmentation:
    """Augmentation of recordings; a function of their random numbers (`draw`).

    Attributes:
      operations: the operations, in order.
    """

    operations: tuple[Operation, ...] = ()

    @property
    def masks(self) -> dict[str, int]:
        """Number of masks of SpecAugment by the name of their feature."""
        return {
            _MASKS[operation.name]: operation.values[0]
            for operation in self.operations
            if operation.name in _MASKS
        }

    def draw(self, count: int, seed: tf.Tensor) -> tf.Tensor:
        """Returns float32 `[count, numbers]`, uniform in [0, 1), a function of `seed`."""
        # One at least: tf.data's parallel batch crashes on tensors without elements.
        numbers = max(1, sum(operation.numbers for operation in self.operations))
        return tf.random.stateless_uniform([count, numbers], seed)

    def apply(self, features: dict, numbers: tf.Tensor, sample_rate: int) -> dict:
        """Returns augmented features.

        Args:
          features: "waveform", float32 `[batch, max_samples]`, 0 after the end, and "num_samples",
            int32 `[batch]`.
          numbers: float32 `[batch, numbers]` of `draw`.
          sample_rate: samples per second.
        """
        column = 0
        features = {**features, "sample_rate": sample_rate}
        for operation in self.operations:
            own = numbers[:, column : column + operation.numbers]
            column += operation.numbers
            features = operation(features, own)
        del features["sample_rate"]
        return features


def _masked(waveform, num_samples):
    is_inside = tf.range(waveform.shape.as_list()[1]) < num_samples[:, tf.newaxis]
    return tf.where(is_inside, waveform, 0.0)
