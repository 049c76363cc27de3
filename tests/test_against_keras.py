"""Steps of training, judged by tf.keras: same weights, same batches, same losses."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from input_fns import dataset, image_pipeline
from models import registry
from training import hparams, optimizers, schedules, steps

BATCH_SIZE, SEED = 32, 7

# Model, hyperparameters, steps, and the share of the first loss that the last is below. In a ResNet
# rounding sooner or later takes a ReLU to its other side.
RECIPES = {
    "adam": (
        "convnet",
        "layers=conv:8:3 batch_norm relu pool:2 conv:12:3:valid relu global_pool dense:16 relu,"
        "optimizer=adam,learning_rate=0.01",
        50,
        0.7,
    ),
    "momentum": (
        "convnet",
        "layers=conv:8:3:valid pool:2 relu flatten,optimizer=momentum,learning_rate=0.05",
        50,
        0.7,
    ),
    "nesterov": (
        "mlp",
        "hidden_units=33 17,dropout=0,optimizer=momentum,nesterov=true,learning_rate=0.02",
        50,
        0.7,
    ),
    "resnet": (
        "resnet",
        "depth=10,width=4,stem=cifar,optimizer=momentum,learning_rate=0.03",
        12,
        0.99,
    ),
}

KERAS = """
import json, sys
import numpy as np
import tensorflow as tf
from benchmarks import keras_twin
params = json.loads(sys.argv[1])
recorded = np.load(sys.argv[2])
images, labels = recorded["images"], recorded["labels"]
twin = keras_twin.build(params, images.shape[2:])
keras_twin.set_weights(twin, recorded)
twin.compile(
    keras_twin.optimizer(params, params["learning_rate"]),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
losses = [float(twin.train_on_batch(x, y)) for x, y in zip(images, labels)]
probabilities = tf.nn.softmax(twin.predict(images[0], verbose=0)).numpy().tolist()
print(json.dumps({"losses": losses, "probabilities": probabilities}))
"""


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_loss_curve_is_that_of_keras(recipe, digits_dir, session, tmp_path):
    name, overrides, num_steps, gain = RECIPES[recipe]
    model, digits = registry.find(name), dataset.load(digits_dir, "digits")
    params = hparams.resolve(model, [overrides, "pixel_scale=0.0625"], digits.num_classes)
    tf.compat.v1.set_random_seed(SEED)
    input_fn = image_pipeline.ImagePipeline(digits).train_input_fn("train", SEED)
    batches = tf.compat.v1.data.make_one_shot_iterator(input_fn({"batch_size": BATCH_SIZE}))
    features, labels = batches.get_next()
    step = tf.compat.v1.train.get_or_create_global_step()
    optimizer = optimizers.create(params, schedules.learning_rate(params, step, num_steps, 1))
    train = steps.train_step(model, features, labels, params, optimizer)
    session.run(tf.compat.v1.global_variables_initializer())
    variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
    recorded = session.run(variables)
    fetches = (train.loss, features["image"], labels, train.op)
    losses, images, labels, _ = zip(*(session.run(fetches) for _ in range(num_steps)))
    np.savez(tmp_path / "recorded.npz", images=images, labels=labels, **recorded)
    command = [sys.executable, "-c", KERAS, json.dumps(params), tmp_path / "recorded.npz"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    keras = json.loads(answer.splitlines()[-1])

    np.testing.assert_allclose(losses, keras["losses"], atol=1e-4)
    assert losses[-1] < gain * losses[0]

    tf.compat.v1.get_variable_scope().reuse_variables()
    trained = model.inference({"image": tf.constant(images[0])}, params, training=False)
    probabilities = session.run(model.predictions(trained)["probabilities"])
    np.testing.assert_allclose(probabilities, keras["probabilities"], atol=1e-3)
