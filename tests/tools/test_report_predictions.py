"""The worst predictions on the page of a run: what is shown of each kind of labels and data."""

import base64
import io
import json
import re
import types
import wave

import numpy as np
import pytest

from input_fns.core.target import Target
from input_fns.dataset_info import read as read_dataset
from tests import audio_data, bert_data
from tools.reporting import mistakes, predictions
from tools.reporting.runs import Run


def judge(label, row, target=None, class_names=(), labels=(), **pipeline):
    data = types.SimpleNamespace(
        target=target, class_names=class_names, num_classes=len(class_names), labels=labels
    )
    judged, _ = mistakes.judge_of(types.SimpleNamespace(data=data, **pipeline), row)
    return judged(label, row)


def test_a_wrong_class_is_worse_the_surer_it_is():
    names = ("cat", "dog")
    right = judge(1, {"class_names": "dog", "probabilities": [0.1, 0.9]}, class_names=names)
    wrong = judge(0, {"class_names": "dog", "probabilities": [0.1, 0.9]}, class_names=names)
    assert right == mistakes.Mistake(0, False, "dog 0.90")
    assert wrong == mistakes.Mistake(0.9, True, "dog 0.90, label cat")


def test_several_labels_are_wrong_unless_all_are_equal():
    target, label = Target("multilabel", ("red", "dark", "round")), np.float32([1, 0, 1])
    row = {"labels": [1, 0, 0], "probabilities": [0.75, 0.125, 0.25]}
    assert judge(label, row, target) == mistakes.Mistake(0.75, True, "red; labels red; round")
    assert not judge(np.float32([1, 0, 0]), row, target).is_wrong


def test_probabilities_differ_by_half_of_the_sum_of_their_differences():
    target, label = Target("soft_labels", ("cat", "dog")), np.float32([0.75, 0.25])
    found = judge(label, {"probabilities": [0.25, 0.75]}, target)
    assert found == mistakes.Mistake(0.5, True, "dog 0.75, label cat 0.75")


def test_numbers_are_compared_in_units_of_their_scale():
    target = Target("regression", ("age", "height"), mean=(40.0, 1.7), scale=(10.0, 0.1))
    found = judge(np.array([40, 1.5]), {"numbers": [45, 1.7]}, target)
    assert found.size == pytest.approx(2)
    assert found.caption == "age 45, label 40; height 1.7, label 1.5"


def test_transcripts_are_compared_by_characters():
    found = judge(
        {"tokens": np.array([1, 2])},
        {"text": "abcd"},
        labels=("tokens",),
        to_text=lambda tokens: ["ab"],
    )
    assert found == mistakes.Mistake(1.0, True, "abcd; text ab")


def test_scores_of_texts_are_compared():
    found = judge({"score": np.float32(2)}, {"scores": 3.5}, labels=("score",))
    assert found == mistakes.Mistake(1.5, False, "3.5, label 2")


def test_other_predictions_are_not_judged():
    data = types.SimpleNamespace(target=None, class_names=("a",), num_classes=1, labels=())
    assert mistakes.judge_of(types.SimpleNamespace(data=data), {"embedding": [1.0]}) is None


def drawn(folder, data_dir, split, rows):
    folder.mkdir()
    (folder / "flags.cfg").write_text(f"--data_dir={data_dir}\n")
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"predictions_{split}_7.jsonl").write_text(lines)
    step, page = predictions.draw(Run(str(folder), ""))
    assert step == 7
    return page


@pytest.mark.slow(cost=0.1)
def test_wrong_texts_are_readable_and_come_first(tmp_path):
    (tmp_path / "data").mkdir()
    data_dir = bert_data.prepare_sst2(tmp_path / "data")
    names = read_dataset(data_dir).class_names
    sentences = bert_data.sentences(41, 2)
    rows = [{"class_names": names[label], "probabilities": [0.6, 0.4]} for _, label in sentences]
    rows[13] = {"class_names": names[1 - sentences[13][1]], "probabilities": [0.3, 0.7]}
    page = drawn(tmp_path / "run", data_dir, "validation", rows)
    assert "validation: 1 of the first 41 predictions are wrong; the surest ones first" in page
    figures = re.findall("<figure.*?</figure>", page)
    assert len(figures) == 24
    assert sentences[13][0] in figures[0]
    assert sentences[0][0] in figures[1]


def test_recordings_can_be_heard(tmp_path):
    source = audio_data.write_folder(tmp_path / "source", count=5)
    data = audio_data.prepare("audio_folder", source, tmp_path / "data")
    split, size = next((name, split.num_examples) for name, split in data.splits.items())
    page = drawn(tmp_path / "run", data.data_dir, split, [{"class_names": "low"}] * size)
    assert f"{size // 2} of the first {size} predictions are wrong" in page
    files = re.findall('src="data:audio/wav;base64,(.*?)"', page)
    assert len(files) == size
    with wave.open(io.BytesIO(base64.b64decode(files[0]))) as recording:
        assert recording.getframerate() == audio_data.RATE
        assert 0.1 <= recording.getnframes() / audio_data.RATE <= 0.24
