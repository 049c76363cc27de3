"""FLAC, OGG and MP3, decoded by soundfile, and recordings of other kinds."""

import io

import numpy as np
import pytest

from input_fns.audio.sources import audio_files, compressed_audio
from input_fns.audio.sources.audio_files import Segment
from tests import audio_data

soundfile = pytest.importorskip("soundfile")
RATE = 8000
KINDS = [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
LOSSY = KINDS[1:]


def samples(seconds=1.0, rate=RATE):
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(3).normal(scale=0.02, size=len(time))
    return 0.4 * np.sin(2 * np.pi * 330 * time) + noise


def encode(waveform, kind, subtype, rate=RATE, **options):
    content = io.BytesIO()
    soundfile.write(content, waveform, rate, format=kind, subtype=subtype, **options)
    return content.getvalue()


def read(tmp_path, content, max_seconds=2.0, name="a.audio"):
    (tmp_path / name).write_bytes(content)
    return audio_files.read_file(str(tmp_path / name), RATE, max_seconds)


def test_flac_of_16_bits_is_stored_unchanged(tmp_path):
    numbers = np.random.default_rng(0).integers(-(2**15), 2**15, 1201).astype(np.int16)
    found = read(tmp_path, encode(numbers, "FLAC", "PCM_16"))
    np.testing.assert_array_equal(found, numbers)


@pytest.mark.parametrize(("kind", "subtype"), LOSSY)
def test_lossy_formats_have_all_samples_at_their_place(tmp_path, kind, subtype):
    expected = samples(1.5)
    found = read(tmp_path, encode(expected, kind, subtype)) / 2**15
    assert found.shape == (12000,)
    near = [np.dot(np.roll(found, shift), expected) for shift in range(-9, 10)]
    assert np.argmax(near) == 9  # no delay
    assert np.corrcoef(found, expected)[0, 1] > 0.95


@pytest.mark.parametrize(("kind", "subtype"), KINDS)
def test_stereo_at_another_rate_is_mixed_and_resampled(tmp_path, kind, subtype):
    one = samples(0.5, 24000)
    content = encode(np.stack([one, 0 * one], axis=1), kind, subtype, 24000)
    found = read(tmp_path, content) / 2**15
    assert found.shape == (4000,)
    assert abs(np.sqrt(np.mean(found**2)) / (0.2 / np.sqrt(2)) - 1) < 0.1


@pytest.mark.parametrize(("kind", "subtype"), KINDS)
def test_a_longer_recording_is_refused(tmp_path, kind, subtype):
    content = encode(samples(1.5), kind, subtype)
    assert read(tmp_path, content, 1.0) == "it has 1.50 s, above --max_seconds=1"


@pytest.mark.parametrize(("kind", "subtype"), KINDS)
@pytest.mark.parametrize("fraction", [0.9, 0.5, 0.05])
def test_a_truncated_file_is_refused(tmp_path, kind, subtype, fraction):
    content = encode(samples(9.0), kind, subtype)
    found = read(tmp_path, content[: int(fraction * len(content))], 10.0)
    assert isinstance(found, str), len(found)
    assert "\n" not in found


@pytest.mark.parametrize(("kind", "subtype"), KINDS)
def test_random_changes_raise_nothing_else(tmp_path, kind, subtype):
    random = np.random.default_rng(5)
    content = encode(samples(0.3), kind, subtype)
    for _ in range(60):
        broken = bytearray(content)
        for place in random.integers(0, len(content), 3):
            broken[place] = random.integers(256)
        found = read(tmp_path, bytes(broken))
        assert isinstance(found, str) or len(found) <= 16000 * 3


@pytest.mark.parametrize(("kind", "subtype"), KINDS)
def test_a_segment(tmp_path, kind, subtype):
    content = encode(samples(1.5), kind, subtype)
    whole = read(tmp_path, content)
    path = str(tmp_path / "a.audio")
    found = audio_files.read_file(Segment(path, 0.5, 0.25), RATE, 2.0)
    np.testing.assert_allclose(found, whole[4000:6000], atol=300)


def test_an_mp3_of_variable_bit_rate_without_its_length_is_refused(tmp_path):
    content = encode(samples(9.0), "MP3", "MPEG_LAYER_III", bitrate_mode="VARIABLE")
    assert len(read(tmp_path, content, 10.0)) == 72000
    bytes_of_frame, _ = compressed_audio._mpeg_frame(content, 0)
    found = read(tmp_path, content[bytes_of_frame:], 10.0)
    assert "MPEG frames of 576 samples, but its header states" in found


def test_an_id3_tag_before_an_mp3(tmp_path):
    content = encode(samples(), "MP3", "MPEG_LAYER_III")
    tag = b"ID3\4\0\0\0\0\1\0" + bytes(128)
    np.testing.assert_array_equal(read(tmp_path, tag + content), read(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\0\0\0\x20ftypM4A " + bytes(99), "it is M4A or MP4, which is unsupported; write WAV"),
        (b"NIST_1A\n   1024\n", "it is NIST SPHERE, which is unsupported"),
        (b"FORM\0\0\0\0AIFF", "it is AIFF, which is unsupported"),
        (b"fLaC" + bytes(99), "it is not a valid FLAC file"),
        (b"OggS" + bytes(99), "it is not a valid OGG file"),
        (b"ID3\4\0\0\0\0\0\1\0", "it is not a valid MP3 file"),
    ],
)
def test_other_and_invalid_files(tmp_path, content, reason):
    assert read(tmp_path, content).startswith(reason)


def test_flac_of_a_stream_to_a_pipe_does_not_say_its_length(tmp_path):
    content = bytearray(encode(samples(), "FLAC", "PCM_16"))
    content[21] &= 0xF0  # the number of samples has 36 bits
    content[22:26] = bytes(4)
    assert read(tmp_path, bytes(content)).startswith("its header does not say its length")


def test_the_content_decides_not_the_name(tmp_path):
    content = encode(samples(), "FLAC", "PCM_16")
    assert len(read(tmp_path, content, name="a.wav")) == 8000


def test_without_soundfile_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    found = read(tmp_path, encode(samples(), "FLAC", "PCM_16"))
    assert found == "it is FLAC: pip install '.[audio]' to read it"


def test_a_folder_has_recordings_of_all_formats(tmp_path):
    folder = audio_data.write_folder(tmp_path / "raw", 2)
    for i, (kind, subtype) in enumerate(KINDS):
        name = f"x{i}.{'opus' if subtype == 'OPUS' else kind.lower()}"
        (folder / "low" / name).write_bytes(encode(samples(0.2), kind, subtype))
    data = audio_data.prepare("audio_folder", folder, tmp_path / "data", validation_fraction=0.0)
    assert data.splits["train"].label_histogram == (2, 6)
    assert not data.splits["train"].broken
