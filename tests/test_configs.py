"""Every recipe can be read, resolved and built at its real size."""

import pathlib

import pytest
import tensorflow as tf
from absl import flags

from models import registry
from training import forward, hparams

CONFIGS = sorted((pathlib.Path(__file__).parents[1] / "configs").glob("*.cfg"))
SHAPES = {
    "digits": (8, 8, 1),
    "mnist": (28, 28, 1),
    "fashion_mnist": (28, 28, 1),
    "cifar10": (32, 32, 3),
    "apple_leaf": (256, 256, 3),
    "imagenet": (256, 256, 3),
}
CLASSES = {"apple_leaf": 4, "imagenet": 1000}  # others have 10
# Trainable parameters, worked out layer by layer.
PARAMETERS = {
    "digits": 9 * 32 + 64 + 9 * 32 * 32 + 64 + (4 * 4 * 32 + 1) * 128 + 129 * 10,
    "mnist_mlp": 785 * 512 + 513 * 10,
    "apple_leaf_transfer": (768 + 1) * 4,  # the last layer alone
    "imagenet_resnet50": 25_557_032,
    "fashion_mnist_cnn": 10 * 64 + (13 * 13 * 64 + 1) * 10,
    "cifar10_cnn": (28 * 32 + 289 * 32 + 289 * 64 + 577 * 64) + (6 * 6 * 64 + 1) * 512 + 513 * 10,
}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_recipe_is_built(path):
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    recipe = flags.FLAGS
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    assert recipe.train_steps or recipe.train_epochs
    model = registry.find(recipe.model)
    num_classes = CLASSES.get(recipe.dataset, 10)
    params = hparams.resolve(model, recipe.params, num_classes)
    batch_size = recipe.train_batch_size
    height, width, channels = SHAPES[recipe.dataset]
    height, width = recipe.image_size or (height, width)
    images = tf.compat.v1.placeholder(tf.uint8, [batch_size, height, width, channels])
    logits = forward.infer(model, {"image": images}, params, training=True)["logits"]
    assert logits.shape.as_list() == [batch_size, num_classes]
    variables = tf.compat.v1.trainable_variables()
    parameters = sum(variable.shape.num_elements() for variable in variables)
    assert parameters == PARAMETERS.get(path.stem, parameters)
