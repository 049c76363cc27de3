"""A two-stage detector: the first stage proposes a box, the second one classifies its pixels.

In training the second stage reads the true boxes, since proposals are wrong at first.
"""

import tensorflow as tf

from models.model import Loss, Model
from tests.contract.two_stage.data import BOX, NUM_CLASSES, SIZE

CORNERS = SIZE - BOX + 1  # places of the top left corner in each dimension


def default_params():
    return {"filters": 8}


def inference(features, params, training):
    """Returns the scores of all boxes, and the class of one.

    Args:
      features: `{"image": uint8 [batch, height, width, 3]}`; in training also
        `"boxes": int32 [batch, 2]`, the top left corner.
      params: hyperparameters.
      training: bool.

    Returns:
      `{"box_logits": [batch, CORNERS ** 2], "boxes": int32 [batch, 2], "class_logits"}`.
    """
    x = tf.cast(features["image"], tf.float32) / 255
    box_logits = tf.compat.v1.layers.conv2d(x, params["filters"], BOX, activation=tf.nn.softplus)
    box_logits = tf.reshape(tf.compat.v1.layers.conv2d(box_logits, 1, 1), [-1, CORNERS**2])
    best = tf.argmax(box_logits, axis=1, output_type=tf.int32)
    proposals = tf.stack([best // CORNERS, best % CORNERS], axis=1)
    boxes = features["boxes"] if training else proposals
    # One-hot matrices crop: a TPU has no gather of patches.
    rows, columns = (
        tf.one_hot(corners[:, tf.newaxis] + tf.range(BOX), SIZE)  # [batch, BOX, SIZE]
        for corners in tf.unstack(boxes, axis=1)
    )
    pixels = tf.einsum("bih,bhwc,bjw->bijc", rows, x, columns)
    pixels = tf.reshape(pixels, [-1, BOX * BOX * 3])
    class_logits = tf.compat.v1.layers.dense(pixels, NUM_CLASSES)
    return {"box_logits": box_logits, "boxes": proposals, "class_logits": class_logits}


def losses(features, labels, outputs, params):
    true_boxes = labels["boxes"][:, 0] * CORNERS + labels["boxes"][:, 1]
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    return {
        "box": Loss(cross_entropy(true_boxes, outputs["box_logits"])),
        "class": Loss(cross_entropy(labels["classes"], outputs["class_logits"])),
    }


def predictions(features, outputs, params):
    classes = tf.argmax(outputs["class_logits"], axis=1, output_type=tf.int32)
    return {"boxes": outputs["boxes"], "classes": classes}


MODEL = Model(
    "two_stage",
    default_params,
    inference,
    losses,
    predictions,
    train_inputs=("boxes",),
    features=("image",),
    labels=("boxes", "classes"),
)
