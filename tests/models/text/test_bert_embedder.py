"""The sentence encoder against NumPy: each text alone, in-batch softmax, equal texts, scores."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

from models import registry
from models.model import ModelError
from models.text import bert, bert_embedder
from tests import numerics

CLS, SEP, LENGTH = 1, 2, 9
PAIRS = [([3, 4, 5], [6, 7]), ([8], [3, 4, 5]), ([5, 4], [6, 7]), ([9, 9, 9], [])]
SCORES = np.array([5.0, 1.0, 4.0, 4.5], np.float32)
SIZES = {"num_layers": 1, "hidden_size": 6, "num_heads": 2, "ffn_size": 5, "vocab_size": 11}
NETWORK = {"terms": 9, "depth": 40}


def row(*texts):
    """[CLS] text [SEP], or [CLS] text [SEP] second text [SEP], as `bert.FEATURES`."""
    ids, segments = [CLS], [0]
    for number, text in enumerate(texts):
        ids += [*text, SEP]
        segments += [number] * (len(text) + 1)
    padding = [0] * (LENGTH - len(ids))
    return [ids + padding, [1] * len(ids) + padding, segments + padding]


def batch(rows):
    columns = np.array(rows, np.int32).transpose(1, 0, 2)
    return {name: tf.constant(column) for name, column in zip(bert.FEATURES, columns)}


def params(**changes):
    defaults = registry.find("bert_embedder").default_params()
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    return {**defaults, **SIZES, **no_dropout, "max_length": LENGTH, **changes}


@pytest.fixture
def run(session):
    """Runs tensors with random weights."""

    def run_with(tensors):
        random = np.random.default_rng(1)
        for variable in tf.compat.v1.global_variables():
            variable.load(random.normal(size=variable.shape), session)
        return session.run(tensors)

    return run_with


def test_both_texts_of_a_pair_become_rows_alone(session):
    found = session.run(bert_embedder.split_pairs(batch([row(*pair) for pair in PAIRS])))
    for side in (0, 1):
        expected = np.array([row(pair[side]) for pair in PAIRS]).transpose(1, 0, 2)
        for name, wanted in zip(bert.FEATURES, expected):
            np.testing.assert_array_equal(found[side][name], wanted)


def test_embeddings_of_pairs_are_those_of_single_texts(run):
    model, pairs = registry.find("bert_embedder"), batch([row(*pair) for pair in PAIRS])
    found = model.predictions(pairs, model.inference(pairs, params(), False), params())
    alone = params(has_pairs=False)
    with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=True):
        texts = [batch([row(pair[side]) for pair in PAIRS]) for side in (0, 1)]
        singles = [model.inference(text, alone, False)["embeddings"] for text in texts]
    found, (first, second) = run((found, singles))
    numerics.assert_close(found["embeddings"], first, **NETWORK)
    numerics.assert_close(found["second_embeddings"], second, **NETWORK)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    numerics.assert_close(found["scores"], (first * second).sum(axis=1) / norms, **NETWORK)


def reference_loss(first, second, temperature):
    """Returns the loss of each pair, float64, in loops; rows 0 and 2 have equal second texts."""
    first, second = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    losses = []
    for i in range(len(PAIRS)):
        others = [j for j in range(len(PAIRS)) if j == i or PAIRS[j][1] != PAIRS[i][1]]
        logits = {j: first[i] @ second[j] / temperature for j in others}
        losses.append(np.log(sum(np.exp(v - logits[i]) for v in logits.values())))
    return losses


def test_training_is_a_softmax_over_the_second_texts_of_the_batch(run):
    values, labels = params(temperature=0.5), {"score": tf.constant(SCORES)}
    features = batch([row(*pair) for pair in PAIRS])
    outputs = bert_embedder.inference(features, values, training=True)
    (loss,) = bert_embedder.losses(features, labels, outputs, values).values()
    outputs, found, weights = run((outputs, loss.values, loss.weights))
    first, second = (
        outputs[name].astype(np.float64) for name in ("embeddings", "second_embeddings")
    )
    # Logits of magnitude 2.
    numerics.assert_close(found, reference_loss(first, second, 0.5), magnitude=4.0, **NETWORK)
    np.testing.assert_array_equal(weights, [1, 0, 1, 1])


def test_an_evaluation_does_not_depend_on_the_batch(run):
    features, labels = batch([row(*pair) for pair in PAIRS]), {"score": tf.constant(SCORES)}
    outputs = bert_embedder.inference(features, params(), training=False)
    (loss,) = bert_embedder.losses(features, labels, outputs, params()).values()
    scores = bert_embedder.predictions(features, outputs, params())["scores"]
    found, weights, scores = run((loss.values, loss.weights, scores))
    numerics.assert_close(found, 1 - scores, depth=2)
    np.testing.assert_array_equal(weights, [1, 0, 1, 1])


def test_training_needs_pairs():
    with pytest.raises(ModelError, match="trained on pairs of texts"):
        bert_embedder.check_training_data(params(has_pairs=False), None, "train")


def test_tokens_are_not_an_embedding_per_text():
    model = registry.find("bert_embedder")
    with pytest.raises(ModelError, match="pooling=tokens: bert_embedder has one embedding"):
        model.check_params(params(pooling="tokens"))


@pytest.mark.parametrize("largest", [1.0, 0.9, 0.12345678])
def test_training_needs_a_positive_pair(largest):
    """The message has a value that will do."""
    batches = [(None, {"score": np.float32([0, 0.1])}), (None, {"score": np.float32([largest])})]
    pipeline = types.SimpleNamespace(host_examples=lambda split, batch_size: iter(batches))
    message = (
        r"no pair of 'train' has a score of at least positive_score=4\.0 \(largest: ([0-9.]+)\)"
    )
    with pytest.raises(ModelError, match=message) as raised:
        bert_embedder.check_training_data(params(), pipeline, "train")
    named = float(re.search(r"--params=positive_score=([0-9.]+) or lower", str(raised.value))[1])
    bert_embedder.check_training_data(params(positive_score=named), pipeline, "train")
