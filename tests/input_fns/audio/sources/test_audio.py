"""Folders of recordings, FSDD's layout and manifests with transcripts."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from input_fns import DataError, dataset_info
from input_fns.audio import characters
from input_fns.audio.audio_pipeline import AudioPipeline
from input_fns.audio.sources import compressed_audio
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
        assert row.values["waveform"] == content[44:]  # without padding
        (size,) = np.frombuffer(row.values["num_samples"], "<i4")
        assert 800 <= size == len(content[44:]) // 2 < 2400
        waveform = row.features["waveform"].to_array(row.values["waveform"])
        assert waveform.shape == (2400,)
        assert not waveform[size:].any()


def test_the_size_of_a_split_is_that_of_some_of_its_rows(read, rows, folder):
    split = read("audio_folder", source=folder, **SHORT).splits["train"]
    good, _ = rows(split)
    assert split.num_bytes == sum(sum(map(len, row.values.values())) for row in good)
    for path in split.paths[1:]:
        pathlib.Path(path).unlink()
    assert split.num_bytes == 10 * sum(map(len, good[0].values.values()))
    pathlib.Path(split.paths[0]).unlink()
    assert split.num_bytes == 10 * (2 * 2400 + 4)  # without a recording: that of the longest


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


def test_lists_of_other_systems_and_missing_recordings(read, folder):
    (folder / "testing_list.txt").write_text("low\\0.wav\r\nlow/99.wav\n\n")
    raw = read("audio_folder", source=folder, **SHORT)
    (path,) = raw.splits["test"].paths
    assert path == os.path.join(folder, "low", "0.wav")
    assert raw.left_out.counts == {"entries of lists whose recording is missing": 1}
    assert raw.left_out.names["entries of lists whose recording is missing"] == [
        "testing_list.txt, line 2 (low/99.wav)"
    ]
    (folder / "testing_list.txt").write_text("low/99.wav\n")
    with pytest.raises(DataError, match=r"none of its 1 recordings is below .* line 1 \("):
        read("audio_folder", source=folder, **SHORT)


def test_lists_name_classes_that_are_not_chosen(read, folder):
    (folder / "mid").mkdir()
    (folder / "mid" / "0.wav").write_bytes(audio_data.wav(audio_data.tone(440)))
    (folder / "testing_list.txt").write_text("low/0.wav\nmid/0.wav\n")
    raw = read("audio_folder", source=folder, class_names=("low", "high"), **SHORT)
    assert raw.class_names == ("low", "high")
    assert raw.splits["test"].labels.tolist() == [0]
    assert sorted(raw.splits["train"].labels) == [0] * 4 + [1] * 5
    assert raw.left_out.counts == {"files of classes that --class_names does not name": 1}


def test_a_split_without_classes_can_be_predicted(tmp_path):
    audio_data.write_folder(tmp_path / "raw" / "train", 11)
    (tmp_path / "raw" / "test").mkdir()
    (tmp_path / "raw" / "test" / "x.wav").write_bytes(audio_data.wav(audio_data.tone(440)))
    data = audio_data.prepare("audio_folder", tmp_path / "raw", tmp_path / "data")
    assert data.splits["train"].has_labels
    assert not data.splits["test"].has_labels
    assert data.splits["test"].num_examples == 1


def test_other_formats_are_counted(tmp_path, read):
    audio_data.write_folder(tmp_path, 3)
    (tmp_path / "low" / "b.m4a").write_bytes(b"x")
    assert read("audio_folder", source=tmp_path, **SHORT).left_out.counts == {
        ".m4a files that are not used (convert them, such as with ffmpeg -i OLD NEW.wav)": 1
    }


@pytest.mark.skipif(compressed_audio.is_available(), reason="soundfile reads them")
def test_formats_of_the_extra_are_counted_with_its_name(tmp_path, read):
    audio_data.write_folder(tmp_path, 3)
    (tmp_path / "low" / "a.MP3").write_bytes(b"x")
    assert read("audio_folder", source=tmp_path, **SHORT).left_out.counts == {
        ".mp3 files that are not used (pip install '.[audio]' to read recordings)": 1
    }


def write_csv(folder, lines, names):
    """Writes recordings and a table of them; returns the options that read them."""
    for i, name in enumerate(names):
        path = folder / "audio" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(audio_data.wav(audio_data.tone(300 + 50 * i)))
    (folder / "meta.csv").write_text("\n".join(lines) + "\n")
    return {"source": folder / "audio", "csv": str(folder / "meta.csv"), **SHORT}


def test_esc_50(tmp_path, read):
    lines = [
        "filename,fold,target,category,esc10,src_file,take",
        "1-17-A-0.wav,1,0,dog,True,100032,A",
        "5-99-A-36.wav,5,36,rain,False,100032,A",
        "2-17-A-0.wav,2,0,dog,True,7,A",
        "2-18-A-36.wav,2,36,rain,True,7,B",
    ]
    options = write_csv(tmp_path, lines, [line.partition(",")[0] for line in lines[1:]])
    options.update(validation_fraction=0.0, test_fraction=0.5)
    with pytest.raises(DataError, match=r"exactly one of the label columns .* --label_columns"):
        read("audio_csv", **options)
    raw = read("audio_csv", label_columns=("category",), group_column="src_file", **options)
    assert raw.class_names == ("dog", "rain")
    groups = {name: split.groups.tolist() for name, split in raw.splits.items()}
    assert sorted(groups.values()) == [["100032", "100032"], ["7", "7"]]


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("file,start,end,label", ["a.wav,0,0.2,x", "b.wav,0,0.2,y", "a.wav,0.2,0.4,x"]),
        ("file,offset,duration,label", ["a.wav,0.0,0.2,x", "b.wav,0.1,0.2,y"]),
    ],
)
def test_parts_of_recordings_in_a_table_of_classes_are_an_error(tmp_path, read, header, rows):
    options = write_csv(tmp_path, [header, *rows], ["a.wav", "b.wav"])
    message = r"column '(start|offset)' is 0\.[12].*Parts of a recording are not read"
    with pytest.raises(DataError, match=message):
        read("audio_csv", label_columns=("label",), **options)


def test_urban_sound_names_are_found_in_the_folders_of_folds(tmp_path, read, rows):
    lines = [
        "slice_file_name,fsID,start,end,salience,fold,classID,class",
        "7-0.wav,7,0,4,1,1,10,siren",
        "8-0.wav,8,1,5,1,2,9,drilling",
    ]
    options = write_csv(tmp_path, lines, ["fold1/7-0.wav", "fold2/8-0.wav"])
    raw = read("audio_csv", label_columns=("class",), **options)
    good, _ = rows(raw.splits["train"])
    assert sorted(row.name for row in good) == ["fold1/7-0.wav", "fold2/8-0.wav"]
    labels = {
        os.path.basename(p): i
        for p, i in zip(raw.splits["train"].paths, raw.splits["train"].labels)
    }
    assert labels == {"7-0.wav": 1, "8-0.wav": 0}


def test_recordings_in_a_table_with_one_column_a_class_and_splits(tmp_path, read):
    lines = ["fname,cat,dog,part", "a,1,0,train", "b,False,True,train", "c,0,1,Test"]
    options = write_csv(tmp_path, lines, ["a.wav", "b.wav", "c.wav"])
    raw = read("audio_csv", split_column="part", audio_column="fname", **options)
    assert raw.class_names == ("cat", "dog")
    assert raw.splits["test"].labels.tolist() == [1]
    (tmp_path / "meta.csv").write_text("fname,kind\nx,cat\n")
    with pytest.raises(DataError, match=r"line 2: no recording 'x' .*--audio_column"):
        read("audio_csv", **options)


def test_fsdd_is_in_a_folder_of_the_repository(read, fsdd):
    with pytest.raises(DataError, match=r"try --source=.*/recordings"):
        read("fsdd", source=fsdd.parent, **SHORT)


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
    assert (data.kind.vocab_size, data.kind.max_tokens) == (1 + 6, 5)
    found = characters.load(os.path.join(data.data_dir, data.kind.vocabulary))
    assert found.characters == (" ", "a", "b", "c", "f", "\u00e9")
    assert found.decode(np.array([[2, 3, 1, 2, 6]])) == ["ab a\u00e9"]
    assert data.labels == ("tokens",)


def test_a_vocabulary_is_reused(tmp_path, read):
    source = manifest(tmp_path / "raw", [{"path": "a.wav", "text": "bcab"}])
    first = audio_data.prepare("speech_manifest", source, tmp_path / "1", validation_fraction=0.0)
    (source / "train.jsonl").write_text('{"path": "a.wav", "text": "bb"}\n')
    again = read("speech_manifest", source=source, vocabulary=tmp_path / "1", **SHORT)
    assert again.kind.vocab_size == first.kind.vocab_size == 4
    np.testing.assert_array_equal(again.splits["train"].tokens, [[2, 2]])
    (source / "train.jsonl").write_text('{"path": "a.wav", "text": "bx"}\n')
    with pytest.raises(DataError, match=r"train.jsonl, line 1: the character 'x' is not in the"):
        read("speech_manifest", source=source, vocabulary=tmp_path / "1", **SHORT)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../b.wav", "x/../../b.wav", "gs://bucket/b.wav", "..", ".", "a\0.wav"],
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


@pytest.mark.parametrize(
    "path",
    ["x\\b c.WAV", "x/b c", "x/b%20c.wav", "/data/x/b c.wav", "D:\\x\\b c.wav", "../../x/b c.wav"],
)
def test_a_recording_is_found_below_the_folder(tmp_path, read, path):
    source = manifest(tmp_path / "raw", [{"path": path, "text": "a"}, {"path": "a", "text": "b"}])
    (source / "x").mkdir()
    (source / "x" / "b c.wav").write_bytes(audio_data.wav(audio_data.tone(440)))
    raw = read("speech_manifest", source=source, validation_fraction=0.0)
    found = [os.path.relpath(path, source) for path in raw.splits["train"].paths]
    assert sorted(found) == ["a.wav", "x/b c.wav"]


def test_two_paths_that_lead_out_are_not_one_recording(tmp_path, read):
    rows = [{"path": f"/data/{speaker}/a.wav", "text": "a"} for speaker in ("ann", "bob")]
    source = manifest(tmp_path / "raw", rows)
    with pytest.raises(DataError, match=r"line 2: '/data/bob/a.wav' and '/data/ann/a.wav'"):
        read("speech_manifest", source=source, **SHORT)


# Rows of other corpora: file name, lines, flags, texts.
CORPORA = {
    "NeMo": (
        "train_manifest.json",
        ['{"audio_filepath": "wavs/a.wav", "duration": 0.2, "text": "x"}'],
        {},
    ),
    "LJSpeech": (
        "metadata.csv",
        ['a|"Printing," it says|x'],
        {"columns": ("path", "raw", "text"), "delimiter": "|", "audio_folder": "wavs"},
    ),
    "Common Voice": (
        "train.tsv",
        ["client_id\tpath\tsentence\tup_votes", "7\ta.wav\tX\t2"],
        {"audio_folder": "wavs"},
    ),
    "Hugging Face": ("metadata.csv", ["file_name,transcription", "wavs/a.wav,x"], {}),
    "a list": ("train.json", ['[{"path": "wavs\\\\a.wav", "sentence": "x"}]'], {}),
    "semicolons": ("train.csv", ["Audio File;Text", "wavs/a.wav;x"], {"delimiter": ";"}),
    "own columns": (
        "train.csv",
        ["sound,said,text", "wavs/a.wav,x,7"],
        {"audio_column": "sound", "text_columns": ("said",)},
    ),
}


@pytest.mark.parametrize("name", CORPORA)
def test_tables_of_other_corpora(tmp_path, read, rows, name):
    file_name, lines, flags = CORPORA[name]
    (tmp_path / "wavs").mkdir()
    (tmp_path / "wavs" / "a.wav").write_bytes(audio_data.wav(audio_data.tone(440)))
    (tmp_path / file_name).write_text("\n".join(lines) + "\n")
    raw = read("speech_manifest", source=tmp_path, **{**SHORT, **flags})
    (row,), broken = rows(raw.splits["train"])
    assert not broken
    assert row.name == "wavs/a.wav"
    assert raw.files[raw.kind.vocabulary] == b"x\n"


def test_segments_are_parts_of_recordings(tmp_path, read, rows):
    samples = np.random.default_rng(0).integers(-(2**15), 2**15, 4000)
    lines = [("0", "0.1"), ("0.1", "0.25"), ("0.3", ""), ("0", "0.45"), ("0.4", "0.3"), ("9", "1")]
    table = "audio_filepath,offset,duration,text\n" + "".join(
        f"a.wav,{begin},{seconds},x\n" for begin, seconds in lines
    )
    (tmp_path / "train.csv").write_text(table)
    (tmp_path / "a.wav").write_bytes(audio_data.wav(samples / 2**15))
    raw = read("speech_manifest", source=tmp_path, **{**SHORT, "max_seconds": 0.5})
    good, broken = rows(raw.splits["train"])
    found = {
        row.name: np.frombuffer(row.values["waveform"], "<i2")[
            : np.frombuffer(row.values["num_samples"], "<i4")[0]
        ]
        for row in good
    }
    expected = {
        "a.wav[0:0.1]": samples[:800],
        "a.wav[0.1:0.35]": samples[800:2800],
        "a.wav[0.3:]": samples[2400:],
        "a.wav[0:0.45]": samples,  # rounded: less than 0.1 s is left
    }
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    assert {row.name.partition("a.wav")[2]: row.reason for row in broken} == {
        "[0.4:0.7]": "the segment from 0.4 to 0.7 s is not in the recording of 0.5 s",
        "[9:10]": "the segment from 9 to 10 s is not in the recording of 0.5 s",
    }


@pytest.mark.parametrize("value", ["-1", "nan", "1:20", "inf"])
def test_an_invalid_offset_is_an_error(tmp_path, read, value):
    source = manifest(tmp_path / "raw", [{"path": "a.wav", "offset": value, "text": "x"}])
    with pytest.raises(DataError, match=f"line 1: offset '{value}' is not a number of seconds"):
        read("speech_manifest", source=source, **SHORT)


def test_parts_in_another_form_are_an_error(tmp_path, read):
    rows = [{"path": "a.wav", "start": i, "text": "x"} for i in range(2)]
    source = manifest(tmp_path / "raw", rows)
    with pytest.raises(DataError, match=r"line 2: .* and a column 'start'. Write parts of"):
        read("speech_manifest", source=source, **SHORT)
    manifest(source, rows[:1])
    assert len(read("speech_manifest", source=source, **SHORT).splits["train"]) == 1


def test_two_candidates_for_a_column_name_the_flag(tmp_path, read):
    row = {"path": "a.wav", "sentence": "a", "transcription": "b", "file": "a.wav"}
    source = manifest(tmp_path / "raw", [row])
    with pytest.raises(DataError, match=r"'sentence' and 'transcription': choose .*--text_columns"):
        read("speech_manifest", source=source, **SHORT)
    with pytest.raises(DataError, match=r"'path' and 'file': choose one with --audio_column"):
        read("speech_manifest", source=source, text_columns=("sentence",), **SHORT)
    with pytest.raises(DataError, match=r"no column 'x' \(--audio_column\); it has: path"):
        read(
            "speech_manifest", source=source, audio_column="x", text_columns=("sentence",), **SHORT
        )


def test_a_release_of_common_voice_is_read_as_its_errors_say(tmp_path, read):
    (tmp_path / "clips").mkdir()
    header = "client_id\tpath\tsentence\n"
    for number, name in enumerate(["train", "dev", "test", "validated", "other", "reported"]):
        line = f"{number}\t{number}.wav\tab\n"
        (tmp_path / f"{name}.tsv").write_text(header + line)
        content = audio_data.wav(audio_data.tone(440))
        (tmp_path / "clips" / f"{number}.wav").write_bytes(content)
    (tmp_path / "LICENSE").write_text("CC0\n")
    with pytest.raises(DataError, match=r"other.tsv has no split, while .*--split_files=.*--skip"):
        read("speech_manifest", source=tmp_path, **SHORT)
    flags = {**SHORT, "split_files": ("train=train.tsv", "dev=dev.tsv", "test=test.tsv")}
    with pytest.raises(DataError, match=r"'0.wav' is not in .* clips/, set --audio_folder=clips"):
        read("speech_manifest", source=tmp_path, **flags)
    flags.update(audio_folder="clips", group_column="client_id")
    del flags["validation_fraction"]
    raw = read("speech_manifest", source=tmp_path, **flags)
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 1,
        "validation": 1,
        "test": 1,
    }
    assert raw.left_out.counts == {
        ".tsv files that are not used": 3,
        ".wav files that are not used": 3,
        "files without an extension that are not used": 1,
    }
    (tmp_path / "test.tsv").write_text(header + "0\t3.wav\tab\n")
    with pytest.raises(DataError, match="the group '0' of --group_column=client_id is in 'train'"):
        read("speech_manifest", source=tmp_path, **flags)


def test_rows_that_are_no_examples_are_counted(tmp_path, read):
    texts = ["ab", "", "a\x07", "b a"]
    source = manifest(tmp_path / "raw", [{"path": "a.wav", "text": text} for text in texts])
    (source / "b.wav").write_bytes(audio_data.wav(audio_data.tone(440)))
    manifest(source, [{"path": "b.wav", "text": t} for t in ("a", "b", "\u00e9")], "test.jsonl")
    raw = read("speech_manifest", source=source, **SHORT)
    assert {name: len(split) for name, split in raw.splits.items()} == {"train": 2, "test": 2}
    assert raw.splits["test"].tokens.tolist() == [[2, 0, 0], [3, 0, 0]]
    assert raw.left_out.counts == {
        "rows with no text": 1,
        "rows with control characters in the text": 1,
        "rows whose text has a character that is not in the vocabulary": 1,
    }
    (name,) = raw.left_out.names["rows with no text"]
    assert name.endswith("train.jsonl, line 2")


def test_a_column_of_splits(tmp_path, read):
    for name in "abc":
        (tmp_path / f"{name}.wav").write_bytes(audio_data.wav(audio_data.tone(440)))
    (tmp_path / "all.csv").write_text("file,text,part\na.wav,x,Train\nb.wav,x,dev\nc.wav,x,test\n")
    raw = read("speech_manifest", source=tmp_path, split_column="part", sample_rate=8000)
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 1,
        "validation": 1,
        "test": 1,
    }


def test_a_missing_recording_is_listed(tmp_path):
    rows = [{"path": "a.wav", "text": "a"}, {"path": "b.wav", "text": "b"}]
    source = manifest(tmp_path / "raw", rows)
    data = audio_data.prepare("speech_manifest", source, tmp_path / "data", validation_fraction=0.0)
    ((path, reason),) = data.splits["train"].broken
    assert path.endswith("b.wav")
    assert reason == "it is missing"


def test_a_missing_remote_recording_is_listed(read, rows):
    source = "ram://speech"
    table = "path,offset,text\na.wav,0.1,x\nb.wav,0,x\n"
    for name, content in (("train.csv", table), ("a.wav", audio_data.wav(audio_data.tone(440)))):
        with tf.io.gfile.GFile(f"{source}/{name}", "wb") as file:
            file.write(content)
    good, broken = rows(read("speech_manifest", source=source, **SHORT).splits["train"])
    assert len(good) == 1
    assert [(row.name, row.reason) for row in broken] == [(f"{source}/b.wav", "it is missing")]


def test_the_metadata_survive_a_file(tmp_path, read):
    raw = read("audio_folder", source=audio_data.write_folder(tmp_path / "raw", 3), **SHORT)
    written = writer.write(raw, str(tmp_path / "data"))
    assert dataset_info.read(str(tmp_path / "data")) == written
    assert written.kind.describe(written) == "2 classes; 8000 Hz, up to 0.3 s"


def test_recordings_with_several_labels(tmp_path, read):
    rows = ["file,events", "a.wav,dog;rain", "b.wav,dog", "c.wav,"]
    options = write_csv(tmp_path, rows, ["a.wav", "b.wav", "c.wav"])
    options.update(task="multilabel", label_separator=";")
    raw = read("audio_csv", **options)
    writer.write(raw, str(tmp_path / "data"))
    data = dataset_info.load(str(tmp_path / "data"), "audio_csv")
    assert data.target.names == ("dog", "rain")
    _, labels = next(AudioPipeline(data).host_examples("train", 3))
    assert sorted(labels.tolist()) == [[0, 0], [1, 0], [1, 1]]
