"""Recordings, transcripts and rankings that a model can hardly learn from are warnings."""

import json

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert.options import Options
from tests import audio_data, ratings_data, written


def warnings_of(tmp_path, dataset, **options):
    options = Options(dataset, source=str(tmp_path / "raw"), **options)
    return written.with_warnings(options, tmp_path / "data")


def of_folder(tmp_path, change):
    """Returns the warnings about recordings of two classes, each changed by a function."""
    for name, hertz in (("high", 2000), ("low", 300)):
        (tmp_path / "raw" / name).mkdir(parents=True)
        for i in range(6):
            samples = change(audio_data.tone(hertz, 0.2, seed=i), i)
            (tmp_path / "raw" / name / f"{i}.wav").write_bytes(audio_data.wav(samples, bits=24))
    return warnings_of(tmp_path, "audio_folder", max_seconds=0.5, validation_fraction=0.0)


def test_good_recordings_have_no_warning(tmp_path):
    assert not of_folder(tmp_path, lambda samples, i: samples)


def test_nearly_silent_recordings(tmp_path):
    (line,) = of_folder(tmp_path, lambda samples, i: samples / 1000 if i < 2 else samples)
    assert line.startswith("4 of 12 recordings of 'train' are nearly silent")
    assert "/1.wav" in line


def test_clipped_recordings(tmp_path):
    (line,) = of_folder(tmp_path, lambda samples, i: samples * 9)
    assert line.startswith("12 of 12 recordings of 'train' are clipped")


def test_many_skipped_recordings(tmp_path):
    (line,) = of_folder(tmp_path, lambda samples, i: samples * (i > 1))
    assert line.startswith("4 of 12 recordings of 'train' are skipped; the first is ")
    assert line.endswith(".wav: it is silent: all samples are equal")


def test_equal_recordings(tmp_path):
    (line,) = of_folder(tmp_path, lambda samples, i: audio_data.tone(400))
    assert line == "only 1 of 12 recordings of 'train' differ"


def of_texts(tmp_path, seconds):
    (tmp_path / "raw").mkdir()
    rows = []
    for i, length in enumerate(seconds):
        content = audio_data.wav(audio_data.tone(440, length, seed=i))
        (tmp_path / "raw" / f"{i}.wav").write_bytes(content)
        rows.append({"path": f"{i}.wav", "text": "ten letter"})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "raw" / "train.jsonl").write_text(lines)
    return warnings_of(
        tmp_path, "speech_manifest", sample_rate=8000, max_seconds=2.0, validation_fraction=0.0
    )


def test_texts_that_are_too_long(tmp_path):
    (line,) = of_texts(tmp_path, [1, 1, 0.39, 0.41, 0.3])
    assert line.startswith("40% of the recordings of 'train' are too short for their")


def test_texts_of_other_recordings_are_an_error(tmp_path):
    with pytest.raises(DataError, match=r"100% of the recordings of 'train' .* too short"):
        of_texts(tmp_path, [0.2, 0.3, 0.35])


def of_rows(tmp_path, rows):
    ratings_data.write(tmp_path / "raw", rows)
    return warnings_of(tmp_path, "ratings")


def test_good_ratings_have_no_warning(tmp_path):
    random = np.random.default_rng(0)
    rows = [(u, i, 1, t) for u in range(9) for t, i in enumerate(random.permutation(40)[:12])]
    assert not of_rows(tmp_path, rows)


def test_few_items(tmp_path):
    rows = [(user, (user + time) % 12, 1, time) for user in range(12) for time in range(4)]
    lines = of_rows(tmp_path, rows)
    assert lines[0].startswith("rows of 'validation' have 9 candidates in the median, of 12 items")


def test_few_users_with_three_items(tmp_path):
    rows = [(f"u{i}", f"i{i}", 1, i) for i in range(30)]
    rows += [("a", f"i{i}", 1, i) for i in range(5)]
    lines = of_rows(tmp_path, rows)
    assert lines[-1].startswith("only 1 of 31 users are in 'test': the others have fewer than 3")
