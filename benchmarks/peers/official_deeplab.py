"""A training step of the DeepLabV3+ of tf-models-official, with ResNet-50."""

from __future__ import annotations

import tensorflow as tf
from official.vision.configs import semantic_segmentation as configs
from official.vision.tasks import semantic_segmentation

from benchmarks.peers import official_task


def build_step(batch_size, size, dtype, jit_compile=False):
    """Returns (step, specs): a `tf.function`, and the specs of its arguments.

    The network, its loss with L2 regularization, and SGD with momentum are those of
    `seg_deeplabv3plus_cityscapes`, the step that of its task. Instead of ResNet-101 with swish the
    backbone is ResNet-50 with ReLU.

    Args:
      batch_size: images per step.
      size: height and width.
      dtype: of the images.
      jit_compile: compile the step with XLA.
    """
    config = configs.seg_deeplabv3plus_cityscapes().task
    config.model.input_size = [size, size, 3]
    config.model.backbone.dilated_resnet.model_id = 50
    config.model.decoder.aspp.pool_kernel_size = None  # all of the image
    config.model.norm_activation.activation = "relu"
    task = semantic_segmentation.SemanticSegmentationTask(config)
    labels = {
        "image_info": tf.TensorSpec([batch_size, 4, 2]),
        "masks": tf.TensorSpec([batch_size, size, size, 1]),
        "valid_masks": tf.TensorSpec([batch_size, size, size, 1], tf.bool),
    }
    specs = tf.TensorSpec([batch_size, size, size, 3], dtype), labels
    return official_task.build_step(task, specs, jit_compile)
