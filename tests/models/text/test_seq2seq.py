"""Loss and metrics of rows of tokens."""

import numpy as np
import pytest
import tensorflow as tf

from models.model import ModelError
from models.text import seq2seq
from tests import numerics

VOCAB = 11
# A log-softmax of six operations, the sum over a row's tokens, and its mean.
LOSS = {"terms": VOCAB, "depth": 6 + 2}
# Two sentences and padding; one sentence without room for more; padding alone.
ROWS = np.array([[5, 6, 1, 7, 1, 0], [3, 4, 5, 6, 7, 1], [0, 0, 0, 0, 0, 0]], np.int32)


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(size=[*ROWS.shape, VOCAB]).astype(np.float32)


def params(**changes):
    return {**seq2seq.default_params(), "vocab_size": VOCAB, "beam_size": 2, **changes}


def test_segments_number_the_sentences(session):
    assert session.run(seq2seq.segments(ROWS)).tolist() == [
        [1, 1, 1, 2, 2, 0],
        [1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 0],
    ]


def test_before_each_sentence_stands_the_end_of_another(session):
    assert session.run(seq2seq.shifted_right(ROWS[:2])).tolist() == [
        [1, 5, 6, 1, 7, 1],
        [1, 3, 4, 5, 6, 7],
    ]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_keras_of_the_tokens(session, logits, smoothing):
    outputs = {"logits": tf.constant(logits)}
    losses = seq2seq.losses({}, tf.constant(ROWS), outputs, params(label_smoothing=smoothing))
    loss, weights = losses["cross_entropy"].values, losses["cross_entropy"].weights
    keras = tf.keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing, reduction="none"
    )
    per_token = session.run(keras(tf.one_hot(ROWS, VOCAB), logits))
    expected = [per_token[0, :5].mean(), per_token[1].mean(), 0.0]
    numerics.assert_close(session.run(loss), expected, **LOSS)
    assert session.run(weights).tolist() == [5.0, 6.0, 0.0]  # tokens


def test_metrics_count_tokens_not_rows(session, logits):
    labels = tf.constant(ROWS)
    outputs = seq2seq.eval_outputs({}, labels, {"logits": tf.constant(logits)}, {})
    metrics = seq2seq.metrics(labels, outputs, tf.constant([1.0, 1.0, 0.0]), {})
    session.run(tf.compat.v1.local_variables_initializer())
    session.run([update for _, update in metrics.values()])
    values = session.run({name: value for name, (value, _) in metrics.items()})
    mask = ROWS > 0
    logits = logits.astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    true = np.take_along_axis(log_probs, ROWS[..., np.newaxis], -1)[..., 0]
    numerics.assert_close(values["token_accuracy"], (logits.argmax(-1) == ROWS)[mask].mean())
    numerics.assert_close(np.log(values["perplexity"]), -true[mask].mean(), **LOSS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_smoothing": 1.0}, r"label_smoothing=1.0 must be in \[0, 1\)"),
        ({"beam_size": 0}, "beam_size=0 must be at least 1"),
        ({"beam_size": 6}, "beam_size=6 must be at most half of the vocabulary of 11"),
        ({"length_penalty": -0.1}, "length_penalty=-0.1 must not be below 0"),
    ],
)
def test_a_wrong_value_is_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        seq2seq.check_params(params(**changes))
