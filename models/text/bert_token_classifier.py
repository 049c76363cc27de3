"""BERT for classification of each word, such as named entity recognition.

Labels are `{"tag_ids": int32 [batch, length]}`: the tag of the first piece of a word, -1 elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from common.constants import DOCUMENT_INDEX
from models import collapse
from models.layers.dropout import dropout
from models.layers.losses import cross_entropy
from models.model import Loss, ModelError
from models.text import bert, bert_model, encoders


def default_params():
    """Returns the hyperparameters of `inference`."""
    return {**bert.default_params(), "num_tags": 9}  # set by the data set


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    encoders.check_params(params)
    if params["num_tags"] < 2:
        raise ModelError(f"num_tags={params['num_tags']} must be at least 2")


def inference(features, params, training):
    """Computes the logits of the tags of each token.

    Args:
      features: see `bert.FEATURES`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `{"logits": [batch, length, num_tags]}` of `params["precision"]`.
    """
    x = encoders.encode(features, params, training)
    x = dropout(x, params["dropout"], training)
    return {"logits": bert.project(x, params["num_tags"], params)}


def losses(features, labels, outputs, params):
    """Cross-entropy, a mean over the words of the batch."""
    del features, params
    mask, tag_ids = _mask(labels)
    per_token = cross_entropy(tag_ids, outputs["logits"], 0.0)
    num_words = tf.reduce_sum(mask, axis=1)
    values = tf.math.divide_no_nan(tf.reduce_sum(per_token * mask, axis=1), num_words)
    return {"cross_entropy": Loss(values, num_words)}


def eval_outputs(features, labels, outputs, params):
    """Returns the number of correct words, float32 `[batch]`."""
    del features, params
    mask, tag_ids = _mask(labels)
    best = tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)
    return {"correct": tf.reduce_sum(tf.cast(tf.equal(best, tag_ids), tf.float32) * mask, axis=1)}


def metrics(labels, outputs, weights, params):
    """Streaming `word_accuracy`."""
    del params
    num_words = tf.reduce_sum(_mask(labels)[0], axis=1)
    accuracy = tf.math.divide_no_nan(outputs["correct"], num_words)
    return {
        "word_accuracy": tf.compat.v1.metrics.mean(
            accuracy, num_words * weights, name="word_accuracy"
        )
    }


def host_metrics(params, pipeline):
    """Precision, recall and F1 of entities, if its tags have the forms B-X and I-X."""
    tag_names = pipeline.properties.get("tag_names", ())
    prefixes = {name.partition("-")[0] for name in tag_names if "-" in name}
    if len(tag_names) != params["num_tags"] or not prefixes or not prefixes <= {"B", "I"}:
        return []
    return [EntityF1(tag_names)]


class EntityF1:
    """Precision, recall and F1 of entities as the conlleval script of CoNLL-2003, micro averages.

    First word, last word and type must be correct. Windows of a document, which follow each other,
    are joined, so that an entity may begin in one and end in the next.
    """

    names = ("entity_precision", "entity_recall", "entity_f1")
    directions = dict.fromkeys(names, "max")

    def __init__(self, tag_names: Sequence[str]):
        """Takes the names of the tags, in the order of their ids."""
        self._tag_names = tag_names
        self._correct = self._predicted = self._wanted = 0
        self._document, self._rows = None, []

    def update(self, features, labels, predictions):
        """Adds a batch; see `models.model.HostMetric`."""
        documents = features.get(DOCUMENT_INDEX, [None] * len(labels["tag_ids"]))
        rows = zip(documents, labels["tag_ids"], predictions["tag_ids"])
        for document, label_ids, predicted_ids in rows:
            if document is None or document != self._document:
                self._count()
            is_word = label_ids >= 0
            self._document = document
            self._rows.append((label_ids[is_word], predicted_ids[is_word]))

    def _count(self):
        """Counts the entities of the rows since the last call, one document."""
        wanted, predicted = (
            entities([self._tag_names[i] for ids in side for i in ids])
            for side in (zip(*self._rows) if self._rows else ((), ()))
        )
        self._correct += len(wanted & predicted)
        self._predicted += len(predicted)
        self._wanted += len(wanted)
        self._rows = []

    def result(self):
        """Returns `{"entity_precision", "entity_recall", "entity_f1"}`; 0 instead of 0 / 0."""
        self._count()
        pairs = (
            (self._correct, self._predicted),
            (self._correct, self._wanted),
            (2 * self._correct, self._predicted + self._wanted),
        )
        return {
            name: part / whole if whole else 0.0 for name, (part, whole) in zip(self.names, pairs)
        }

    def find_collapse(self, evaluation):
        """Returns a line if no entity is predicted; see `models.model.CollapseFinder`."""
        del evaluation
        self._count()
        return collapse.of_entities(self._wanted, self._predicted)


def entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Returns the entities of a sequence of tags B-X, I-X and O.

    An I-X that does not continue an entity of type X starts one, as in conlleval.

    Returns:
      `{(first word, last word, type)}`.
    """
    found, start = set(), None
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        if start is not None and (prefix != "I" or kind != start[1]):
            found.add((start[0], i - 1, start[1]))
            start = None
        if start is None and prefix in ("B", "I"):
            start = i, kind
    return found


def predictions(features, outputs, params):
    """Returns the most probable tags.

    Returns:
      `{"tag_ids": int32 [batch, max_length], "tag_probabilities": float32 [batch, max_length]}`,
      with -1 and 0 for padding.
    """
    probabilities = tf.nn.softmax(outputs["logits"])
    is_token = features["input_mask"] > 0
    tag_ids = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
    tag_ids = tf.where(is_token, tag_ids, -1)
    probabilities = tf.where(is_token, tf.reduce_max(probabilities, axis=-1), 0.0)
    return {
        "tag_ids": bert.pad_to_max_length(tag_ids, -1, params),
        "tag_probabilities": bert.pad_to_max_length(probabilities, 0.0, params),
    }


def _mask(labels):
    """Returns float32 `[batch, length]`, 1 for words, and tag ids without the -1."""
    tag_ids = labels["tag_ids"]
    return tf.cast(tag_ids >= 0, tf.float32), tf.maximum(tag_ids, 0)


MODEL = bert_model.model(
    "token_classifier",
    inference,
    labels=("tag_ids",),
    default_params=default_params,
    losses=losses,
    predictions=predictions,
    metrics=metrics,
    metric_directions={"word_accuracy": "max"},
    eval_outputs=eval_outputs,
    host_metrics=host_metrics,
    check_params=check_params,
    dataset_properties=("num_tags",),
)
