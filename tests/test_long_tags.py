"""Long documents of tagged words: each word is tagged once, where it has the most context."""

import json
import types

import numpy as np
import pytest

import run_cpu
import run_tpu
from common.constants import DOCUMENT_INDEX
from input_fns import DataError, convert, dataset_info
from input_fns.convert.options import Options
from input_fns.text import tag_pipeline
from input_fns.text.sources import token_files
from models.text.bert_token_classifier import EntityF1, entities
from tests import bert_data
from tests.conftest import EMULATED, _runner
from tests.marks import slow

ROOM, STRIDE = 5, 2
TAGS = ("B-X", "I-X", "O")


@pytest.mark.parametrize("length", [1, 5, 6, 12, 23])
def test_each_token_counts_in_the_window_with_the_most_context(length):
    tokens = np.stack([np.arange(length), np.full(length, 1)], axis=1)
    rows = token_files._rows_of(tokens, ROOM, STRIDE)
    counted = np.concatenate([row[row[:, 2] > 0, 0] for row in rows])
    np.testing.assert_array_equal(counted, np.arange(length))  # once each, in order
    for row in rows:
        for place in np.flatnonzero(row[:, 2]):
            token = row[place, 0]
            contexts = [
                min(token - other[0, 0], other[-1, 0] - token)
                for other in rows
                if token in other[:, 0]
            ]
            assert min(place, len(row) - 1 - place) == max(contexts)


def test_without_windows_a_sentence_is_one_row():
    tokens = np.zeros([7, 2], np.int32)
    (row,) = token_files._rows_of(tokens, ROOM, None)
    assert (row.shape, row[:, 2].tolist()) == ((5, 3), [1] * 5)


def test_an_entity_may_continue_in_the_next_window():
    """The second document begins where the first ends: its I-X is another entity."""
    labels = np.array([[2, 0, -1], [-1, 1, 2], [1, 2, 2]])
    metric = EntityF1(TAGS)
    for rows in ([0, 1], [2]):  # batches
        features = {DOCUMENT_INDEX: np.array([0, 0, 1])[rows]}
        metric.update(features, {"tag_ids": labels[rows]}, {"tag_ids": labels[rows]})
    assert metric.result()["entity_f1"] == 1
    assert (metric._wanted, metric._correct) == (2, 2)
    alone = EntityF1(TAGS)
    alone.update({}, {"tag_ids": labels}, {"tag_ids": labels})
    alone.result()
    assert alone._wanted == 3  # the negative control: windows alone cut the entity


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_line_of_predictions_per_document(tmp_path, size):
    windows = [(0, [0, 1, 1, 0]), (0, [0, 0, 1, 0]), (1, [0, 1, 0, 0])]
    pipeline = types.SimpleNamespace(
        windows=lambda split: iter([(n, np.array(c) > 0) for n, c in windows]),
        data=types.SimpleNamespace(all_class_names=()),
    )
    writer = tag_pipeline.TagDocumentWriter(pipeline, types.SimpleNamespace(what="test"))
    ids = np.arange(12).reshape(3, 4)
    values = {"tag_ids": ids, "tag_probabilities": ids / 16}
    batches = (
        {name: value[i : i + size] for name, value in values.items()} for i in range(0, 3, size)
    )
    writer.write(str(tmp_path / "out.jsonl"), batches)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["tag_ids"] for line in lines] == [[1, 2, 6], [9]]
    assert [line["windows"] for line in lines] == [2, 1]
    assert lines[1]["tag_probabilities"] == [9 / 16]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Sentences of 3 to 14 words, in rows of 8 tokens with [CLS] and [SEP], every 3."""
    return bert_data.prepare_tags(
        tmp_path_factory.mktemp("tags"), max_length=8, truncate="windows", doc_stride=3
    )


@pytest.fixture(scope="module")
def windows(data_dir):
    """The pipeline, and features and labels of all windows of "validation"."""
    data = dataset_info.read(data_dir)
    options = types.SimpleNamespace(
        cache="auto",
        export_text=False,
        dynamic_padding=False,
        group_by_length=False,
        join_windows="mean",
    )
    pipeline = data.kind.pipeline(data, options)
    return pipeline, *next(pipeline.host_examples("validation", 4096))


def test_prepared_rows_have_each_word_once(windows):
    pipeline, features, labels = windows
    assert len(features["input_ids"]) > pipeline.data.kind.splits["validation"].num_texts == 17
    words = sum(len(text.split()) for text, _ in bert_data.sentences(17, 6))
    assert (labels["tag_ids"] >= 0).sum() == words
    assert not set(pipeline.features) & {*tag_pipeline.TagDocumentPipeline.host_features}


def test_tokens_are_not_removed_from_the_middle(tmp_path):
    (tmp_path / "train.txt").write_text("".join(f"a{i} B-X\nb O\n\n" for i in range(30)))
    (tmp_path / "vocab.txt").write_bytes(bert_data.VOCAB)
    options = Options(
        "token_files",
        source=str(tmp_path / "train.txt"),
        vocabulary=str(tmp_path / "vocab.txt"),
        truncate="middle",
    )
    with pytest.raises(DataError, match="--truncate=middle is not valid for words with tags"):
        convert.read(options)


@pytest.mark.parametrize("wrapper", [slow(run_cpu), slow(run_tpu)])
def test_an_evaluation_counts_documents(data_dir, windows, tmp_path, result, wrapper):
    model_dir, path = tmp_path / "model", tmp_path / "predictions.jsonl"
    run = _runner(
        wrapper,
        "--model=bert_tiny_token_classifier",
        "--dataset=token_files",
        f"--data_dir={data_dir}",
        *bert_data.TINY,
        "--params=learning_rate=0.01",
        *("--seed=1", "--train_batch_size=16", "--train_steps=20"),
        *("--eval_split=validation", "--eval_batch_size=8", "--predict_batch_size=8"),
        *(EMULATED if wrapper is run_tpu else ()),
    )
    run(model_dir, "--mode=train_and_eval")
    run(model_dir, "--mode=predict", f"--predict_output={path}")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 17
    _, features, labels = windows
    names = dataset_info.read(data_dir).properties["tag_names"]
    counts = np.zeros(3)
    for number, line in enumerate(lines):
        of_document = features[DOCUMENT_INDEX] == number
        is_counted = features["is_max_context"][of_document] > 0
        wanted_ids = labels["tag_ids"][of_document][is_counted]
        assert len(line["tag_ids"]) == len(wanted_ids)
        wanted, predicted = (
            entities([names[i] for i in np.array(ids)[wanted_ids >= 0]])
            for ids in (wanted_ids, line["tag_ids"])
        )
        counts += len(wanted & predicted), len(predicted), len(wanted)
    expected = 2 * counts[0] / (counts[1] + counts[2])
    assert result(model_dir, 20)["eval"]["entity_f1"] == pytest.approx(expected)
    assert expected > 0.5
