"""WAV files of all formats, equal to SciPy's reader, and hostile headers."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf

from input_fns.audio.sources import audio_files, wav
from tests import audio_data
from tests.audio_data import SAMPLES, changed

FORMATS = [(8, False), (16, False), (24, False), (32, False), (32, True), (64, True)]


def decode(content):
    header = wav.read_header(content, len(content))
    samples = wav.decode(content[header.offset : header.end], header)
    return samples / 2.0**15 if samples.dtype == np.int16 else samples


@pytest.mark.parametrize(("bits", "is_float"), FORMATS)
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("extensible", [False, True])
def test_samples_equal_scipy(bits, is_float, channels, extensible):
    wavfile = pytest.importorskip("scipy.io.wavfile")
    content = audio_data.wav(
        SAMPLES[:, :channels], bits=bits, is_float=is_float, extensible=extensible
    )
    rate, expected = wavfile.read(io.BytesIO(content))
    expected = expected.astype(np.float64).reshape(101, channels)
    if not is_float:
        # SciPy reads 24 bits as the upper ones of 32.
        expected = (expected - 128) / 128 if bits == 8 else expected / 2 ** (-bits // 16 * -16 - 1)
    assert rate == wav.read_header(content, len(content)).rate
    np.testing.assert_allclose(decode(content), expected.mean(axis=1), atol=1e-12)


@pytest.mark.parametrize(("bits", "is_float"), FORMATS)
def test_samples_are_what_was_written(bits, is_float):
    found = decode(audio_data.wav(SAMPLES, bits=bits, is_float=is_float))
    resolution = 2.0**-23 if is_float else 2.0 ** (1 - bits)
    np.testing.assert_allclose(found, SAMPLES.mean(axis=1), atol=resolution)


def test_other_chunks_before_and_after_the_samples_are_skipped():
    extra = audio_data.chunk(b"LIST", b"odd") + audio_data.chunk(b"fact", b"1234")
    content = audio_data.wav(SAMPLES, extra=extra) + audio_data.chunk(b"id3 ", b"x" * 9)
    np.testing.assert_array_equal(decode(content), decode(audio_data.wav(SAMPLES)))


@pytest.mark.parametrize("size", [1, 3, 99])
def test_a_chunk_of_odd_size_without_padding(size):
    extra = audio_data.chunk(b"LIST", b"x" * size)[:-1]
    content = audio_data.wav(SAMPLES, extra=extra)
    np.testing.assert_array_equal(decode(content), decode(audio_data.wav(SAMPLES)))


HOSTILE = {
    "empty": (b"", "it is empty"),
    "text": (b"hello, this is text", "it is not a WAV file"),
    "only a magic number": (b"RIFF\0\0\0\0WAVE", "it has no samples"),
    "big endian": (b"RIFX" + bytes(40), "RIFX is unsupported"),
    "a page": (b"<!DOCTYPE html>", "it is not a WAV file: it begins with b'<!DOCTYPE ht'"),
    "no channels": (changed(22, "<H", 0), "0 channels are not 1 to 8"),
    "many channels": (changed(22, "<H", 9), "9 channels"),
    "rate 0": (changed(24, "<I", 0), "its rate of 0 Hz is not 1000 to 384000"),
    "rate 4 GHz": (changed(24, "<I", 2**32 - 1), "its rate of 4294967295 Hz"),
    "another size of a frame": (changed(32, "<H", 3), "2 channels of 16 bits are not 3 bytes"),
    "12 bits": (changed(34, "<H", 12), "format 1 with 12 bits is unsupported"),
    "mu-law": (changed(20, "<H", 7), "format 7 with 16 bits is unsupported"),
    "more samples": (changed(40, "<I", 408), "b'data' should have 408 bytes, but 404 are left"),
    "4 GiB of format": (changed(16, "<I", 2**32 - 2), "should have 4294967294 bytes"),
    "a short format": (changed(16, "<I", 14), "its format has 14 bytes, not 16"),
    "no samples": (audio_data.wav(SAMPLES[:0]), "it has no samples"),
    "closed without samples": (
        b"RIFF\x30\0\0\0" + audio_data.wav(SAMPLES[:0])[8:] + audio_data.chunk(b"LIST", b"text"),
        "it has no samples",
    ),
    "ADPCM": (changed(20, "<H", 17), "format 17 \\(IMA ADPCM\\) with 16 bits is unsupported"),
    "truncated": (audio_data.wav(SAMPLES)[:-7], "should have 404 bytes, but 397 are left"),
    "samples first": (
        b"RIFF\0\0\0\0WAVE" + audio_data.chunk(b"data", bytes(8)),
        "samples before their format",
    ),
    "NaN": (audio_data.wav([0, np.nan], bits=32, is_float=True), "NaN or infinite"),
    "infinite": (audio_data.wav([0, np.inf], bits=64, is_float=True), "NaN or infinite"),
    "integers as floats": (audio_data.wav([0, 32767], bits=32, is_float=True), "3.277e\\+04"),
    "silence": (audio_data.wav(np.zeros(9)), "it is silent"),
    "a constant": (audio_data.wav(np.full(9, 0.5)), "it is silent"),
    "too long": (audio_data.wav(np.zeros(8001)), "it has 1.00 s, above --max_seconds=1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_with_one_line(name, tmp_path):
    content, reason = HOSTILE[name]
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reason) as error:
        audio_files.read(str(path), 8000, max_seconds=1.0)
    assert "\n" not in str(error.value)


def test_every_truncation_of_a_whole_sample_is_refused():
    content = audio_data.wav(SAMPLES)
    for size in range(len(content) - 3):  # 2 channels of 2 bytes
        with pytest.raises(ValueError, match=r"."):
            wav.read_header(content[:size], size)


@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize("is_declared", [False, True])
def test_an_incomplete_last_sample_is_left_out(missing, is_declared):
    content = audio_data.wav(SAMPLES)
    expected = decode(content)[:-1]
    content = content[:-missing]
    if is_declared:
        content = content[:40] + struct.pack("<I", 404 - missing) + content[44:]
    np.testing.assert_array_equal(decode(content), expected)


# Sizes of the file and of the samples, as programs write them to a pipe.
STREAMS = {
    "ffmpeg": (2**32 - 1, 2**32 - 1),
    "old ffmpeg": (0, 0),
    "GStreamer": (36, 0),
    "sox": (0x7FFFF000 + 36, 0x7FFFF000),
    "arecord": (2**31 + 36 - 2**31 % 4, 2**31),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("rest", [b"", b"\1", b"\1\2\3"])
def test_the_samples_of_a_stream_reach_to_the_end(name, rest):
    content = bytearray(audio_data.wav(SAMPLES) + rest)
    struct.pack_into("<I", content, 4, STREAMS[name][0])
    struct.pack_into("<I", content, 40, STREAMS[name][1])
    np.testing.assert_array_equal(decode(bytes(content)), decode(audio_data.wav(SAMPLES)))


@pytest.mark.parametrize("kind", [b"RF64", b"BW64"])
def test_sizes_of_64_bits(kind):
    samples = audio_data.wav(SAMPLES)
    sizes = audio_data.chunk(b"ds64", struct.pack("<QQQI", 0, 404, 101, 0))
    unknown = struct.pack("<I", 2**32 - 1)
    content = kind + unknown + b"WAVE" + sizes + samples[12:40] + unknown + samples[44:]
    found = decode(content + audio_data.chunk(b"LIST", b"behind"))
    np.testing.assert_array_equal(found, decode(samples))
    with pytest.raises(ValueError, match="b'data' should have 404 bytes, but 400 are left"):
        decode(content[:-4])


@pytest.mark.parametrize(("tag", "name"), [(6, "alaw2lin"), (7, "ulaw2lin")])
def test_a_law_and_mu_law(tag, name):
    audioop = pytest.importorskip("audioop")  # until Python 3.12
    codes = bytes(range(256))
    head = struct.pack("<HHIIHH", tag, 1, 8000, 8000, 1, 8)
    chunks = audio_data.chunk(b"fmt ", head) + audio_data.chunk(b"data", codes)
    content = b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks
    expected = np.frombuffer(getattr(audioop, name)(codes, 2), np.int16) / 2**15
    np.testing.assert_array_equal(decode(content), expected)


@pytest.mark.parametrize("rate", [1000, 96000, 192000, 384000])
def test_other_rates_are_resampled(tmp_path, rate):
    time = np.arange(rate // 2) / rate
    (tmp_path / "a.wav").write_bytes(audio_data.wav(0.5 * np.sin(500 * time), rate=rate))
    found = audio_files.read(str(tmp_path / "a.wav"), 8000, 1.0)
    assert found.shape == (4000,)
    expected = 0.5 * np.sin(500 * np.arange(4000) / 8000)
    assert np.abs(found / 2**15 - expected)[800:3200].max() < 1e-3


def test_six_channels_of_24_bits_are_mixed():
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, [11, 6])
    found = decode(audio_data.wav(samples, bits=24, extensible=True))
    np.testing.assert_allclose(found, samples.mean(axis=1), atol=2e-7)


def test_random_changes_of_a_header_raise_nothing_else():
    random = np.random.default_rng(5)
    content = audio_data.wav(SAMPLES, extensible=True)
    for _ in range(2000):
        broken = bytearray(content)
        for place in random.integers(0, 70, 2):
            broken[place] = random.choice([0, 1, 255, random.integers(256)])
        try:
            found = decode(bytes(broken))
        except ValueError:
            continue
        assert np.isfinite(found).all()
        assert np.abs(found).max() <= 4


def test_a_sparse_file_of_4_gib_is_not_read(tmp_path):
    path = tmp_path / "large.wav"
    with open(path, "wb") as file:
        file.write(audio_data.wav(SAMPLES)[:40] + struct.pack("<I", 2**32 - 100))
        file.truncate(2**32)
    with pytest.raises(ValueError, match=r"it has .* s, above --max_seconds=1"):
        audio_files.read(str(path), 8000, max_seconds=1.0)


def test_samples_of_the_same_rate_are_stored_unchanged(tmp_path):
    numbers = np.random.default_rng(1).integers(-(2**15), 2**15, 300)
    (tmp_path / "a.wav").write_bytes(audio_data.wav(numbers / 2**15))
    found = audio_files.read(str(tmp_path / "a.wav"), 8000, 1.0)
    np.testing.assert_array_equal(found, numbers)


def test_a_remote_file_is_read_or_missing():
    content = audio_data.wav(SAMPLES)
    with tf.io.gfile.GFile("ram://recordings/a.wav", "wb") as file:
        file.write(content)
    paths = ["ram://recordings/a.wav", "ram://recordings/b.wav", "/nowhere/b.wav"]
    found, *missing = (audio_files.read_file(path, 8000, 1.0) for path in paths)
    assert len(found) == 101
    assert missing == ["it is missing", "it is missing"]
