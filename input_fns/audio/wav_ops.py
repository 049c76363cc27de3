"""Decodes WAV files as TensorFlow ops, for a SavedModel. `sources.wav` reads the same files.

`tf.audio.decode_wav` knows neither WAVEFORMATEXTENSIBLE nor streams nor other widths than 16 bits.
"""

from __future__ import annotations

import tensorflow as tf

from input_fns.audio import wav_format
from input_fns.core.records import no_autograph

_SCALE = 2.0**15  # of 16-bit samples
_MOST_CHUNKS = 1000
_UNPADDED = list(wav_format.UNPADDED)


def decode(content: tf.Tensor, sample_rate: int, max_samples: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the mean of the channels, as prepare_data.py stores it.

    Running it raises InvalidArgumentError if the file is not a WAV file of integers of 8 to 32 bits
    or floats of 32, at this sampling rate, and of 1 to `max_samples` samples.

    Args:
      content: string scalar, the file.
      sample_rate: Hz.
      max_samples: samples of the longest recording.

    Returns:
      float32 `[n]` in [-1, 1), multiples of 2**-15, and `n`, an int32 scalar.
    """
    is_wav = tf.reduce_any(tf.equal(_part(content, 0, 4), ["RIFF", "RF64", "BW64"]))
    is_wav &= tf.equal(_part(content, 8, 4), "WAVE")
    with _checked(is_wav, "a file is not a WAV file"):
        place, form, size = _find_samples(tf.identity(content))
    tag, channels, rate, bits = _parse_format(form)
    with _checked(
        (channels > 0) & (channels <= wav_format.MAX_CHANNELS) & _is_readable(tag, bits),
        "a WAV file must have 1 to 8 channels, of integers of 8, 16, 24 or 32 bits or of floats of "
        "32; its format, bits and channels are:",
        *(tag, bits, channels),
    ):
        frame_bytes = tf.maximum(channels * bits // 8, 1)
    left = _length(content) - place
    count = tf.minimum(size, left) // frame_bytes
    checks = [
        _check(tf.equal(rate, sample_rate), f"a WAV file is not at {sample_rate} Hz, but:", rate),
        _check(
            size - left < frame_bytes,
            "a WAV file is truncated; bytes of its samples in the header and in the file:",
            *(size, left),
        ),
        _check(
            (count > 0) & (count <= max_samples),
            f"a WAV file does not have 1 to {max_samples} samples, but:",
            count,
        ),
    ]
    with tf.control_dependencies(checks):
        data = tf.io.decode_raw(_part(content, place, count * frame_bytes), tf.uint8)
    samples = _to_floats(data, tf.cast(bits // 8, tf.int32), tf.equal(tag, wav_format.FLOAT))
    is_valid = tf.reduce_all(tf.abs(samples) <= wav_format.LARGEST_FLOAT)  # false for NaN
    with _checked(is_valid, "a WAV file has floats that are not in [-1, 1]"):
        samples = tf.reshape(samples, [-1, tf.cast(channels, tf.int32)])
    # As 16-bit integers, like the recordings of the data set.
    mono = tf.round(tf.reduce_mean(samples, axis=1) * _SCALE)
    return tf.clip_by_value(mono, -_SCALE, _SCALE - 1) / _SCALE, tf.cast(count, tf.int32)


def _find_samples(content):
    """Returns the place of the samples, the format as a string, and the bytes of the samples."""
    length = _length(content)

    @no_autograph
    def is_before_samples(place, form, size, long_size, is_found):
        del form, size, long_size
        return ~is_found & (place + 8 <= length)

    @no_autograph
    def next_chunk(place, form, size, long_size, is_found):
        kind, size = _part(content, place, 4), _number(_part(content, place + 4, 4))
        place += 8
        form = tf.where(tf.equal(kind, "fmt "), _part(content, place, tf.minimum(size, 40)), form)
        # The upper bytes of a size of 64 bits are beyond any string.
        long_size = tf.where(
            tf.equal(kind, "ds64"), _number(_part(content, place + 8, 4)), long_size
        )
        is_found = tf.equal(kind, "data")
        is_padded = tf.reduce_all(tf.not_equal(_part(content, place + size, 4), _UNPADDED))
        padding = size % 2 * tf.cast(is_padded, tf.int64)
        place = tf.where(is_found, place, place + size + padding)
        return place, form, size, long_size, is_found

    zero = tf.constant(0, tf.int64)
    place, form, size, long_size, is_found = tf.while_loop(
        is_before_samples,
        next_chunk,
        (zero + 12, tf.constant(""), zero, zero, tf.constant(False)),
        maximum_iterations=_MOST_CHUNKS,
    )
    with _checked(is_found & (_length(form) >= 16), "a WAV file has no samples"):
        left = length - place
    size = tf.where(tf.equal(size, 2**32 - 1) & (long_size > 0), long_size, size)
    # As in `sources.wav`: the writer of a stream did not know its size.
    is_open = tf.equal(size, 0) & (_number(_part(content, 4, 4)) + 8 < length)
    is_stream = is_open | ((size >= wav_format.STREAM_SIZE) & (size > left))
    return place, form, tf.where(is_stream, left, size)


def _parse_format(form):
    """Returns tag, channels, rate and bits, int64 scalars; tag -1 if it is unknown."""
    tag = _number(_part(form, 0, 2))
    is_known = tf.equal(_part(form, 26, 14), wav_format.GUID)
    long_tag = tf.where(is_known, _number(_part(form, 24, 2)), tf.constant(-1, tf.int64))
    tag = tf.where(tf.equal(tag, wav_format.EXTENSIBLE), long_tag, tag)
    return tag, *(_number(_part(form, place, size)) for place, size in ((2, 2), (4, 4), (14, 2)))


def _is_readable(tag, bits):
    is_width = tf.reduce_any(tf.equal(bits, tf.constant([8, 16, 24, 32], tf.int64)))
    is_integer = tf.equal(tag, wav_format.INTEGER) & is_width
    return is_integer | (tf.equal(tag, wav_format.FLOAT) & tf.equal(bits, 32))


def _to_floats(data, width, is_float):
    """Returns float32 `[n]` from the bytes of little-endian samples, uint8 `[n * width]`."""
    # The upper bytes of 32 bits; samples of 8 bits have no sign, but 128 for 0.
    sign = tf.where(tf.equal(width, 1), tf.constant(128, tf.uint8), tf.constant(0, tf.uint8))
    data = tf.reshape(tf.bitwise.bitwise_xor(data, sign), [-1, width])
    wide = tf.ensure_shape(tf.pad(data, [[0, 0], [4 - width, 0]]), [None, 4])
    integers = tf.cast(tf.bitcast(wide, tf.int32), tf.float32) / 2.0**31
    return tf.where(is_float, tf.bitcast(wide, tf.float32), integers)


def _length(content):
    return tf.cast(tf.strings.length(content), tf.int64)


def _part(content, place, size):
    """Returns up to `size` bytes from a place on, "" behind the end."""
    place = tf.minimum(tf.cast(place, tf.int64), _length(content))
    return tf.strings.substr(content, place, tf.cast(size, tf.int64))


def _number(data):
    """Returns the little-endian number in a string of up to 4 bytes, an int64 scalar."""
    data = tf.cast(tf.io.decode_raw(data, tf.uint8), tf.int64)
    return tf.reduce_sum(data * tf.constant([1, 2**8, 2**16, 2**24], tf.int64)[: tf.shape(data)[0]])


def _check(condition, what, *values):
    return tf.debugging.Assert(condition, [what, *values])


def _checked(condition, what, *values):
    return tf.control_dependencies([_check(condition, what, *values)])
