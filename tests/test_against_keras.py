"""Training steps against tf.keras: with the same weights and batches the losses are equal.

In float64, because float32 rounding sooner or later changes the sign at a ReLU. TensorFlow keeps
learning rates and the like in float32, so the values here are exact in it. Still in float32 are the
mean over the pixels, and the powers of Adam's betas.
"""

import json
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from engine.cli import hparams
from engine.train import train_step
from input_fns import dataset_info
from input_fns.image import image_pipeline
from models import registry
from tests import numerics
from tests.marks import slow

BATCH_SIZE, SEED = 32, 7
PIXELS = 8 * 8  # of an image of the digits

MOMENTUM = "optimizer=momentum,momentum=0.875"
# Model, hyperparameters, steps, upper bound of last loss / first loss, and float32 roundings per
# step: two products of betas; cast, sum and quotient of the mean over the pixels, and backward.
RECIPES = {
    "adam": (
        "convnet",
        "layers=[conv:8:3,batch_norm,relu,pool:2,conv:12:3:valid,relu,flatten,dense:16,relu],"
        "optimizer=adam,beta1=0.875,beta2=0.96875,epsilon=0.0009765625,learning_rate=0.0078125",
        50,
        0.7,
        2,
    ),
    "momentum": (
        "convnet",
        f"layers=[conv:8:3:valid,pool:2,relu,flatten],{MOMENTUM},learning_rate=0.0625",
        50,
        0.7,
        0,
    ),
    "nesterov": (
        "mlp",
        f"hidden_units=[33,17],dropout=0,{MOMENTUM},nesterov=true,learning_rate=0.0625",
        50,
        0.7,
        0,
    ),
    "resnet": (
        "resnet",
        f"depth=10,width=4,stem=cifar,{MOMENTUM},learning_rate=0.03125",
        12,
        0.99,
        2 * 3,
    ),
}

KERAS = """
import json, sys
import numpy as np
import tensorflow as tf
from benchmarks.peers import keras_twin
tf.keras.backend.set_floatx("float64")
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


@pytest.mark.parametrize("recipe", [slow(name) for name in RECIPES])
def test_losses_match_keras(recipe, digits_dir, session, tmp_path):
    name, overrides, num_steps, gain, rounded = RECIPES[recipe]
    model, digits = registry.find(name), dataset_info.load(digits_dir, "digits")
    params = hparams.resolve(
        model, [overrides, "pixel_scale=0.0625"], {"num_classes": digits.num_classes}
    )
    params["precision"] = "float64"
    tf.compat.v1.set_random_seed(SEED)
    input_fn = image_pipeline.ImagePipeline(digits).train_input_fn("train", SEED)
    batches = tf.compat.v1.data.make_one_shot_iterator(input_fn({"batch_size": BATCH_SIZE}))
    features, labels = batches.get_next()
    settings = types.SimpleNamespace(steps=num_steps, batch_size=BATCH_SIZE, accumulate_steps=1)
    train = train_step.train_step(model, features, labels, params, settings)
    session.run(tf.compat.v1.global_variables_initializer())
    variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
    recorded = session.run(variables)
    fetches = (train.loss, features["image"], labels, train.op)
    losses, images, labels, _ = zip(*(session.run(fetches) for _ in range(num_steps)))
    np.savez(tmp_path / "recorded.npz", images=images, labels=labels, **recorded)
    command = [sys.executable, "-c", KERAS, json.dumps(params), tmp_path / "recorded.npz"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    keras = json.loads(answer.splitlines()[-1])

    # At most 20 layers and operations of the loss and the optimizer, forward and backward; the
    # longest sums are over images and pixels.
    in_float32 = {"depth": num_steps * rounded}
    in_float64 = {"terms": BATCH_SIZE * PIXELS, "depth": num_steps * 2 * 20, "dtype": "float64"}
    arithmetic = in_float32 if rounded else in_float64
    assert {loss.dtype for loss in losses} == {np.dtype(np.float64)}
    numerics.assert_close(losses, keras["losses"], **arithmetic)
    assert losses[-1] < gain * losses[0]

    tf.compat.v1.get_variable_scope().reuse_variables()
    trained = model.inference({"image": tf.constant(images[0])}, params, training=False)
    probabilities = session.run(model.predictions({}, trained, params)["probabilities"])
    numerics.assert_close(probabilities, keras["probabilities"], **arithmetic)
