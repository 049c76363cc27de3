"""BERT as a sentence encoder: one embedding per text, near those of texts of the same meaning.

Training is contrastive (Henderson et al. 2017, arXiv:1705.00652): a softmax over the second texts
of the global batch. The positive of a first text is its second text; the others are in-batch
negatives. Every replica takes the softmax over the texts of all replicas, so the loss does not
depend on their number. With gradient accumulation the negatives are those of a micro-batch.

Both texts of a row, `[CLS] a [SEP] b [SEP]`, go through the encoder alone: `[CLS] a [SEP]` and
`[CLS] b [SEP]` (Sentence-BERT, Reimers and Gurevych 2019, arXiv:1908.10084).
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models.layers import in_batch_softmax
from models.model import Loss, ModelError, check_positive
from models.text import bert, bert_embeddings, bert_model, encoders
from models.text.correlation import Correlation

_SECOND = "second_embeddings"
_READ_AT_ONCE = 1024


def default_params():
    """Returns the hyperparameters of the encoder and the loss."""
    return {
        **bert.default_params(),
        "temperature": 0.05,  # divides the cosines in the loss
        "positive_score": 4.0,  # pairs with at least this score are positives
        "has_pairs": True,  # set by the data set
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    encoders.check_params(params)
    check_positive(params, "temperature")
    if params["pooling"] == bert_embeddings.TOKENS:
        raise ModelError(
            "pooling=tokens: bert_embedder has one embedding per text. Use mean or cls, or "
            "--predictions=embeddings"
        )


def check_training_data(params, pipeline, split):
    """Raises `ModelError` if a split has no positive pair: all weights of the loss would be 0."""
    if not params["has_pairs"]:
        raise ModelError(
            "bert_embedder is trained on pairs of texts: prepare the data with two --text_columns"
        )
    largest = np.float32(-np.inf)
    for _, labels in pipeline.host_examples(split, _READ_AT_ONCE):
        largest = max(largest, labels["score"].max())
        if largest >= np.float32(params["positive_score"]):
            return
    raise ModelError(
        f"no pair of '{split}' has a score of at least positive_score={params['positive_score']} "
        f"(largest: {largest}). Set --params=positive_score={largest} or lower"
    )


def inference(features, params, training):
    """Computes the embeddings of both texts of each row.

    Args:
      features: see `bert.FEATURES`.
      params: see `default_params` and `bert_embeddings.default_params`.
      training: True turns dropout on, and adds the logits.

    Returns:
      float32 "embeddings" and, of pairs, "second_embeddings", `[batch, width]`. In training also
      "logits", `[batch, global batch]`, and "column", int32 `[batch]`, the column of the positive.
    """
    if not params["has_pairs"]:
        return {"embeddings": bert_embeddings.embed(features, params, training)}
    pair = split_pairs(features)
    rows = {name: tf.concat([pair[0][name], pair[1][name]], axis=0) for name in bert.FEATURES}
    first, second = tf.split(bert_embeddings.embed(rows, params, training), 2)
    outputs = {"embeddings": first, _SECOND: second}
    if training:
        outputs["logits"], outputs["column"] = in_batch_softmax.in_batch_logits(
            tf.math.l2_normalize(first, axis=-1),
            tf.math.l2_normalize(second, axis=-1),
            _checksums(pair[1]["input_ids"], params["max_length"]),
            params["temperature"],
        )
    return outputs


def split_pairs(features):
    """Returns rows of the first and of the second texts alone, each with [CLS] and [SEP].

    Args:
      features: see `bert.FEATURES`: rows `[CLS] a [SEP] b [SEP]`.

    Returns:
      Two dicts of `bert.FEATURES`, int32 `[batch, length]`, 0 after the last [SEP].
    """
    ids, mask, segments = (features[name] for name in bert.FEATURES)
    num_first = tf.reduce_sum(mask * (1 - segments), axis=1, keepdims=True)  # [batch, 1]
    num_second = tf.reduce_sum(mask * segments, axis=1, keepdims=True) + 1
    positions = tf.range(tf.shape(ids)[1])[tf.newaxis]  # [1, length]
    # Token i of the second text is at num_first + i - 1. A padded example has no tokens.
    places = tf.clip_by_value(num_first - 1 + positions, 0, tf.shape(ids)[1] - 1)
    second = tf.where(tf.equal(positions, 0), ids[:, :1], tf.gather(ids, places, batch_dims=1))
    rows = []
    for tokens, count in ((ids, num_first), (second, num_second)):
        kept = tf.cast(positions < count, tf.int32)
        values = (tokens * kept, kept, tf.zeros_like(segments))
        rows.append({n: tf.ensure_shape(v, ids.shape) for n, v in zip(bert.FEATURES, values)})
    return rows


def _checksums(ids, max_length):
    """Returns int32 `[batch]`, equal for equal rows of ids with 0 for padding."""
    factors = np.random.default_rng(0).integers(-(2**31), 2**31, max_length)
    factors = tf.constant(factors, tf.int32)[: tf.shape(ids)[1]]
    return tf.reduce_sum(ids * factors, axis=1)  # modulo 2 ** 32


def losses(features, labels, outputs, params):
    """Cross-entropy of the second text in training; in an evaluation 1 - cosine.

    The logits of an evaluation would depend on its batch. Both are means over positive pairs.
    """
    del features
    is_positive = tf.cast(labels["score"] >= params["positive_score"], tf.float32)
    if "column" not in outputs:
        return {"cosine_distance": Loss(1.0 - _cosines(outputs), is_positive)}
    values = tf.nn.sparse_softmax_cross_entropy_with_logits(outputs["column"], outputs["logits"])
    return {"contrastive": Loss(values, is_positive)}


def _cosines(outputs):
    first, second = (tf.math.l2_normalize(outputs[n], axis=-1) for n in ("embeddings", _SECOND))
    return tf.reduce_sum(first * second, axis=-1)


def predictions(features, outputs, params):
    """Returns `{"embeddings": float32 [batch, width]}`.

    Of pairs also "second_embeddings", and "scores", float32 `[batch]`, the cosines of both.
    """
    del features, params
    if _SECOND not in outputs:
        return {"embeddings": outputs["embeddings"]}
    return {**outputs, "scores": _cosines(outputs)}


def host_metrics(params, pipeline):
    """Pearson and Spearman correlation of cosines and scores."""
    del params, pipeline
    return [Correlation()]


MODEL = bert_model.model(
    "embedder",
    inference,
    labels=("score",),
    default_params=default_params,
    losses=losses,
    predictions=predictions,
    # Host metrics predict the split, and a TPU needs no outputs.
    eval_outputs=lambda *_: {},
    host_metrics=host_metrics,
    check_params=check_params,
    check_training_data=check_training_data,
    dataset_properties=("has_pairs",),
)
