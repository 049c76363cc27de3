"""What models from token ids to token ids share: loss, metrics and predictions.

A sequence is int32 `[batch, length]`: sentences one after the other, each ended by `EOS`, then
`PAD`. In training several sentences share a row, the n-th of the source with the n-th of the
target; in evaluation and prediction a row holds one.

`features` are `{"source", "target"}` in training and evaluation, where the outputs of an inference
function are `{"logits": [batch, length, vocab_size]}`, those of each target token given the tokens
before it; in prediction they are `{"source"}` alone, and the outputs
`{"target": int32 [batch, length], "score": float32 [batch]}`.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import EOS, PAD
from models.layers import losses
from models.model import ModelError, check_fractions


def default_params():
    """Returns the hyperparameters that every such model has."""
    return {
        "vocab_size": 8064,  # the data set's own number replaces it
        "label_smoothing": 0.1,
        "beam_size": 5,  # of prediction; 1: greedy
        "length_penalty": 0.6,  # of beam search: above 0 longer sentences are preferred
        "precision": "float32",  # of the layers, or bfloat16; --precision replaces it
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_fractions(params, "label_smoothing")
    if params["beam_size"] < 1:
        raise ModelError(f"beam_size={params['beam_size']} must be at least 1")
    if params["beam_size"] * 2 > params["vocab_size"]:
        raise ModelError(
            f"beam_size={params['beam_size']} must be at most half of the vocabulary of "
            f"{params['vocab_size']}"
        )
    if params["length_penalty"] < 0:
        raise ModelError(f"length_penalty={params['length_penalty']} must not be below 0")


def segments(tokens):
    """Numbers the sentences of each row: int32 `[batch, length]`, from 1; 0 for `PAD`."""
    ends = tf.cast(tf.equal(tokens, EOS), tf.int32)
    number = 1 + tf.cumsum(ends, axis=1, exclusive=True)
    return number * tf.cast(tf.not_equal(tokens, PAD), tf.int32)


def shifted_right(tokens):
    """Returns what the decoder has seen before each token; `EOS` before each sentence."""
    return tf.pad(tokens[:, :-1], [[0, 0], [1, 0]], constant_values=EOS)


def loss(labels, outputs, params):
    """Mean cross-entropy of the tokens of each row, with label smoothing, float32 `[batch]`."""
    per_token = losses.cross_entropy(labels, outputs["logits"], params["label_smoothing"])
    return tf.math.divide_no_nan(tf.reduce_sum(per_token * _mask(labels), 1), loss_weights(labels))


def loss_weights(labels):
    """Returns the number of tokens of each row, float32 `[batch]`: all tokens weigh the same."""
    return tf.reduce_sum(_mask(labels), axis=1)


def eval_outputs(labels, outputs):
    """Returns what `metrics` need, float32 `[batch]` each: sums over the tokens of a row."""
    logits = outputs["logits"]
    per_token = losses.cross_entropy(labels, logits, label_smoothing=0.0)
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)
    mask = _mask(labels)
    correct = tf.cast(tf.equal(best, labels), tf.float32)
    return {
        "log_loss": tf.reduce_sum(per_token * mask, axis=1),
        "correct": tf.reduce_sum(correct * mask, axis=1),
    }


def metrics(labels, outputs, weights):
    """Streaming `token_accuracy` and `perplexity`, e to the mean loss of a token, unsmoothed."""
    tokens = loss_weights(labels)
    counted = tokens if weights is None else tokens * weights
    accuracy = tf.math.divide_no_nan(outputs["correct"], tokens)
    mean, update = tf.compat.v1.metrics.mean(
        tf.math.divide_no_nan(outputs["log_loss"], tokens), counted, name="perplexity"
    )
    return {
        "token_accuracy": tf.compat.v1.metrics.mean(accuracy, counted, name="token_accuracy"),
        "perplexity": (tf.exp(mean), tf.exp(update)),
    }


def predictions(outputs):
    """Returns `{"target": int32 [batch, length], "score": float32 [batch]}`; see `decoding`."""
    return {"target": outputs["target"], "score": outputs["score"]}


def _mask(labels):
    return tf.cast(tf.not_equal(labels, PAD), tf.float32)
