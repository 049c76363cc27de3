"""EfficientNets: sizes and shapes; tests/test_against_applications.py holds them against Keras."""

import numpy as np
import pytest
import tensorflow as tf

from engine.cli import hparams
from models import registry
from models.model import ModelError
from models.vision import efficientnet
from tests.marks import slow

# Trainable parameters with 1000 classes, of tf.keras.applications.
PARAMETERS = {
    "b0": 5_288_548, "b1": 7_794_184, "b2": 9_109_994, "b3": 12_233_232, "b4": 19_341_616,
    "b5": 30_389_784, "b6": 43_040_704, "b7": 66_347_960, "v2b0": 7_139_704, "v2b1": 8_141_052,
    "v2b2": 10_096_086, "v2b3": 14_358_406, "v2s": 21_458_488, "v2m": 54_139_356,
    "v2l": 118_515_272,
}  # fmt: skip


def make_params(**changes):
    small = {"num_classes": 3, "width": 0.25, "depth": 0.1}
    return {**efficientnet.default_params(), **small, **changes}


def images(*shape):
    return {"image": tf.compat.v1.placeholder(tf.uint8, [*shape, 3])}


@pytest.mark.parametrize("stages", ["v1", slow("v2b"), slow("v2m")])
def test_logits_have_a_row_an_example(stages):
    params = make_params(stages=stages)
    logits = efficientnet.inference(images(13, 64, 32), params, training=True)["logits"]
    assert logits.shape.as_list() == [13, 3]


def test_every_size_of_the_papers_is_tested():
    assert efficientnet.SIZES.keys() == PARAMETERS.keys()


@pytest.mark.parametrize("size", [slow(size) for size in PARAMETERS])
def test_a_size_has_the_parameters_of_keras(size):
    params = hparams.resolve(registry.find("efficientnet"), [f"size={size}"], {"num_classes": 1000})
    efficientnet.inference(images(1, 32, 32), params, training=False)
    sizes = [variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables()]
    assert sum(sizes) == PARAMETERS[size]


def test_a_name_with_a_size_has_its_hyperparameters():
    params = hparams.resolve(registry.find("efficientnet_v2m"), [], {"num_classes": 5})
    assert (params["stages"], params["dropout"], params["pixel_mean"]) == ("v2m", 0.3, (128.0,))


def test_stages_get_wider_and_deeper():
    def channels(**changes):
        return [block.channels for block in efficientnet.blocks(make_params(**changes))]

    assert channels(width=1.0, depth=1.0)[:6] == [16, 24, 24, 40, 40, 80]
    assert channels(width=1.1, depth=1.2)[:6] == [16, 16, 24, 24, 24, 48]


@pytest.mark.parametrize("size", [(1, 1), slow((30, 31))])
def test_small_images_end_as_one_pixel(size, graph):
    efficientnet.inference(images(2, *size), make_params(), training=False)
    pooled = [op for op in graph.get_operations() if op.type == "Mean"][-1]
    assert pooled.inputs[0].shape.as_list()[1:3] == [1, 1]


@pytest.mark.slow(cost=0.1)
def test_the_drop_rate_grows_with_the_block(graph):
    params = make_params(stochastic_depth=0.5, dropout=0.0, depth=1.0)
    efficientnet.inference(images(2, 32, 32), params, training=True)
    scopes = sorted(
        {int(op.name.split("/")[0][6:]) for op in graph.get_operations() if "/dropout/" in op.name}
    )
    # Blocks with a shortcut, which the first block of a stage lacks.
    assert scopes == [3, 5, 7, 8, 10, 11, 13, 14, 15]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": "v3"}, "stages=v3 must be one of v1, v2b, v2s, v2m, v2l"),
        ({"width": 0.0}, r"width=0.0 must be in \[0.1, 10\]"),
        ({"depth": 11.0}, r"depth=11.0 must be in \[0.1, 10\]"),
        ({"stochastic_depth": 1.0}, r"stochastic_depth=1.0 must be in \[0, 1\)"),
    ],
)
def test_a_wrong_value_is_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        efficientnet.check_params(make_params(**changes))


@pytest.mark.slow(cost=0.1)
def test_predictions_do_not_depend_on_dropout(session):
    """Training drops branches, prediction does not."""
    params = make_params(stochastic_depth=0.9, dropout=0.9, depth=0.5)
    features = {"image": tf.constant(np.full([2, 32, 32, 3], 77, np.uint8))}
    logits = efficientnet.inference(features, params, training=False)["logits"]
    session.run(tf.compat.v1.global_variables_initializer())
    np.testing.assert_array_equal(session.run(logits), session.run(logits))
