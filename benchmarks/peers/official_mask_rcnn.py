"""A training step of the Mask R-CNN of tf-models-official, with ResNet-50 and FPN."""

from __future__ import annotations

import tensorflow as tf
from official.vision.configs import maskrcnn as configs
from official.vision.tasks import maskrcnn

from benchmarks.peers import official_task

_NUM_ANCHORS = 3  # per cell


def build_step(batch_size, size, dtype, jit_compile=False):
    """Returns (step, specs): a `tf.function`, and the specs of its arguments.

    The network, its losses with L2 regularization, and SGD with momentum are those of
    `maskrcnn_resnetfpn_coco`, the step that of its task. Boxes are already assigned to anchors and
    masks cropped; proposals are sampled in the step.

    Args:
      batch_size: images per step.
      size: height and width, a multiple of 64.
      dtype: of the images.
      jit_compile: compile the step with XLA.
    """
    config = configs.maskrcnn_resnetfpn_coco().task
    config.model.input_size = [size, size, 3]
    task = maskrcnn.MaskRCNNTask(config)
    specs = _specs(batch_size, size, dtype, config.train_data.parser)
    return official_task.build_step(task, specs, jit_compile)


def _specs(batch_size, size, dtype, parser):
    def per_level(depth, dtype=tf.float32):
        return {
            str(level): tf.TensorSpec([batch_size, size >> level, size >> level, depth], dtype)
            for level in range(2, 7)
        }

    num_boxes, side = parser.max_num_instances, parser.mask_crop_size
    labels = {
        "anchor_boxes": per_level(4 * _NUM_ANCHORS),
        "gt_boxes": tf.TensorSpec([batch_size, num_boxes, 4]),
        "gt_classes": tf.TensorSpec([batch_size, num_boxes], tf.int32),
        "gt_masks": tf.TensorSpec([batch_size, num_boxes, side, side]),
        "image_info": tf.TensorSpec([batch_size, 4, 2]),
        "rpn_box_targets": per_level(4 * _NUM_ANCHORS),
        "rpn_score_targets": per_level(_NUM_ANCHORS, tf.int32),
    }
    return tf.TensorSpec([batch_size, size, size, 3], dtype), labels
