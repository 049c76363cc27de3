"""WAV files decoded by ops, equal to what prepare_data.py stores."""

import struct

import numpy as np
import pytest
import tensorflow as tf

from input_fns.audio import wav_ops
from input_fns.audio.sources import audio_files
from tests import audio_data
from tests.audio_data import SAMPLES, changed

FORMATS = [(8, False), (16, False), (24, False), (32, False), (32, True)]
RATE = 8000
pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module")
def decode():
    return tf.function(
        lambda content: wav_ops.decode(content, RATE, 200),
        input_signature=[tf.TensorSpec([], tf.string)],
    )


def stored(tmp_path, content):
    (tmp_path / "a.wav").write_bytes(content)
    return audio_files.read(str(tmp_path / "a.wav"), RATE, 200 / RATE)


def check(tmp_path, decode, content, size=101):
    mono, count = decode(content)
    assert count.numpy() == size
    found = mono.numpy() * 2**15
    # Of 24 and 32 bits and floats, float32 may round another way.
    assert np.abs(found - stored(tmp_path, content)).max() <= 1
    np.testing.assert_array_equal(found, np.round(found))


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(("bits", "is_float"), FORMATS)
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("extensible", [False, True])
def test_formats(tmp_path, decode, bits, is_float, channels, extensible):
    content = audio_data.wav(
        SAMPLES[:, :channels], bits=bits, is_float=is_float, extensible=extensible
    )
    check(tmp_path, decode, content)


def test_16_bits_are_unchanged(decode):
    numbers = np.random.default_rng(1).integers(-(2**15), 2**15, 101)
    mono, _ = decode(audio_data.wav(numbers / 2**15))
    np.testing.assert_array_equal(mono.numpy() * 2**15, numbers)


@pytest.mark.parametrize("size", [3, 4, 2001])
def test_other_chunks(tmp_path, decode, size):
    extra = audio_data.chunk(b"LIST", bytes(size)) + audio_data.chunk(b"fact", b"1234")
    content = audio_data.wav(SAMPLES, extra=extra) + audio_data.chunk(b"id3 ", b"x" * 9)
    check(tmp_path, decode, content)


def test_a_chunk_without_padding(tmp_path, decode):
    extra = audio_data.chunk(b"LIST", b"odd")[:-1]
    check(tmp_path, decode, audio_data.wav(SAMPLES, extra=extra))


@pytest.mark.parametrize("sizes", [(2**32 - 1, 2**32 - 1), (0, 0), (36, 0), (2**31, 2**31 - 4096)])
@pytest.mark.parametrize("rest", [b"", b"\1"])
def test_streams(tmp_path, decode, sizes, rest):
    content = bytearray(audio_data.wav(SAMPLES) + rest)
    struct.pack_into("<I", content, 4, sizes[0])
    struct.pack_into("<I", content, 40, sizes[1])
    check(tmp_path, decode, bytes(content))


def test_rf64(tmp_path, decode):
    samples = audio_data.wav(SAMPLES)
    sizes = audio_data.chunk(b"ds64", struct.pack("<QQQI", 0, 404, 101, 0))
    unknown = struct.pack("<I", 2**32 - 1)
    content = b"RF64" + unknown + b"WAVE" + sizes + samples[12:40] + unknown + samples[44:]
    check(tmp_path, decode, content + audio_data.chunk(b"LIST", b"behind"))


INVALID = {
    "empty": (b"", "is not a WAV file"),
    "a page": (b"<!DOCTYPE html><html></html>", "is not a WAV file"),
    "no chunks": (b"RIFF\0\0\0\0WAVE", "has no samples"),
    "samples first": (b"RIFF\0\0\0\0WAVE" + audio_data.chunk(b"data", bytes(8)), "no samples"),
    "mu-law": (changed(20, "<H", 7), "must have 1 to 8 channels"),
    "12 bits": (changed(34, "<H", 12), "must have 1 to 8 channels"),
    "64 bits": (changed(34, "<H", 64), "must have 1 to 8 channels"),
    "no channels": (changed(22, "<H", 0), "must have 1 to 8 channels"),
    "another rate": (changed(24, "<I", 16000), "is not at 8000 Hz"),
    "truncated": (audio_data.wav(SAMPLES)[:-7], "is truncated"),
    "no samples": (b"RIFF\x24\0\0\0" + audio_data.wav(SAMPLES[:0])[8:], "not have 1 to 200"),
    "too long": (audio_data.wav(np.zeros(201)), "not have 1 to 200"),
    "NaN": (audio_data.wav([0, np.nan], bits=32, is_float=True), "not in"),
    "integers as floats": (audio_data.wav([0, 327], bits=32, is_float=True), "not in"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_files(decode, name):
    content, reason = INVALID[name]
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        decode(content)


def test_what_the_ops_accept_prepare_data_accepts(tmp_path, decode):
    random = np.random.default_rng(5)
    content = audio_data.wav(SAMPLES, extensible=True)
    num_compared = 0
    for _ in range(400):
        broken = bytearray(content)
        for place in random.integers(0, 70, 2):
            broken[place] = random.choice([0, 1, 255, random.integers(256)])
        try:
            mono, _ = decode(bytes(broken))
        except tf.errors.InvalidArgumentError:
            continue
        (tmp_path / "a.wav").write_bytes(bytes(broken))
        expected = audio_files.read_file(str(tmp_path / "a.wav"), RATE, 200 / RATE)
        if isinstance(expected, str):
            # The ops do not compare the bytes of a frame with its channels and bits.
            assert "bits are not" in expected or "silent" in expected, expected
            continue
        assert np.abs(mono.numpy() * 2**15 - expected).max() <= 1
        num_compared += 1
    assert num_compared > 30
