"""Every recipe can be read, resolved and built at its real size."""

import pathlib

import pytest
import tensorflow as tf
from absl import flags

from models import registry
from training import hparams

CONFIGS = sorted((pathlib.Path(__file__).parents[1] / "configs").glob("*.cfg"))
SHAPES = {
    "digits": (8, 8, 1),
    "mnist": (28, 28, 1),
    "fashion_mnist": (28, 28, 1),
    "cifar10": (32, 32, 3),
}
# Trainable parameters, worked out layer by layer.
PARAMETERS = {
    "digits": 9 * 32 + 64 + 9 * 32 * 32 + 64 + (4 * 4 * 32 + 1) * 128 + 129 * 10,
    "mnist_mlp": 785 * 512 + 513 * 10,
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
    params = hparams.resolve(model, recipe.params, num_classes=10)
    batch_size = recipe.train_batch_size
    images = tf.compat.v1.placeholder(tf.uint8, [batch_size, *SHAPES[recipe.dataset]])
    logits = model.inference({"image": images}, params, training=True)["logits"]
    assert logits.shape.as_list() == [batch_size, 10]
    variables = tf.compat.v1.trainable_variables()
    parameters = sum(variable.shape.num_elements() for variable in variables)
    assert parameters == PARAMETERS.get(path.stem, parameters)
