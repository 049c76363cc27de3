"""Keyword spotting by a small residual CNN on log-mel spectrograms.

After Tang and Lin 2018, arXiv:1710.10361. Batch norm keeps the loudness of a place relative to
others, which layer norm over few channels would remove. Set `batch_norm_cross_replica` for batches
of less than about 16 recordings per core.
"""

from __future__ import annotations

import math

import tensorflow as tf

from common.params import Ints
from models import targets
from models.layers import normalization
from models.layers.conv_batch_norm import conv2d_batch_norm
from models.layers.dropout import dropout
from models.model import Model, ModelError, check_fractions
from models.speech import log_mel


def default_params():
    """Returns the hyperparameters."""
    return {
        **log_mel.default_params(num_mels=40),
        **normalization.default_params(),
        "num_classes": 10,  # set by the data set
        # Channels of each stage. A stage is a residual block of two 3x3 convolutions; frames and
        # mel bins are halved before each.
        "channels": Ints([32, 64, 96]),
        "dropout": 0.3,  # of the inputs of the last layer
        **targets.default_params(),
        "precision": "float32",  # or bfloat16, of the layers after the front end
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    log_mel.check_params(params)
    normalization.check_params(params)
    targets.check_params(params)
    check_fractions(params, "dropout")
    if not params["channels"] or min(params["channels"]) < 1:
        raise ModelError(f"channels={params['channels']} must be above 0")


def inference(features, params, training):
    """Computes class logits.

    Args:
      features: `{"waveform": float32 [batch, max_samples], "num_samples": int32 [batch]}`, and the
        masks of SpecAugment; see `log_mel`.
      params: see `default_params`.
      training: True turns dropout on, and lets batch norm use batch statistics.

    Returns:
      `{"logits": [batch, num_classes]}` of `params["precision"]`.
    """
    x, num_frames = log_mel.log_mel(features, params)
    x = tf.cast(x, params["precision"])[..., tf.newaxis]  # [batch, frames, mels, 1]

    def conv(x, filters, name):
        """3x3 convolution, batch norm and ReLU; 0 after the end of each recording."""
        with tf.compat.v1.variable_scope(name):
            x = conv2d_batch_norm(x, filters, 3, params, training)
        mask = log_mel.frame_mask(num_frames, x.shape.as_list()[1])
        return tf.nn.relu(x) * tf.cast(mask, x.dtype)[:, :, tf.newaxis, tf.newaxis]

    x = conv(x, params["channels"][0], "stem")
    for i, filters in enumerate(params["channels"]):
        # Aligned with the first frame, unlike strided convolutions with padding "same".
        x = tf.nn.max_pool2d(x, 2, 2, "SAME")
        num_frames = (num_frames + 1) // 2
        with tf.compat.v1.variable_scope(f"stage_{i}"):
            x = conv(x, filters, "conv_0")
            x += conv(x, filters, "conv_1")
    # The mean over the frames; mel bins differ in what they mean.
    count = tf.cast(tf.maximum(num_frames, 1), tf.float32)[:, tf.newaxis, tf.newaxis]
    x = tf.cast(tf.reduce_sum(tf.cast(x, tf.float32), axis=1) / count, x.dtype)
    x = tf.reshape(x, [-1, math.prod(x.shape.as_list()[1:])])
    x = dropout(x, params["dropout"], training)
    return {"logits": tf.compat.v1.layers.dense(x, params["num_classes"], name="logits")}


MODEL = Model(
    "keyword_cnn",
    default_params,
    targets.inference(inference),
    targets.losses,
    targets.predictions,
    mean_outputs=targets.mean_outputs,
    metrics=targets.metrics,
    metric_directions=targets.metric_directions,
    host_metrics=targets.host_metrics,
    reports=targets.reports,
    check_params=check_params,
    dataset_variables=targets.dataset_variables,
    unused_params=targets.unused_params,
    features=("waveform", "num_samples"),
    labels=("label",),
    dataset_properties=("num_classes", "sample_rate", *targets.PROPERTIES),
    optional_properties=targets.PROPERTIES,
)
