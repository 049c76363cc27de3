"""Folders of recordings, FSDD's layout and manifests with transcripts."""

import json
import os

import numpy as np
import pytest

from input_fns import DataError, characters, dataset_info
from input_fns.convert import writer
from tests import audio_data

SHORT = {"sample_rate": 8000, "max_seconds": 0.3, "validation_fraction": 0.0}


@pytest.fixture
def folder(tmp_path):
    return audio_data.write_folder(tmp_path / "keywords", 5)


@pytest.fixture
def fsdd(tmp_path):
    return audio_data.write_fsdd(tmp_path / "recordings", 7)


def manifest(folder, rows, name="train.jsonl"):
    folder.mkdir(exist_ok=True)
    (folder / "a.wav").write_bytes(audio_data.wav(audio_data.tone(440)))
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_classes_are_folders_and_rows_hold_16_bit_samples(read, rows, folder):
    raw = read("audio_folder", source=folder, **SHORT)
    assert raw.class_names == ("high", "low")
    good, broken = rows(raw.splits["train"])
    assert len(good) == 10
    assert not broken
    for row in good:
        content = (folder / row.name).read_bytes()
        waveform = np.frombuffer(row.values["waveform"], "<i2")
        (size,) = np.frombuffer(row.values["num_samples"], "<i4")
        assert waveform.shape == (2400,)
        assert waveform[:size].tobytes() == content[44:]
        assert not waveform[size:].any()


def test_stereo_is_mixed_and_other_rates_are_resampled(read, rows, tmp_path):
    for name, scale in (("a", 1.0), ("b", 0.5)):
        (tmp_path / name).mkdir()
        both = np.stack([audio_data.tone(300, rate=44100) * scale, np.zeros(8820)], axis=1)
        content = audio_data.wav(both, rate=44100, bits=24)
        (tmp_path / name / "x.wav").write_bytes(content)
    good, _ = rows(read("audio_folder", source=tmp_path, **SHORT).splits["train"])
    for row, scale in zip(sorted(good, key=lambda row: row.name), (1.0, 0.5)):
        (size,) = np.frombuffer(row.values["num_samples"], "<i4")
        assert size == 1600
        found = np.frombuffer(row.values["waveform"], "<i2")[200:1400] / 2**15
        expected = 0.15 * scale * np.sin(2 * np.pi * 300 * np.arange(200, 1400) / 8000)
        assert np.abs(found - expected).max() < 0.02  # the noise of the tone


def test_broken_recordings_are_listed_by_name(folder, tmp_path):
    for name, content in {
        "empty": b"",
        "silent": audio_data.wav(np.zeros(99)),
        "long": audio_data.wav(np.ones(2401)),
        "text": b"text",
        "nan": audio_data.wav([0.0, np.nan], bits=32, is_float=True),
    }.items():
        (folder / "low" / f"{name}.wav").write_bytes(content)
    data = audio_data.prepare("audio_folder", folder, tmp_path / "data", **SHORT)
    found = {os.path.basename(path): reason for path, reason in data.splits["train"].broken}
    assert found == {
        "empty.wav": "it is empty",
        "silent.wav": "it is silent: all samples are equal",
        "long.wav": "it has 0.30 s, above --max_seconds=0.3",
        "text.wav": "it is not a WAV file: it begins with b'text'",
        "nan.wav": "a sample is NaN or infinite",
    }
    assert data.splits["train"].num_examples == 10
    assert data.splits["train"].label_histogram == (5, 5)


def test_the_lists_of_speech_commands_make_splits(read, folder):
    (folder / "_background_noise_").mkdir()
    (folder / "validation_list.txt").write_text("low/1.wav\nhigh/4.wav\n")
    (folder / "testing_list.txt").write_text("low/0.wav\n")
    raw = read("audio_folder", source=folder, **SHORT)
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 7,
        "validation": 2,
        "test": 1,
    }
    (path,) = raw.splits["test"].paths
    assert path == os.path.join(folder, "low", "0.wav")
    (folder / "testing_list.txt").write_text("low/99.wav\n")
    with pytest.raises(DataError, match=r"testing_list.txt, line 1: no recording 'low/99.wav'"):
        read("audio_folder", source=folder, **SHORT)


def test_fsdd_has_its_official_split(read, fsdd):
    raw = read("fsdd", source=fsdd, **SHORT)
    assert raw.class_names == tuple("0123456789")
    assert np.bincount(raw.splits["test"].labels).tolist() == [10] * 10
    assert np.bincount(raw.splits["train"].labels).tolist() == [4] * 10
    assert all(int(path[-5]) < 5 for path in raw.splits["test"].paths)


def test_fsdd_leaves_a_speaker_out(read, fsdd):
    raw = read("fsdd", source=fsdd, test_speaker="bob", **SHORT)
    assert all("_bob_" in path for path in raw.splits["test"].paths)
    assert all("_ann_" in path for path in raw.splits["train"].paths)
    with pytest.raises(DataError, match=r"test_speaker=eve has no recording .* ann, bob"):
        read("fsdd", source=fsdd, test_speaker="eve", **SHORT)


def test_fsdd_takes_no_other_names(read, fsdd):
    (fsdd / "seven.wav").write_bytes(b"")
    with pytest.raises(DataError, match=r"seven.wav is not DIGIT_SPEAKER_NUMBER.wav"):
        read("fsdd", source=fsdd, **SHORT)


def test_a_manifest_has_tokens_and_a_vocabulary(tmp_path):
    source = manifest(
        tmp_path / "raw",
        [{"path": "a.wav", "text": " Ab  a\u00e9 "}, {"path": "./a.wav", "text": "cafe\u0301"}],
    )
    data = audio_data.prepare("speech_manifest", source, tmp_path / "data", validation_fraction=0.0)
    assert (data.audio.vocab_size, data.audio.max_tokens) == (1 + 6, 5)
    found = characters.load(os.path.join(data.data_dir, data.audio.vocabulary))
    assert found.characters == (" ", "a", "b", "c", "f", "\u00e9")
    assert found.decode(np.array([[2, 3, 1, 2, 6]])) == ["ab a\u00e9"]
    assert data.labels == ("tokens",)


def test_a_vocabulary_is_reused(tmp_path, read):
    source = manifest(tmp_path / "raw", [{"path": "a.wav", "text": "bcab"}])
    first = audio_data.prepare("speech_manifest", source, tmp_path / "1", validation_fraction=0.0)
    (source / "train.jsonl").write_text('{"path": "a.wav", "text": "bb"}\n')
    again = read("speech_manifest", source=source, vocabulary=tmp_path / "1", **SHORT)
    assert again.audio.vocab_size == first.audio.vocab_size == 4
    np.testing.assert_array_equal(again.splits["train"].tokens, [[2, 2]])
    (source / "train.jsonl").write_text('{"path": "a.wav", "text": "bx"}\n')
    with pytest.raises(DataError, match=r"train.jsonl, line 1: the character 'x' is not in the"):
        read("speech_manifest", source=source, vocabulary=tmp_path / "1", **SHORT)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../a.wav", "x/../../a.wav", "gs://bucket/a.wav", "..", ".", "a\0.wav"],
)
def test_a_path_outside_of_the_folder_is_an_error(tmp_path, read, path):
    source = manifest(tmp_path / "raw", [{"path": path, "text": "a"}])
    with pytest.raises(DataError, match=r"line 1: .* is not a file below the folder") as error:
        read("speech_manifest", source=source, **SHORT)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"path": "a.wav"}, "no column 'text'"),
        ({"path": "a.wav", "text": " "}, "line 1: no text"),
        ({"path": "", "text": "a"}, "line 1: no path"),
        ({"path": "a.wav", "text": "a\u0007"}, "control characters"),
    ],
)
def test_an_invalid_row_is_an_error(tmp_path, read, row, reason):
    source = manifest(tmp_path / "raw", [row])
    with pytest.raises(DataError, match=reason):
        read("speech_manifest", source=source, **SHORT)


def test_a_recording_in_two_splits_is_an_error(tmp_path, read):
    rows = [{"path": "a.wav", "text": "a"}]
    source = manifest(tmp_path / "raw", rows)
    manifest(source, rows, "test.jsonl")
    with pytest.raises(DataError, match=r"a.wav is also in 'test'"):
        read("speech_manifest", source=source, **SHORT)


def test_a_csv_is_a_manifest(tmp_path, read):
    source = manifest(tmp_path / "raw", [])
    (source / "train.jsonl").unlink()
    (source / "list.csv").write_text('path,text\na.wav,"yes, no"\n')
    raw = read("speech_manifest", source=source / "list.csv", **SHORT)
    assert raw.splits["train"].tokens.shape == (1, 7)


def test_a_missing_recording_is_listed(tmp_path):
    rows = [{"path": "a.wav", "text": "a"}, {"path": "b.wav", "text": "b"}]
    source = manifest(tmp_path / "raw", rows)
    data = audio_data.prepare("speech_manifest", source, tmp_path / "data", validation_fraction=0.0)
    ((path, reason),) = data.splits["train"].broken
    assert path.endswith("b.wav")
    assert reason == "it is missing"


def test_the_metadata_survive_a_file(tmp_path, read):
    raw = read("audio_folder", source=audio_data.write_folder(tmp_path / "raw", 3), **SHORT)
    written = writer.write(raw, str(tmp_path / "data"))
    assert dataset_info.read(str(tmp_path / "data")) == written
    assert written.audio.describe() == "8000 Hz, up to 0.3 s"
