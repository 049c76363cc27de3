"""Tiny models of images with boxes or masks, to run the wrappers with."""

import tensorflow as tf

from models.model import Loss, Model


def _pixels(features):
    return tf.cast(features["image"], tf.float32) / 255


def _segment(features, params, training):
    del training
    return {
        "logits": tf.compat.v1.layers.conv2d(
            _pixels(features), params["num_classes"], 3, padding="same", name="logits"
        )
    }


def _segmentation_losses(features, labels, outputs, params):
    del features, params
    mask = tf.cast(labels["mask"], tf.int32)
    counts = tf.cast(mask < 255, tf.float32)
    logits = outputs["logits"]
    values = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.where(mask < 255, mask, tf.zeros_like(mask)), logits
    )
    weights = tf.reduce_sum(counts, axis=[1, 2])
    return {
        "pixels": Loss(
            tf.math.divide_no_nan(tf.reduce_sum(values * counts, axis=[1, 2]), weights), weights
        )
    }


def _classes(features, outputs, params):
    del features, params
    return {"classes": tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)}


def _params():
    return {}


SEGMENTER = Model(
    "segmenter",
    _params,
    _segment,
    _segmentation_losses,
    _classes,
    features=("image",),
    dataset_properties=("num_classes",),
)


def _detect(features, params, training):
    """One box in the middle of the picture; its score depends on the pixels."""
    del params, training
    brightness = tf.reduce_mean(_pixels(features), axis=[1, 2])
    return {"score": tf.compat.v1.layers.dense(brightness, 1, name="score")[:, 0]}


def _detection_losses(features, labels, outputs, params):
    del features, params
    count = tf.reduce_sum(tf.cast(labels["classes"] >= 0, tf.float32), axis=1)
    return {"count": Loss(tf.square(outputs["score"] - count))}


def _boxes(features, outputs, params):
    del params
    size = features["image_info"][:, :2]
    box = tf.concat([size / 4, size * 3 / 4], axis=1)
    count = tf.fill([tf.shape(size)[0]], 1)
    return {
        "boxes": tf.stack([box, tf.zeros_like(box)], axis=1),
        "scores": tf.stack([outputs["score"], tf.zeros_like(outputs["score"])], axis=1),
        "classes": tf.stack([count, tf.zeros_like(count)], axis=1),
        "num_detections": count,
    }


DETECTOR = Model(
    "detector",
    _params,
    _detect,
    _detection_losses,
    _boxes,
    features=("image",),
    dataset_properties=("num_classes", "max_boxes"),
)
