"""LibriSpeech and Common Voice as published."""

import io

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import flags
from tests import audio_data

soundfile = pytest.importorskip("soundfile")
SHORT = {"sample_rate": 8000, "max_seconds": 0.3}


def flac(number):
    content = io.BytesIO()
    samples = np.random.default_rng(number).integers(-3000, 3000, 800).astype(np.int16)
    soundfile.write(content, samples, 8000, format="FLAC", subtype="PCM_16")
    return content.getvalue()


def write(folder, subsets):
    """Writes two chapters of two recordings for each speaker of `{subset: speakers}`."""
    for subset, speakers in subsets.items():
        for speaker in speakers:
            for chapter in (1, 2):
                stem = f"{speaker}-{chapter}"
                inside = folder / subset / str(speaker) / str(chapter)
                inside.mkdir(parents=True)
                lines = "".join(f"{stem}-000{i} IT'S {speaker % 7 * 'A'} B\n" for i in range(2))
                (inside / f"{stem}.trans.txt").write_text(lines)
                for i in range(2):
                    (inside / f"{stem}-000{i}.flac").write_bytes(flac(speaker * 9 + chapter + i))
    (folder / "SPEAKERS.TXT").write_text("; text\n")
    return folder


ALL = {
    "train-clean-100": (11, 12),
    "train-other-500": (13,),
    "dev-clean": (21,),
    "dev-other": (22,),
    "test-clean": (31,),
    "test-other": (32,),
}


def test_subsets_are_splits(read, rows, tmp_path):
    raw = read("librispeech", source=write(tmp_path, ALL), **SHORT)
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 12,
        "validation": 4,
        "test": 4,
        "dev-other": 4,
        "test-other": 4,
    }
    assert raw.left_out.counts == {".txt files that are not used": 1}
    good, broken = rows(raw.splits["validation"])
    assert not broken
    assert good[0].name == "dev-clean/21/1/21-1-0000.flac"
    assert np.frombuffer(good[0].values["num_samples"], "<i4") == 800
    vocabulary = raw.files[raw.kind.vocabulary].decode().splitlines()
    assert vocabulary == [" ", "'", "a", "b", "i", "s", "t"]
    tokens = [t for t in np.frombuffer(good[0].values["tokens"], "<i4") if t]
    assert [vocabulary[token - 1] for token in tokens] == list("it's b")


def test_the_folder_of_the_archive_is_found_and_speakers_are_held_out(read, tmp_path):
    write(tmp_path / "LibriSpeech", {"train-clean-100": range(1, 7)})
    raw = read("librispeech", source=tmp_path, validation_fraction=0.3, **SHORT)
    speakers = {name: set(split.groups) for name, split in raw.splits.items()}
    assert speakers["train"] | speakers["validation"] == set("123456")
    assert not speakers["train"] & speakers["validation"]
    assert len(speakers["validation"]) == 2


def test_recordings_and_texts_that_are_missing(read, rows, tmp_path):
    write(tmp_path, {"dev-clean": (21,), "train-clean-100": (11,)})
    chapter = tmp_path / "train-clean-100" / "11" / "1"
    (chapter / "11-1-0000.flac").unlink()
    (chapter / "11-1-0007.flac").write_bytes(flac(1))
    with (chapter / "11-1.trans.txt").open("a") as file:
        file.write("11-1-0008\n")
    raw = read("librispeech", source=tmp_path, **SHORT)
    good, broken = rows(raw.splits["train"])
    assert (len(good), [one.reason for one in broken]) == (3, ["it is missing"])
    assert raw.left_out.names["recordings without a transcript"] == [
        "train-clean-100/11/1/11-1-0007.flac"
    ]
    (place,) = raw.left_out.names["rows with no text"]
    assert place.endswith("11-1.trans.txt, line 3")


def test_recordings_may_be_converted(read, rows, tmp_path):
    write(tmp_path, {"train-clean-100": (11,)})
    for path in tmp_path.rglob("*.flac"):
        path.with_suffix(".wav").write_bytes(audio_data.wav(audio_data.tone(440)))
        path.unlink()
    raw = read("librispeech", source=tmp_path, validation_fraction=0.0, **SHORT)
    good, broken = rows(raw.splits["train"])
    assert (len(good), broken) == (4, [])


@pytest.mark.parametrize("line", ["../11-1-0000 A", "/etc/passwd A", ".. A", " A", "a\x07 A"])
def test_a_name_is_not_a_path(read, tmp_path, line):
    write(tmp_path, {"train-clean-100": (11,)})
    path = tmp_path / "train-clean-100" / "11" / "1" / "11-1.trans.txt"
    path.write_text(f"{line}\n")
    with pytest.raises(DataError, match=r"11-1.trans.txt, line 1: .* is not the name of a rec"):
        read("librispeech", source=tmp_path, **SHORT)


def test_what_is_not_librispeech(read, tmp_path):
    with pytest.raises(DataError, match="has no folder of LibriSpeech"):
        read("librispeech", source=tmp_path)
    (tmp_path / "dev-clean.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"Unpack its archives"):
        read("librispeech", source=tmp_path)
    (tmp_path / "dev-clean").mkdir()
    with pytest.raises(DataError, match=r"dev-clean has no recording of LibriSpeech with a text"):
        read("librispeech", source=tmp_path)


def test_common_voice_needs_no_flags(read, tmp_path):
    (tmp_path / "clips").mkdir()
    for number, name in enumerate(["train", "dev", "test", "validated", "other", "reported"]):
        (tmp_path / "clips" / f"{number}.mp3").write_bytes(flac(number))
        (tmp_path / f"{name}.tsv").write_text(
            f"client_id\tpath\tsentence\n{number}\t{number}.mp3\tab\n"
        )
    flags.FLAGS.unparse_flags()
    flags.FLAGS(["x", "--dataset=common_voice", f"--source={tmp_path}", "--data_dir=d"])
    options = vars(flags.options_from_flags())
    flags.FLAGS.unparse_flags()
    assert options["group_column"] == "client_id"
    raw = read(options.pop("dataset"), **options)
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 1,
        "validation": 1,
        "test": 1,
    }
