"""Region proposal network (Ren et al. 2015, arXiv:1506.01497) on a feature pyramid.

Scopes: `rpn/conv`, `rpn/objectness`, `rpn/codes`, shared by all levels.
"""

from __future__ import annotations

import tensorflow as tf

from models.detection import anchors, assignment, nms, sampling
from models.detection import boxes as box_ops
from models.layers import dense
from models.layers.losses import smooth_l1
from models.model import Loss, ModelError, check_positive

_STREAM = 1  # of random numbers
_NEVER = -1e9  # logit of a box that is no proposal


def default_params():
    """Returns the hyperparameters."""
    return {
        # An anchor is positive from this IoU with a box, background below the other one.
        "rpn_positive_iou": 0.7,
        "rpn_negative_iou": 0.3,
        "rpn_samples": 256,  # anchors of an image in the loss, at most half of them positive
        "rpn_candidates": 1000,  # best anchors of a level that NMS sees
        "rpn_nms_iou": 0.7,
        "num_proposals": 1000,  # of an image, of all levels
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    low, high = params["rpn_negative_iou"], params["rpn_positive_iou"]
    if not 0 < low <= high < 1:
        raise ModelError(
            f"rpn_negative_iou={low}, rpn_positive_iou={high} must be in order, in (0, 1)"
        )
    if not 0 <= params["rpn_nms_iou"] <= 1:
        raise ModelError(f"rpn_nms_iou={params['rpn_nms_iou']} must be in [0, 1]")
    check_positive(params, "rpn_candidates", "num_proposals")
    if params["rpn_samples"] < 2:
        raise ModelError(f"rpn_samples={params['rpn_samples']} must be at least 2")


def head(maps, params):
    """Computes the objectness, a logit, and the box code of all anchors.

    Args:
      maps: `{level: [batch, height, width, channels]}` of `fpn.pyramid`.
      params: see `default_params` and `anchors.default_params`.

    Returns:
      `{level: [batch, cells, anchors per cell * 5]}` of the dtype of the maps: first the logits of
      the anchors of a cell, then their codes; see `boxes.encode`.
    """
    per_cell, found = anchors.per_cell(params), {}
    small = tf.compat.v1.random_normal_initializer(stddev=0.01)
    for level, x in maps.items():
        with tf.compat.v1.variable_scope("rpn", None, None, small, reuse=tf.compat.v1.AUTO_REUSE):
            _, height, width, channels = x.shape.as_list()
            x = tf.compat.v1.layers.conv2d(x, channels, 3, padding="same", name="conv")
            sizes = ("objectness", per_cell), ("codes", 4 * per_cell)
            weights = (
                dense.kernel_and_bias(name, [1, 1, channels, filters], x.dtype)
                for name, filters in sizes
            )
            # One convolution: a TPU takes as long for 3 channels as for 15.
            kernel, bias = (tf.concat(parts, axis=-1) for parts in zip(*weights))
            x = tf.nn.bias_add(tf.nn.conv2d(tf.nn.relu(x), kernel, 1, "SAME"), bias)
        found[level] = tf.reshape(x, [-1, height * width, 5 * per_cell])
    return found


def proposals(by_level, outputs, sizes, params):
    """Returns the boxes that are most likely objects, best first; without gradients.

    Non-maximum suppression runs in each level, of all levels at once.

    Args:
      by_level: `{level: float32 [n, 4]}`, anchors.
      outputs: of `head`.
      sizes: float32 `[batch, 2]`, height and width of the part of the image that is not padding.
      params: see `default_params`.

    Returns:
      float32 `[batch, num_proposals, 4]`, zeros where there are fewer; and the number of the anchor
      that each box was made of, int32 `[batch, num_proposals]`.
    """
    found, first = [], 0
    for level in sorted(outputs):
        found.append(_best(by_level[level], first, outputs[level], sizes, params))
        first += len(by_level[level])
    # [batch, levels, k, ...]
    logits, boxes, numbers = (tf.stack(parts, axis=1) for parts in zip(*found))
    num_levels, k = logits.shape.as_list()[1:]
    flat_boxes = tf.reshape(boxes, [-1, k, 4])
    is_valid = box_ops.area(flat_boxes) > 0
    one_group = tf.zeros_like(flat_boxes[..., 0], tf.int32)
    is_kept = nms.suppress(flat_boxes, one_group, is_valid, params["rpn_nms_iou"])
    logits = tf.where(
        tf.reshape(is_kept, [-1, num_levels * k]), tf.reshape(logits, [-1, num_levels * k]), _NEVER
    )
    count = min(params["num_proposals"], num_levels * k)
    logits, index = tf.math.top_k(logits, count)
    boxes = tf.gather(tf.reshape(boxes, [-1, num_levels * k, 4]), index, batch_dims=1)
    boxes = tf.where(logits[..., tf.newaxis] > _NEVER, boxes, 0.0)
    numbers = tf.gather(tf.reshape(numbers, [-1, num_levels * k]), index, batch_dims=1)
    return tf.stop_gradient(boxes), numbers


def _best(level_anchors, first, outputs, sizes, params):
    """Returns the best anchors of a level: logits, boxes and numbers, `[batch, k, ...]`.

    `first` is the number of the level's first anchor. All levels have k of `rpn_candidates`: boxes
    without an area fill up the small ones.
    """
    k, outputs = params["rpn_candidates"], tf.stop_gradient(outputs)
    count = min(k, len(level_anchors))
    logits = tf.reshape(outputs[..., : anchors.per_cell(params)], [-1, len(level_anchors)])
    logits, index = tf.math.top_k(tf.cast(logits, tf.float32), count)
    _, codes = _of_anchors(outputs, index, params)
    boxes = box_ops.decode(codes, tf.gather(tf.constant(level_anchors), index))
    boxes = box_ops.clip(boxes, sizes[:, 0], sizes[:, 1])
    missing = [[0, 0], [0, k - count]]
    logits = tf.pad(logits, missing, constant_values=_NEVER)
    return logits, tf.pad(boxes, [*missing, [0, 0]]), tf.pad(first + index, missing)


def _of_anchors(outputs, index, params):
    """Returns logits and codes of some anchors, float32 `[batch, k]` and `[batch, k, 4]`.

    Rows of cells are gathered: a TPU would pad the four numbers of an anchor to 128.

    Args:
      outputs: `[batch, cells, anchors per cell * 5]`, as of `head`.
      index: int32 `[batch, k]`, numbers of anchors.
      params: see `anchors.default_params`.
    """
    per_cell, count = anchors.per_cell(params), index.shape.as_list()[1]
    rows = tf.cast(tf.gather(outputs, index // per_cell, batch_dims=1), tf.float32)
    logits, codes = rows[..., :per_cell], tf.reshape(rows[..., per_cell:], [-1, count, per_cell, 4])
    is_chosen = tf.equal(index[..., tf.newaxis] % per_cell, tf.range(per_cell))
    codes = tf.where(is_chosen[..., tf.newaxis], codes, 0.0)
    return tf.reduce_sum(tf.where(is_chosen, logits, 0.0), -1), tf.reduce_sum(codes, -2)


def rpn_losses(all_anchors, outputs, features, labels, params):
    """Returns the losses of sampled anchors: `{"objectness": Loss, "rpn_box": Loss}`.

    The sums over the samples of an image are divided by `rpn_samples`, and averaged over the
    images of the global batch.

    Args:
      all_anchors: float32 `[n, 4]` of `anchors.flat`.
      outputs: of `head`.
      features: features of the model; see `sampling.uniform`.
      labels: see `assignment.assign`.
      params: see `default_params`.
    """
    one_class = {**labels, "classes": tf.minimum(labels["classes"], 0)}
    thresholds = {
        "positive_iou": params["rpn_positive_iou"],
        "negative_iou": params["rpn_negative_iou"],
        "crowd_overlap": params["crowd_overlap"],
    }
    targets = assignment.assign(all_anchors, one_class, thresholds)
    count = min(params["rpn_samples"], len(all_anchors))
    index, is_sampled = sampling.sample(
        targets.classes >= 0,
        tf.equal(targets.classes, assignment.BACKGROUND),
        sampling.uniform(features, tf.range(len(all_anchors)), _STREAM),
        count,
        count // 2,
    )

    def choose(values):
        return tf.gather(values, index, batch_dims=1)

    of_all_levels = tf.concat([outputs[level] for level in sorted(outputs)], axis=1)
    logits, codes = _of_anchors(of_all_levels, index, params)
    is_positive = is_sampled & (choose(targets.classes) >= 0)
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(is_positive, tf.float32), logits)
    entropy = tf.where(is_sampled, entropy, 0.0)
    chosen = tf.gather(all_anchors, index)
    # The code of a box without an area is infinite, and its gradient NaN.
    boxes = tf.where(is_positive[..., tf.newaxis], choose(targets.boxes), chosen)
    errors = codes - box_ops.encode(boxes, chosen)
    distance = tf.reduce_sum(smooth_l1(errors, params["smooth_l1_beta"]), axis=-1)
    distance = tf.where(is_positive, distance, 0.0)
    return {
        "objectness": Loss(tf.reduce_sum(entropy, axis=1) / count),
        "rpn_box": Loss(tf.reduce_sum(distance, axis=1) / count),
    }
