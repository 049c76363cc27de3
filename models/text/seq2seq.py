"""Sequence-to-sequence models: hyperparameters, loss, metrics and predictions that they share.

A sequence is int32 `[batch, length]`, token ids: sentences that each end with `EOS`, then `PAD`.
For training several sentences are packed into a row, the n-th of the source with the n-th of the
target; for evaluation and prediction a row has one sentence.

For training and evaluation `features` are `{"source", "target"}`, and an inference function returns
`{"logits": [batch, length, vocab_size]}`, of each target token given those before it. For
prediction they are `{"source"}`, and a decode function returns
`{"target": int32 [batch, length], "score": float32 [batch]}`.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import EOS, PAD
from models.layers.losses import cross_entropy
from models.model import (
    Loss,
    Model,
    ModelError,
    check_fractions,
    check_not_negative,
    check_positive,
)


def default_params():
    """Returns the hyperparameters of every sequence-to-sequence model."""
    return {
        "vocab_size": 8064,  # set by the data set
        "label_smoothing": 0.1,
        "beam_size": 5,  # beams of prediction; 1: greedy decoding
        "length_penalty": 0.6,  # of beam search; larger values prefer longer sentences
        "precision": "float32",  # or bfloat16, of the layers; set by --precision
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_fractions(params, "label_smoothing")
    check_positive(params, "beam_size")
    if params["beam_size"] * 2 > params["vocab_size"]:
        raise ModelError(
            f"beam_size={params['beam_size']} must be at most half of the vocabulary of "
            f"{params['vocab_size']}"
        )
    check_not_negative(params, "length_penalty")


def unused_params(params):
    """Returns the hyperparameters of beam search if there is none; see `Model`."""
    return {"length_penalty": "beam_size"} if params["beam_size"] == 1 else {}


def segments(tokens):
    """Returns the number of the sentence of each token, from 1 in each row; 0 for `PAD`.

    Args:
      tokens: int32 `[batch, length]`.

    Returns:
      int32 `[batch, length]`.
    """
    ends = tf.cast(tf.equal(tokens, EOS), tf.int32)
    number = 1 + tf.cumsum(ends, axis=1, exclusive=True)
    return number * tf.cast(tf.not_equal(tokens, PAD), tf.int32)


def shifted_right(tokens):
    """Returns the decoder's input of teacher forcing: the token before each token.

    Sentences start with the `EOS` of the one before, or of padding on the left.

    Args:
      tokens: int32 `[batch, length]`.

    Returns:
      int32 `[batch, length]`.
    """
    return tf.pad(tokens[:, :-1], [[0, 0], [1, 0]], constant_values=EOS)


def losses(features, labels, outputs, params):
    """Cross-entropy with `params["label_smoothing"]`, a mean over the tokens of the batch."""
    del features
    per_token = cross_entropy(labels, outputs["logits"], params["label_smoothing"])
    mask = _mask(labels)
    num_tokens = tf.reduce_sum(mask, axis=1)
    values = tf.math.divide_no_nan(tf.reduce_sum(per_token * mask, axis=1), num_tokens)
    return {"cross_entropy": Loss(values, num_tokens)}


def eval_outputs(features, labels, outputs, params):
    """Returns sums over the tokens of each row, float32 `[batch]`."""
    del features, params
    logits = outputs["logits"]
    per_token = cross_entropy(labels, logits, label_smoothing=0.0)
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)
    mask = _mask(labels)
    correct = tf.cast(tf.equal(best, labels), tf.float32)
    return {
        "log_loss": tf.reduce_sum(per_token * mask, axis=1),
        "correct": tf.reduce_sum(correct * mask, axis=1),
    }


def metrics(labels, outputs, weights, params):
    """Streaming `token_accuracy` and `perplexity`, exp(mean cross-entropy without smoothing)."""
    del params
    num_tokens = tf.reduce_sum(_mask(labels), axis=1)
    token_weights = num_tokens * weights
    accuracy = tf.math.divide_no_nan(outputs["correct"], num_tokens)
    mean, update = tf.compat.v1.metrics.mean(
        tf.math.divide_no_nan(outputs["log_loss"], num_tokens), token_weights, name="perplexity"
    )
    return {
        "token_accuracy": tf.compat.v1.metrics.mean(accuracy, token_weights, name="token_accuracy"),
        "perplexity": (tf.exp(mean), tf.exp(update)),
    }


def predictions(features, outputs, params):
    """Returns `{"target": int32 [batch, length], "score": float32 [batch]}`; see `decoding`."""
    del features, params
    return {"target": outputs["target"], "score": outputs["score"]}


def host_metrics(params, pipeline):
    """BLEU, if the data set has a vocabulary to decode token ids with."""
    del params
    if not hasattr(pipeline, "vocabulary"):
        return []
    from models.text.bleu import Bleu  # sacreBLEU is an optional dependency

    return [Bleu(pipeline.vocabulary.decode)]


def model(name, default_params, inference, decode, check_params=check_params, **more):
    """Returns the Model of a sequence-to-sequence model; `more` are arguments of `Model`."""
    return Model(
        name=name,
        default_params=default_params,
        inference=inference,
        decode=decode,
        losses=losses,
        predictions=predictions,
        metrics=metrics,
        metric_directions={"token_accuracy": "max", "perplexity": "min"},
        eval_outputs=eval_outputs,
        host_metrics=host_metrics,
        check_params=check_params,
        unused_params=unused_params,
        features=("source", "target"),
        dataset_properties=("vocab_size",),
        **more,
    )


def _mask(labels):
    """Returns float32 `[batch, length]`, 1 for a token and 0 for `PAD`."""
    return tf.cast(tf.not_equal(labels, PAD), tf.float32)
