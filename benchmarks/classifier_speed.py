r"""Training speed of image classifiers beside `tf.keras.applications` and torchvision, interleaved.

    python -m benchmarks.classifier_speed [--networks=efficientnet_b0,mobilenet_v2]
        [--peers=keras,keras_steps,torch] [--size=224] [--batch_size=32] [--rounds=5] [--steps=10]
        [--torch_python=torch/bin/python]

All sides train on random images with 1000 classes, with momentum, in float32, with all cores; the
EfficientNets have dropout and stochastic depth. The peers are `Model.fit` (keras), with
steps_per_execution=5 (keras_steps), and a loop of PyTorch with the same tensors in memory, channels
last (torch). torch_python needs torch and torchvision. Images/s are from the end of the first steps
to the end of the last. Prints medians, and the median ratio of a round.
"""

from __future__ import annotations

import sys

from absl import app, flags

from benchmarks.subprocesses import compare, run_python, train_rate

NUM_CLASSES = 1000
# Name of the network -> (flags of ours, tf.keras.applications, torchvision.models).
NETWORKS = {
    "efficientnet_b0": (
        ("--model=efficientnet_b0",),
        "EfficientNetB0",
        "efficientnet_b0",
    ),
    "mobilenet_v2": (
        ("--model=mobilenet", "--params=version=2"),
        "MobileNetV2",
        "mobilenet_v2",
    ),
}

KERAS = f"""
import json, sys, time
import numpy as np
import tensorflow as tf
network = sys.argv[1]
size, batch_size, steps, per_execution = map(int, sys.argv[2:])
make = getattr(tf.keras.applications, network)
model = make(
    weights=None, classes={NUM_CLASSES}, input_shape=(size, size, 3), classifier_activation=None
)
model.compile(
    tf.keras.optimizers.SGD(0.001, 0.9),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    steps_per_execution=per_execution,
)
random = np.random.default_rng(0)
images = random.integers(0, 256, [4 * batch_size, size, size, 3]).astype(np.uint8)
labels = random.integers(0, {NUM_CLASSES}, 4 * batch_size).astype(np.int32)
data = tf.data.Dataset.from_tensor_slices((images, labels))
data = data.batch(batch_size, drop_remainder=True).cache().repeat().prefetch(2)
model.fit(data, steps_per_epoch=5, verbose=0)
first = time.time()
model.fit(data, steps_per_epoch=steps, verbose=0)
print(json.dumps(steps * batch_size / (time.time() - first)))
"""

TORCH = f"""
import json, sys, time
import torch, torchvision
network = sys.argv[1]
size, batch_size, steps = map(int, sys.argv[2:])
model = getattr(torchvision.models, network)(num_classes={NUM_CLASSES})
model = model.to(memory_format=torch.channels_last).train()
optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
batches = []
for _ in range(4):
    images = torch.randint(0, 256, [batch_size, 3, size, size], dtype=torch.uint8)
    images = images.contiguous(memory_format=torch.channels_last)
    batches.append((images, torch.randint(0, {NUM_CLASSES}, [batch_size])))
for step in range(5 + steps):
    if step == 5:
        first = time.time()
    images, labels = batches[step % 4]
    optimizer.zero_grad(set_to_none=True)
    logits = model(images.float() / 127.5 - 1)
    torch.nn.functional.cross_entropy(logits, labels).backward()
    optimizer.step()
print(json.dumps(steps * batch_size / (time.time() - first)))
"""

flags.DEFINE_list("networks", list(NETWORKS), f"Networks: {', '.join(NETWORKS)}.")
flags.DEFINE_integer("size", 224, "Height and width of images.")
flags.DEFINE_integer("batch_size", 32, "Images per step.")
flags.DEFINE_list("peers", ["keras", "keras_steps"], "Peers.")
flags.DEFINE_integer("rounds", 5, "Rounds; each runs every side once.")
flags.DEFINE_integer("steps", 10, "Training steps, a multiple of 5.")
flags.DEFINE_string("torch_python", sys.executable, "Python with PyTorch and torchvision.")


def main(_):
    """Runs the rounds and prints a line per network and side."""
    wanted = flags.FLAGS
    for network in wanted.networks:
        sides = {name: _SIDES[name] for name in ("ours", *wanted.peers)}
        compare(
            network, sides, wanted.rounds, network, describe=lambda rate: f"{rate:.1f} images/s"
        )


def _ours(network):
    """Returns the images/s of run_cpu.py."""
    wanted = flags.FLAGS
    return train_rate(
        *NETWORKS[network][0],
        "--dataset=synthetic",
        f"--synthetic_classes={NUM_CLASSES}",
        f"--image_size={wanted.size}x{wanted.size}",
        f"--train_batch_size={wanted.batch_size}",
        f"--train_steps={5 + wanted.steps}",
        "--params=optimizer=momentum,learning_rate=0.001",
    )


def _keras(network, per_execution=1):
    """Returns the images/s of `Model.fit`."""
    wanted = flags.FLAGS
    sizes = wanted.size, wanted.batch_size, wanted.steps, per_execution
    return run_python(KERAS, NETWORKS[network][1], *sizes)


def _torch(network):
    """Returns the images/s of PyTorch."""
    wanted = flags.FLAGS
    sizes = wanted.size, wanted.batch_size, wanted.steps
    return run_python(TORCH, NETWORKS[network][2], *sizes, python=wanted.torch_python)


_SIDES = {
    "ours": _ours,
    "keras": _keras,
    "keras_steps": lambda network: _keras(network, per_execution=5),
    "torch": _torch,
}


if __name__ == "__main__":
    app.run(main)
