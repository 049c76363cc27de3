r"""Training speed of U-Net beside the same network of Keras layers, interleaved.

    python -m benchmarks.segmentation_speed [--sizes=128,256] [--width=16] [--batch_size=8]
        [--peers=keras,keras_steps] [--rounds=3] [--steps=20]

Both sides train a U-Net with 4 downsamplings on random images of one size with 12 classes, with the
cross-entropy and momentum, in float32, with all cores. The peer is `Model.fit` (keras), and with
steps_per_execution=5 (keras_steps). Examples/s are from the end of the first steps to the end of
the last. Prints medians, and the median ratio of a round.
"""

from __future__ import annotations

from absl import app, flags

from benchmarks.subprocesses import compare, run_python, train_rate

NUM_CLASSES, DEPTH = 12, 4

KERAS = f"""
import json, sys, time
import numpy as np
import tensorflow as tf
size, width, batch_size, steps, per_execution = map(int, sys.argv[1:])
layers = tf.keras.layers

def double_conv(x, filters):
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    return x

images = layers.Input([size, size, 3], dtype="uint8")
x = layers.Rescaling(1 / 255)(images)
skips = []
for level in range({DEPTH}):
    skips.append(double_conv(x, width * 2**level))
    x = layers.MaxPool2D(2)(skips[-1])
x = double_conv(x, width * 2**{DEPTH})
for level in reversed(range({DEPTH})):
    x = layers.Conv2DTranspose(width * 2**level, 2, 2, use_bias=False)(x)
    x = double_conv(layers.Concatenate()([x, skips[level]]), width * 2**level)
twin = tf.keras.Model(images, layers.Conv2D({NUM_CLASSES}, 1)(x))
twin.compile(
    tf.keras.optimizers.SGD(0.001, 0.9),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    steps_per_execution=per_execution,
)
random = np.random.default_rng(0)
shape = 4 * batch_size, size, size
data = tf.data.Dataset.from_tensor_slices(
    (
        random.integers(0, 256, (*shape, 3)).astype(np.uint8),
        random.integers(0, {NUM_CLASSES}, shape).astype(np.int32),
    )
)
data = data.batch(batch_size, drop_remainder=True).cache().repeat().prefetch(2)
twin.fit(data, steps_per_epoch=5, verbose=0)
first = time.time()
twin.fit(data, steps_per_epoch=steps, verbose=0)
print(json.dumps(steps * batch_size / (time.time() - first)))
"""

flags.DEFINE_list("sizes", ["128", "256"], "Heights and widths of images, multiples of 16.")
flags.DEFINE_integer("width", 16, "Channels of the highest resolution.")
flags.DEFINE_integer("batch_size", 8, "Images per step.")
flags.DEFINE_list("peers", ["keras", "keras_steps"], "Peers.")
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_integer("steps", 20, "Training steps, a multiple of 5.")


def main(_):
    """Runs the rounds and prints a line per size and side."""
    wanted = flags.FLAGS
    for size in map(int, wanted.sizes):
        sides = {name: _SIDES[name] for name in ("ours", *wanted.peers)}
        compare(f"{size}x{size}", sides, wanted.rounds, size)


def _ours(size):
    wanted = flags.FLAGS
    return train_rate(
        "--model=unet",
        "--dataset=synthetic",
        "--synthetic_task=segmentation",
        f"--synthetic_classes={NUM_CLASSES}",
        f"--image_size={size}x{size}",
        f"--train_batch_size={wanted.batch_size}",
        f"--train_steps={wanted.steps + 1}",
        f"--params=depth={DEPTH},width={wanted.width}",
        "--params=optimizer=momentum,momentum=0.9,learning_rate=0.001",
    )


def _keras(size, per_execution=1):
    wanted = flags.FLAGS
    return run_python(KERAS, size, wanted.width, wanted.batch_size, wanted.steps, per_execution)


_SIDES = {
    "ours": _ours,
    "keras": _keras,
    "keras_steps": lambda size: _keras(size, per_execution=5),
}


if __name__ == "__main__":
    app.run(main)
