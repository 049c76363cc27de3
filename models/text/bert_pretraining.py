"""BERT pre-training: masked language model and next sentence prediction (Devlin et al. 2018, 3.1).

Features besides those of `bert`: `masked_lm_positions`, int32 `[batch, predictions]`. Labels:

    masked_lm_ids          int32 [batch, predictions]   the tokens at these positions
    masked_lm_weights      int32 [batch, predictions]   1 for a prediction, 0 for padding
    next_sentence_labels   int32 [batch]                0: the second text follows the first
"""

from __future__ import annotations

import tensorflow as tf

from models.layers import dense
from models.layers.losses import cross_entropy
from models.model import Loss, ModelError
from models.text import bert, bert_model, encoders


def check_params(params):
    """Raises `ModelError` for a hyperparameter out of range, or another family than BERT."""
    encoders.check_params(params)
    if params["family"] != "bert":
        raise ModelError(
            f"family={params['family']}: bert_pretraining trains BERT only. Use a size of BERT, or "
            "fine-tune a released checkpoint with --model=bert_classifier or another task"
        )


def inference(features, params, training):
    """Computes the logits of masked tokens and of the next sentence.

    Args:
      features: see the module.
      params: see `bert.default_params`.
      training: True turns dropout on.

    Returns:
      `{"masked_lm_logits": [batch, predictions, vocab_size], "next_sentence_logits": [batch, 2]}`
      of `params["precision"]`.
    """
    sequence_output = bert.encode(features, params, training)
    pooled_output = bert.pool(sequence_output, params)
    word_embeddings = bert.word_embeddings(params)
    with tf.compat.v1.variable_scope("cls/predictions"):
        positions = features["masked_lm_positions"]
        masked = tf.gather(sequence_output, positions, batch_dims=1)
        rows = tf.reshape(masked, [-1, params["hidden_size"]])
        shape = [-1, positions.shape.as_list()[1], params["vocab_size"]]
        masked_lm_logits = _masked_lm_logits(rows, word_embeddings, shape, params)
    with tf.compat.v1.variable_scope("cls/seq_relationship"):
        next_sentence_logits = bert.project(pooled_output, 2, params)
    return {"masked_lm_logits": masked_lm_logits, "next_sentence_logits": next_sentence_logits}


def _masked_lm_logits(x, word_embeddings, shape, params):
    """Returns logits of `shape`, `[batch, predictions, vocab_size]`, of `[rows, hidden_size]`."""
    with tf.compat.v1.variable_scope("transform", initializer=bert.initializer(params)):
        x = tf.compat.v1.layers.dense(x, params["hidden_size"], bert.gelu, name="dense")
        x = bert.layer_norm(x)
    bias = tf.compat.v1.get_variable(
        "output_bias", [params["vocab_size"]], x.dtype, initializer=tf.zeros_initializer()
    )
    return dense.add_bias(tf.matmul(x, word_embeddings, transpose_b=True), bias, shape)


def losses(features, labels, outputs, params):
    """Cross-entropy of the masked tokens, a mean over the tokens, and of the next sentence."""
    del features, params
    ids, logits = labels["masked_lm_ids"], outputs["masked_lm_logits"]
    # A TPU would copy the gradient of three dimensions to the layout of two, for its products.
    logits = tf.reshape(logits, [-1, logits.shape.as_list()[-1]])
    per_token = tf.reshape(cross_entropy(tf.reshape(ids, [-1]), logits, 0.0), tf.shape(ids))
    mask = tf.cast(labels["masked_lm_weights"], tf.float32)
    num_tokens = tf.reduce_sum(mask, axis=1)
    masked_lm = tf.math.divide_no_nan(tf.reduce_sum(per_token * mask, axis=1), num_tokens)
    next_sentence = cross_entropy(
        labels["next_sentence_labels"], outputs["next_sentence_logits"], 0.0
    )
    return {"masked_lm": Loss(masked_lm, num_tokens), "next_sentence": Loss(next_sentence)}


def eval_outputs(features, labels, outputs, params):
    """Returns the number of correct masked tokens and next sentences, float32 `[batch]`."""
    del features, params
    ids = tf.argmax(outputs["masked_lm_logits"], axis=-1, output_type=tf.int32)
    mask = tf.cast(labels["masked_lm_weights"], tf.float32)
    classes = tf.argmax(outputs["next_sentence_logits"], axis=-1, output_type=tf.int32)
    is_correct = tf.cast(tf.equal(ids, labels["masked_lm_ids"]), tf.float32)
    return {
        "masked_lm_correct": tf.reduce_sum(is_correct * mask, axis=1),
        "next_sentence_correct": tf.cast(
            tf.equal(classes, labels["next_sentence_labels"]), tf.float32
        ),
    }


def metrics(labels, outputs, weights, params):
    """Streaming `masked_lm_accuracy` and `next_sentence_accuracy`."""
    del params
    num_tokens = tf.reduce_sum(tf.cast(labels["masked_lm_weights"], tf.float32), axis=1)
    accuracy = tf.math.divide_no_nan(outputs["masked_lm_correct"], num_tokens)
    return {
        "masked_lm_accuracy": tf.compat.v1.metrics.mean(
            accuracy, num_tokens * weights, name="masked_lm_accuracy"
        ),
        "next_sentence_accuracy": tf.compat.v1.metrics.mean(
            outputs["next_sentence_correct"], weights, name="next_sentence_accuracy"
        ),
    }


def predictions(features, outputs, params):
    """Returns the most probable masked tokens, and the probabilities of the next sentence.

    Returns:
      `{"masked_lm_ids": int32 [batch, predictions], "masked_lm_probabilities": float32 [batch,
      predictions], "next_sentence_probabilities": float32 [batch, 2]}`.
    """
    del features, params
    logits = outputs["masked_lm_logits"]
    return {
        "masked_lm_ids": tf.argmax(logits, axis=-1, output_type=tf.int32),
        "masked_lm_probabilities": tf.reduce_max(tf.nn.softmax(logits), axis=-1),
        "next_sentence_probabilities": tf.nn.softmax(outputs["next_sentence_logits"]),
    }


MODEL = bert_model.model(
    "pretraining",
    inference,
    labels=("masked_lm_ids", "masked_lm_weights", "next_sentence_labels"),
    losses=losses,
    predictions=predictions,
    metrics=metrics,
    metric_directions={"masked_lm_accuracy": "max", "next_sentence_accuracy": "max"},
    eval_outputs=eval_outputs,
    check_params=check_params,
    features=(*bert.FEATURES, "masked_lm_positions"),
)
