"""WAV files of all formats, equal to SciPy's reader, and hostile headers."""

import io
import struct

import numpy as np
import pytest

from input_fns.convert import wav, wav_files
from tests import audio_data

SAMPLES = np.random.default_rng(0).uniform(-0.9, 0.9, [101, 2])
FORMATS = [(8, False), (16, False), (24, False), (32, False), (32, True), (64, True)]


def decode(content):
    return wav.decode(content, wav.read_header(content, len(content)))


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


def changed(place, kind, value):
    content = bytearray(audio_data.wav(SAMPLES))
    struct.pack_into(kind, content, place, value)
    return bytes(content)


HOSTILE = {
    "empty": (b"", "it is empty"),
    "text": (b"hello, this is text", "it is not a WAV file"),
    "only a magic number": (b"RIFF\0\0\0\0WAVE", "it has no samples"),
    "big endian": (b"RIFX" + bytes(40), "RIFX is unsupported"),
    "64 bits": (b"RF64" + bytes(40), "RF64 is unsupported"),
    "no channels": (changed(22, "<H", 0), "0 channels are not 1 to 8"),
    "many channels": (changed(22, "<H", 9), "9 channels"),
    "rate 0": (changed(24, "<I", 0), "its rate of 0 Hz is not 8000 to 48000"),
    "rate 4 GHz": (changed(24, "<I", 2**32 - 1), "its rate of 4294967295 Hz"),
    "another size of a frame": (changed(32, "<H", 3), "2 channels of 16 bits are not 3 bytes"),
    "12 bits": (changed(34, "<H", 12), "format 1 with 12 bits is unsupported"),
    "mu-law": (changed(20, "<H", 7), "format 7 with 16 bits is unsupported"),
    "4 GiB of samples": (changed(40, "<I", 2**32 - 1), "should have 4294967295 bytes, but 404"),
    "4 GiB of format": (changed(16, "<I", 2**32 - 2), "should have 4294967294 bytes"),
    "a short format": (changed(16, "<I", 14), "its format has 14 bytes, not 16"),
    "no samples": (audio_data.wav(SAMPLES[:0]), "it has no samples"),
    "half a sample": (changed(40, "<I", 403), "403 bytes are not whole samples"),
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
        wav_files.read(str(path), 8000, max_seconds=1.0)
    assert "\n" not in str(error.value)


def test_every_truncation_is_refused(tmp_path):
    content = audio_data.wav(SAMPLES)
    for size in range(len(content)):
        with pytest.raises(ValueError, match=r"."):
            wav.read_header(content[:size], size)


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
        wav_files.read(str(path), 8000, max_seconds=1.0)


def test_samples_of_the_same_rate_are_stored_unchanged(tmp_path):
    numbers = np.random.default_rng(1).integers(-(2**15), 2**15, 300)
    (tmp_path / "a.wav").write_bytes(audio_data.wav(numbers / 2**15))
    found = wav_files.read(str(tmp_path / "a.wav"), 8000, 1.0)
    np.testing.assert_array_equal(found, numbers)
