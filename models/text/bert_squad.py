"""BERT for question answering: the span of a context that answers a question (SQuAD 1.1 and 2.0).

A row holds a question and a window of its context. Labels are int32 `[batch]`, `start_positions`
and `end_positions`: the first and the last token of the answer, or 0, [CLS], for none.
"""

from __future__ import annotations

import tensorflow as tf

from models.layers.losses import cross_entropy
from models.model import Loss
from models.text import bert, bert_model, encoders, squad_answers

# Logit of padding: the loss and the answers do not depend on the padding of a batch.
PADDING_LOGIT = -1e4
# Features of a SavedModel that takes text, for `best_spans`.
TEXT_FEATURES = {"token_ends", "is_max_context"}


def inference(features, params, training):
    """Computes the logits of the first and the last token of the answer.

    Args:
      features: see `bert.FEATURES`.
      params: see `bert.default_params`.
      training: True turns dropout on.

    Returns:
      `{"start_logits": [batch, length], "end_logits": [batch, length]}` of `params["precision"]`;
      `PADDING_LOGIT` for padding.
    """
    sequence_output = encoders.encode(features, params, training)
    with tf.compat.v1.variable_scope("cls/squad"):
        logits = bert.project(sequence_output, 2, params)
    is_token = tf.cast(features["input_mask"], tf.bool)
    padding = tf.constant(PADDING_LOGIT, logits.dtype)
    start_logits, end_logits = (
        tf.where(is_token, values, padding) for values in tf.unstack(logits, axis=-1)
    )
    return {"start_logits": start_logits, "end_logits": end_logits}


def losses(features, labels, outputs, params):
    """Mean of the cross-entropy of the first and of the last token."""
    del features, params
    start = cross_entropy(labels["start_positions"], outputs["start_logits"], 0.0)
    end = cross_entropy(labels["end_positions"], outputs["end_logits"], 0.0)
    return {"cross_entropy": Loss((start + end) / 2)}


def eval_outputs(features, labels, outputs, params):
    """Returns the most probable first and last token of each window, int32 `[batch]`."""
    del features, labels, params
    return {
        name: tf.argmax(outputs[f"{name}_logits"], axis=-1, output_type=tf.int32)
        for name in ("start", "end")
    }


def metrics(labels, outputs, weights, params):
    """Streaming `window_accuracy`: windows whose first and last token are both correct."""
    del params
    is_correct = tf.logical_and(
        tf.equal(outputs["start"], labels["start_positions"]),
        tf.equal(outputs["end"], labels["end_positions"]),
    )
    return {
        "window_accuracy": tf.compat.v1.metrics.mean(
            tf.cast(is_correct, tf.float32), weights, name="window_accuracy"
        )
    }


def predictions(features, outputs, params):
    """Returns `{"start_logits": float32 [batch, max_length], "end_logits": ...}`.

    With the features of a signature that takes text, also the best span of each window.
    """
    logits = {
        name: bert.pad_to_max_length(outputs[name], PADDING_LOGIT, params)
        for name in ("start_logits", "end_logits")
    }
    if features.keys() >= TEXT_FEATURES:
        return {**logits, **best_spans(features, logits, params)}
    return logits


def best_spans(features, logits, params):
    """Returns the best possible answer in each window, for a SavedModel that takes text.

    `squad_answers.find_spans` makes the same choice on the host.

    Args:
      features: `token_ends` and `is_max_context`, int32 `[windows, length]`.
      logits: `start_logits` and `end_logits`, float32 `[windows, length]`.
      params: `n_best_size`, `max_answer_length` and `null_threshold`.

    Returns:
      `first_token` and `last_token`, int32 `[windows]`; float64 `[windows]`: `answer_score`, the
      sum of their logits, -inf if no answer is possible; `null_score`, that of [CLS];
      `null_threshold`.
    """
    # float64, as on the host: sums of equal logits must tie in both.
    starts, ends = (tf.cast(logits[name], tf.float64) for name in ("start_logits", "end_logits"))
    count = min(params["n_best_size"], starts.shape[1])
    start_scores, first = tf.math.top_k(starts, count)
    end_scores, last = tf.math.top_k(ends, count)
    in_context = features["token_ends"] > 0
    is_first = in_context & (features["is_max_context"] > 0)
    length = last[:, tf.newaxis, :] - first[:, :, tf.newaxis] + 1  # [windows, count, count]
    is_valid = (length >= 1) & (length <= params["max_answer_length"])
    is_valid &= tf.gather(is_first, first, batch_dims=1)[:, :, tf.newaxis]
    is_valid &= tf.gather(in_context, last, batch_dims=1)[:, tf.newaxis, :]
    scores = start_scores[:, :, tf.newaxis] + end_scores[:, tf.newaxis, :]
    scores = tf.where(is_valid, scores, tf.constant(float("-inf"), tf.float64))
    scores = tf.reshape(scores, [-1, count * count])
    best = tf.argmax(scores, axis=1, output_type=tf.int32)
    null_score = starts[:, 0] + ends[:, 0]
    threshold = tf.constant(params["null_threshold"], tf.float64)
    return {
        "first_token": tf.gather(first, best // count, batch_dims=1),
        "last_token": tf.gather(last, best % count, batch_dims=1),
        "answer_score": tf.reduce_max(scores, axis=1),
        "null_score": null_score,
        "null_threshold": tf.fill(tf.shape(null_score), threshold),
    }


def host_metrics(params, pipeline):
    """Exact match and F1, if the pipeline has the questions."""
    if not hasattr(pipeline, "questions_around"):
        return []
    return [squad_answers.SquadAnswers(params, pipeline)]


def check_params(params):
    """Raises `ModelError` for a hyperparameter out of range."""
    encoders.check_params(params)
    squad_answers.check_params(params)


def default_params():
    """Returns the hyperparameters of the encoder, the head and the answers."""
    return {**bert.default_params(), **squad_answers.default_params()}


MODEL = bert_model.model(
    "squad",
    inference,
    labels=("start_positions", "end_positions"),
    default_params=default_params,
    losses=losses,
    predictions=predictions,
    metrics=metrics,
    metric_directions={"window_accuracy": "max"},
    eval_outputs=eval_outputs,
    host_metrics=host_metrics,
    check_params=check_params,
)
