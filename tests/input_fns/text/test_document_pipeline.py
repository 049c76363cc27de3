"""Joins of windows in NumPy, in a graph and over batches; windows in a graph and in Python."""

import json

import numpy as np
import pytest
import tensorflow as tf

from input_fns.text import document_pipeline, wordpiece
from input_fns.text.sources import token_rows

DOCUMENTS = np.array([0, 0, 0, 1, 2, 2], np.int32)
PROBABILITIES = np.array(
    [[0.9, 0.1], [0.4, 0.6], [0.45, 0.55], [0.2, 0.8], [0.7, 0.3], [0.1, 0.9]], np.float32
)
SCORES = np.array([1, 2, 6, 3, 5, -1], np.float32)
# Mean, maxima divided by their sum, votes; the votes of document 2 tie, its mean is of class 1.
EXPECTED = {
    "mean": ([[1.75 / 3, 1.25 / 3], [0.2, 0.8], [0.4, 0.6]], [0, 1, 1]),
    "max": ([[0.6, 0.4], [0.2, 0.8], [0.4375, 0.5625]], [0, 1, 1]),
    "vote": ([[1 / 3, 2 / 3], [0, 1], [0.5, 0.5]], [1, 1, 1]),
}
EMBEDDINGS = np.float32([[1, 0], [0.6, 0.8], [0, 1], [0.6, 0.8], [1, 0], [0.6, 1]])
PREDICTIONS = {
    "probabilities": PROBABILITIES,
    "scores": SCORES,
    "classes": np.zeros(6, np.int32),
    "embeddings": EMBEDDINGS,
    "second_embeddings": 2 * EMBEDDINGS,
}


@pytest.mark.parametrize("how", EXPECTED)
def test_windows_are_joined(how):
    found = document_pipeline.join(PREDICTIONS, DOCUMENTS, how)
    probabilities, classes = EXPECTED[how]
    np.testing.assert_allclose(found["probabilities"], probabilities, rtol=1e-6)
    np.testing.assert_array_equal(found["classes"], classes)
    scores = {"max": [6, 3, 5]}.get(how, [3, 3, 2])
    np.testing.assert_allclose(found["scores"], scores)


@pytest.mark.parametrize("how", EXPECTED)
def test_a_graph_joins_alike(how, session):
    document_ops = pytest.importorskip("input_fns.text.document_ops")
    tensors = tf.nest.map_structure(tf.constant, PREDICTIONS)
    found = session.run(document_ops.joined(tensors, tf.constant(DOCUMENTS), how))
    expected = document_pipeline.join(PREDICTIONS, DOCUMENTS, how)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6)


@pytest.mark.parametrize("how", ["mean", "max"])
def test_normalized_embeddings_stay_normalized(how):
    """All windows of the documents 0 and 1 are; other embeddings have the plain mean or maximum."""
    found = document_pipeline.join(PREDICTIONS, DOCUMENTS, how)
    lengths = np.linalg.norm(found["embeddings"], axis=1)
    np.testing.assert_allclose(lengths[:2], 1, rtol=1e-6)
    plain = {"mean": [0.8, 0.5], "max": [1, 1]}[how]
    np.testing.assert_allclose(found["embeddings"][2], plain, rtol=1e-6)
    np.testing.assert_allclose(found["second_embeddings"][2], 2 * np.array(plain), rtol=1e-6)


class OneSplit:
    """A pipeline of these windows."""

    data = type("Data", (), {"all_class_names": ()})

    def documents(self, split):
        assert split == "test"
        return DOCUMENTS

    def join(self, predictions, documents):
        return document_pipeline.join(predictions, documents, "mean")


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_documents_may_span_batches(size, tmp_path):
    examples = type("Examples", (), {"what": "test"})
    writer = document_pipeline.DocumentWriter(OneSplit(), examples)
    batches = ({"scores": SCORES[i : i + size]} for i in range(0, 6, size))
    writer.write(f"{tmp_path}/out.jsonl", batches)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["scores"] for line in lines] == [3, 3, 2]
    assert [line["windows"] for line in lines] == [3, 1, 2]
    assert [line["index"] for line in lines] == [0, 1, 2]


@pytest.mark.parametrize(
    ("length", "starts"),
    [(0, [0]), (1, [0]), (5, [0]), (6, [0, 3]), (8, [0, 3]), (9, [0, 3, 6]), (11, [0, 3, 6])],
)
def test_windows_of_5_tokens_every_3(length, starts):
    assert [*token_rows.window_starts(length, room=5, stride=3)] == starts


PIECES = [*wordpiece.SPECIAL, "a", "b", "c", "##d"]
VOCABULARY = wordpiece.WordPieceTokenizer("".join(f"{p}\n" for p in PIECES).encode(), True)
TEXTS = ["a b c", "", "a b cd a b cd a", "c " * 20]


@pytest.mark.slow(cost=0.1)
def test_a_graph_makes_the_windows_of_prepare_data(session):
    document_ops = pytest.importorskip("input_fns.text.document_ops")
    found = session.run(document_ops.windows([tf.constant(TEXTS)], VOCABULARY, 7, 3))
    rows, documents = [], []
    for number, ids in enumerate(VOCABULARY.encode_ids(TEXTS)):
        for start in token_rows.window_starts(len(ids), 5, 3):
            row = [VOCABULARY.cls_id, *ids[start : start + 5], VOCABULARY.sep_id]
            rows.append(row + [VOCABULARY.pad_id] * (7 - len(row)))
            documents.append(number)
    np.testing.assert_array_equal(found["input_ids"], rows)
    np.testing.assert_array_equal(found["input_mask"], np.array(rows) != VOCABULARY.pad_id)
    np.testing.assert_array_equal(found["segment_ids"], np.zeros_like(rows))
    np.testing.assert_array_equal(found["document_index"], documents)


FIRST = ["a", "b a b a b a", "c c", ""]


def test_windows_of_a_pair_are_of_its_second_text():
    """Each has the first text: 6 of its tokens become 3, half of the room of 6."""
    ids, lengths, counts, num_truncated = token_rows._encode_windows(
        VOCABULARY, 6, 3, (FIRST, TEXTS)
    )
    first, second = (VOCABULARY.encode_ids(texts) for texts in (FIRST, TEXTS))
    assert num_truncated == 1
    assert counts.tolist() == [1, 1, 3, 6]
    rows = np.split(ids, np.cumsum(lengths.sum(axis=1))[:-1])
    documents = np.repeat(np.arange(4), counts)
    for row, (size, _), document in zip(rows, lengths, documents):
        np.testing.assert_array_equal(row[:size], first[document][:3])
    joined = [row[size:] for row, (size, _), number in zip(rows, lengths, documents) if number == 2]
    np.testing.assert_array_equal(
        np.concatenate([joined[0][:3], joined[1][:3], joined[2]]), second[2]
    )


@pytest.mark.slow(cost=0.1)
def test_a_graph_makes_the_windows_of_pairs_of_prepare_data(session):
    document_ops = pytest.importorskip("input_fns.text.document_ops")
    texts = [tf.constant(FIRST), tf.constant(TEXTS)]
    found = session.run(document_ops.windows(texts, VOCABULARY, 9, 3))
    ids, lengths, counts, _ = token_rows._encode_windows(VOCABULARY, 6, 3, (FIRST, TEXTS))
    tokens = token_rows.StoredTokens.of(VOCABULARY)
    expected = token_rows.block_values(ids, lengths, tokens, 9)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, name)
    np.testing.assert_array_equal(found["document_index"], np.repeat(np.arange(4), counts))
