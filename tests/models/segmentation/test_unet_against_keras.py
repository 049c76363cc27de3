"""With the same weights the U-Net gives the logits and the loss of its Keras twin."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.peers import keras_twin
from common.constants import IGNORED_CLASS
from common.params import Floats, Strings
from engine.train import optimizers
from models.segmentation import segmentation, unet
from tests import numerics, variable_values

PARAMS = {
    **unet.default_params(),
    **optimizers.default_params(),
    "num_classes": 3,
    "depth": 2,
    "width": 3,
    "pixel_mean": Floats([127.5]),
    "pixel_scale": 1 / 128,
    "learning_rate": 0.1,
}
RANDOM = np.random.default_rng(2)
IMAGES = RANDOM.integers(0, 256, [2, 7, 10, 3]).astype(np.uint8)
MASKS = RANDOM.choice([0, 1, 2, IGNORED_CLASS], [2, 7, 10]).astype(np.uint8)
# Ten convolutions and two transposed ones, each with batch norm and ReLU; the longest sum is that
# of the concatenated maps of level 1.
ARITHMETIC = {"terms": 9 * 12, "depth": 12 * 5}


def test_the_same_weights_give_the_logits_and_the_loss_of_keras(session, eager):
    with session.graph.as_default():
        logits = unet.inference({"image": tf.constant(IMAGES)}, PARAMS, False)["logits"]
        labels = {"mask": tf.constant(MASKS)}
        term = segmentation.model_losses({}, labels, {"logits": logits}, PARAMS)["cross_entropy"]
        loss = tf.reduce_sum(term.values * term.weights) / tf.reduce_sum(term.weights)
        random = np.random.default_rng(5)
        variables = variable_values.assign_all(
            session, lambda v: random.uniform(0.1, 0.9, v.shape).astype(np.float32) - 0.4
            if "kernel" in v.op.name else random.uniform(0.1, 0.9, v.shape).astype(np.float32)
        )  # fmt: skip
        ours, our_loss = session.run((logits, loss))
    twin = keras_twin.compiled(PARAMS, (7, 10, 3), weighted_metrics=[])
    keras_twin.set_weights(twin, variables)
    expected = twin(IMAGES, training=False)
    numerics.assert_close(ours, expected.numpy(), **ARITHMETIC)
    without_decoder = {k: 0 * v if "/up/" in k else v for k, v in variables.items()}
    keras_twin.set_weights(twin, without_decoder)
    numerics.assert_far(ours, twin(IMAGES, training=False).numpy(), **ARITHMETIC)
    # Keras takes the mean over the labeled pixels, too.
    numerics.assert_close(our_loss, twin.loss(MASKS, expected).numpy(), **ARITHMETIC)


@pytest.mark.parametrize(
    "changes",
    [{"backbone": "resnet18"}, {"output_level": 1}, {"losses": Strings(["dice"])}],
)
def test_a_unet_that_keras_lacks_is_refused(changes, eager):
    with pytest.raises(ValueError, match="no twin of a unet has"):
        keras_twin.build({**PARAMS, **changes}, (8, 8, 3))
