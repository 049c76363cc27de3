"""Non-maximum suppression: a function with a loop whose shapes are static only in XLA."""

import tensorflow.compat.v1 as tf

MODE = "infer"


def model_fn(features, labels, mode, params):
    boxes = tf.reshape(tf.layers.dense(features, 40), [-1, 4])
    scores = tf.reduce_sum(boxes, axis=1)
    indices, size = tf.image.non_max_suppression_padded(
        boxes, scores, 8, score_threshold=0.1, pad_to_max_output_size=True
    )
    is_valid = tf.range(8) < size
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, predictions={"i": tf.where(is_valid, indices, -indices)}
    )
