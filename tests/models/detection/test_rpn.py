"""Tests of models.detection.rpn."""

import numpy as np
import tensorflow as tf

from models.detection import anchors, faster_rcnn, rpn
from tests import numerics

BATCH, HEIGHT, WIDTH, CHANNELS = 2, 5, 3, 8
PARAMS = {**faster_rcnn.default_params(), "min_level": 2, "max_level": 2}
PER_CELL = anchors.per_cell(PARAMS)


def test_the_head_has_a_convolution_for_logits_and_one_for_codes(session):
    maps = tf.random.stateless_normal([BATCH, HEIGHT, WIDTH, CHANNELS], [1, 2])
    found = rpn.head({2: maps}, PARAMS)[2]
    variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    assert {name: tuple(variable.shape) for name, variable in variables.items()} == {
        "rpn/conv/kernel": (3, 3, CHANNELS, CHANNELS),
        "rpn/conv/bias": (CHANNELS,),
        "rpn/objectness/kernel": (1, 1, CHANNELS, PER_CELL),
        "rpn/objectness/bias": (PER_CELL,),
        "rpn/codes/kernel": (1, 1, CHANNELS, 4 * PER_CELL),
        "rpn/codes/bias": (4 * PER_CELL,),
    }

    def convolve(x, name):
        kernel, bias = variables[f"rpn/{name}/kernel"], variables[f"rpn/{name}/bias"]
        return tf.nn.conv2d(x, kernel, 1, "SAME") + bias

    hidden = tf.nn.relu(convolve(maps, "conv"))
    parts = [convolve(hidden, name) for name in ("objectness", "codes")]
    expected = tf.reshape(tf.concat(parts, -1), [BATCH, HEIGHT * WIDTH, 5 * PER_CELL])
    session.run(tf.compat.v1.global_variables_initializer())
    numerics.assert_close(*session.run([found, expected]), terms=9 * CHANNELS, depth=2)


def test_proposals_are_the_decoded_anchors_with_the_largest_logits(session):
    by_level = {2: anchors.by_level((HEIGHT * 4, WIDTH * 4), PARAMS)[2].reshape(-1, 4)}
    num_anchors = HEIGHT * WIDTH * PER_CELL
    random = np.random.default_rng(0)
    logits = np.stack([random.permutation(num_anchors) for _ in range(BATCH)]).astype(np.float32)
    shifts = random.uniform(-0.5, 0.5, [BATCH, num_anchors, 2]).astype(np.float32)
    codes = np.concatenate([shifts, np.zeros_like(shifts)], axis=-1)  # moved by a part of the size
    outputs = np.concatenate(
        [
            logits.reshape(BATCH, -1, PER_CELL),
            codes.reshape(BATCH, -1, 4 * PER_CELL),
        ],
        axis=-1,
    )
    count = 7
    params = {**PARAMS, "rpn_candidates": count, "num_proposals": count, "rpn_nms_iou": 1.0}
    sizes = tf.fill([BATCH, 2], 1000.0)
    found, numbers = session.run(rpn.proposals(by_level, {2: tf.constant(outputs)}, sizes, params))
    for image in range(BATCH):
        best = np.argsort(-logits[image])[:count]
        np.testing.assert_array_equal(numbers[image], best)
        chosen = by_level[2][best]
        moved = chosen + np.tile((chosen[:, 2:] - chosen[:, :2]) * shifts[image, best], [1, 2])
        np.testing.assert_allclose(found[image], np.clip(moved, 0, 1000), rtol=0, atol=1e-4)
