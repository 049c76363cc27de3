"""BERT for classification of a text or a pair of texts, such as sentiment or entailment.

With several labels, probabilities of classes or numbers if the data set has them; see
`models.targets`.
"""

from __future__ import annotations

from models import classification, targets
from models.layers.dropout import dropout
from models.model import ModelError
from models.text import bert, bert_model, document_metrics, encoders


def default_params():
    """Returns the hyperparameters of `inference` and `targets.losses`."""
    return {
        **bert.default_params(),
        "num_classes": 2,  # set by the data set
        **targets.default_params(),
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    encoders.check_params(params)
    if params["num_classes"] < 2 and targets.find(params) is classification:
        raise ModelError(f"num_classes={params['num_classes']} must be at least 2")
    targets.check_params(params)


def inference(features, params, training):
    """Computes the logits of the classes from the pooled output.

    Args:
      features: see `bert.FEATURES`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `{"logits": [batch, num_classes]}` of `params["precision"]`.
    """
    x = encoders.pool(encoders.encode(features, params, training), params)
    x = dropout(x, params["dropout"], training)
    return {"logits": bert.project(x, params["num_classes"], params)}


def metrics(labels, outputs, weights, params):
    """Streaming `accuracy`, `f1`, `matthews_correlation`, and `confusion_matrix` for its report.

    Of other targets than one class their own.
    """
    found = targets.metrics(labels, outputs, weights, params)
    if targets.find(params) is not classification:
        return found
    matrices = found["confusion_matrix"]  # the total, and its update
    for function in (classification.f1, classification.matthews_correlation):
        found[function.__name__] = tuple(function(matrix) for matrix in matrices)
    return found


def metric_directions(params):
    """Returns the directions of `metrics`; see `Model`."""
    if targets.find(params) is not classification:
        return targets.metric_directions(params)
    return {**targets.metric_directions(params), "f1": "max", "matthews_correlation": "max"}


def host_metrics(params, pipeline):
    """Those of the target and, of long texts, of documents."""
    documents = document_metrics.host_metrics(pipeline, document_metrics.Classes)
    return [*targets.host_metrics(params, pipeline), *documents]


MODEL = bert_model.model(
    "classifier",
    targets.inference(inference),
    labels=("label",),
    default_params=default_params,
    losses=targets.losses,
    predictions=targets.predictions,
    mean_outputs=targets.mean_outputs,
    metrics=metrics,
    metric_directions=metric_directions,
    host_metrics=host_metrics,
    reports=targets.reports,
    check_params=check_params,
    dataset_variables=targets.dataset_variables,
    unused_params=targets.unused_params,
    dataset_properties=("num_classes", *targets.PROPERTIES),
    optional_properties=targets.PROPERTIES,
)
