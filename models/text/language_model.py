"""Language models: hyperparameters, loss, metrics and predictions that they share.

For training and evaluation `features` are those of `input_fns.text.tokens_kind`, and an inference
function returns `{"log_probs": float32 [batch, length]}`, the log probability of each token of a
row after the first, given those before it. For prediction they are a prompt, and a decode function
returns what `generation.generate` does.
"""

from __future__ import annotations

import math

import tensorflow as tf

from models.model import Loss, Model
from models.text import generation


def default_params():
    """Returns the hyperparameters of every language model."""
    return {
        "vocab_size": 50257,  # rows of the embedding; set by the data set
        **generation.default_params(),
        "precision": "float32",  # or bfloat16, of the layers; set by --precision
    }


def losses(features, labels, outputs, params):
    """Cross-entropy, a mean over the predicted tokens of the batch."""
    del labels, params
    total, num_tokens = _log_loss(features, outputs)
    return {"cross_entropy": Loss(tf.math.divide_no_nan(total, num_tokens), num_tokens)}


def eval_outputs(features, labels, outputs, params):
    """Returns sums of each row, float32 `[batch]`: log loss, tokens and bytes of their text."""
    del labels, params
    total, num_tokens = _log_loss(features, outputs)
    num_bytes = tf.cast(features["num_bytes"], tf.float32)
    return {"log_loss": total, "num_tokens": num_tokens, "num_bytes": num_bytes}


def metrics(labels, outputs, weights, params):
    """Streaming `perplexity` per token, and `bits_per_byte` of the text, over the whole split.

    Bits per byte compares models with different tokens.
    """
    del labels, params
    means = {}
    for name in ("num_tokens", "num_bytes"):
        count = outputs[name]
        loss = tf.math.divide_no_nan(outputs["log_loss"], count)
        means[name] = tf.compat.v1.metrics.mean(loss, count * weights, name=f"loss_per_{name}")
    return {
        "perplexity": tuple(map(tf.exp, means["num_tokens"])),
        "bits_per_byte": tuple(value / math.log(2) for value in means["num_bytes"]),
    }


def predictions(features, outputs, params):
    """Returns the tokens, their number and log probabilities; see `generation.generate`."""
    del features, params
    return {name: outputs[name] for name in ("tokens", "length", "log_probs")}


def model(name, default_params, inference, decode, check_params, **more):
    """Returns the Model of a language model; `more` are arguments of `Model`."""
    return Model(
        name=name,
        default_params=default_params,
        inference=inference,
        decode=decode,
        losses=losses,
        predictions=predictions,
        metrics=metrics,
        metric_directions={"perplexity": "min", "bits_per_byte": "min"},
        eval_outputs=eval_outputs,
        check_params=check_params,
        features=("tokens", "num_tokens", "num_bytes"),
        dataset_properties=("vocab_size", "num_tokens", "end_of_text", "max_length"),
        padded_properties=("vocab_size",),
        **more,
    )


def _log_loss(features, outputs):
    """Returns the sum of the log loss of each row, and its number of predicted tokens."""
    log_probs = outputs["log_probs"]
    is_token = tf.range(log_probs.shape.as_list()[1]) < features["num_tokens"][:, tf.newaxis]
    total = -tf.reduce_sum(tf.where(is_token, log_probs, 0.0), axis=1)
    return total, tf.cast(features["num_tokens"], tf.float32)
