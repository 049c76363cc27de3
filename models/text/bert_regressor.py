"""BERT for regression of a text or a pair of texts, such as similarity (STS-B).

Labels are `{"score": float32 [batch]}`.
"""

from __future__ import annotations

import tensorflow as tf

from models.layers.dropout import dropout
from models.model import Loss
from models.text import bert, bert_model, document_metrics, encoders
from models.text.correlation import Correlation


def inference(features, params, training):
    """Computes a score from the pooled output.

    Args:
      features: see `bert.FEATURES`.
      params: see `bert.default_params`.
      training: True turns dropout on.

    Returns:
      `{"scores": [batch]}` of `params["precision"]`.
    """
    x = encoders.pool(encoders.encode(features, params, training), params)
    x = dropout(x, params["dropout"], training)
    return {"scores": tf.squeeze(bert.project(x, 1, params), axis=1)}


def losses(features, labels, outputs, params):
    """Squared error."""
    del features, params
    return {"squared_error": Loss(tf.square(outputs["scores"] - labels["score"]))}


def metrics(labels, outputs, weights, params):
    """Streaming `mean_absolute_error`."""
    del params
    return {
        "mean_absolute_error": tf.compat.v1.metrics.mean_absolute_error(
            labels["score"], outputs["scores"], weights
        )
    }


def host_metrics(params, pipeline):
    """Pearson and Spearman correlation; of long texts also those of documents."""
    del params
    documents = document_metrics.host_metrics(pipeline, document_metrics.Scores)
    return [Correlation(), *documents]


def predictions(features, outputs, params):
    """Returns `{"scores": float32 [batch]}`."""
    del features, params
    return {"scores": outputs["scores"]}


MODEL = bert_model.model(
    "regressor",
    inference,
    labels=("score",),
    losses=losses,
    predictions=predictions,
    metrics=metrics,
    metric_directions={"mean_absolute_error": "min"},
    host_metrics=host_metrics,
)
