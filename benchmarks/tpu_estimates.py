"""Memory and step time of five programs by --mode=check.

Prints the memory estimate beside that of the TPU compiler, and the modeled speed on v2, v3 and v4.
With --largest, also the largest batch of ResNet-50 on a v3 core. Needs the TPU compiler (pip
install libtpu==0.0.34), no TPU. Takes some minutes.
"""

import argparse
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from engine.cli import runtime
from tpu.check import check_program, compiler

tf1 = tf.compat.v1
layers = tf1.layers


def norm(x, training, relu=True):
    """Batch norm and ReLU."""
    x = layers.batch_normalization(x, training=training, epsilon=1e-5)
    return tf.nn.relu(x) if relu else x


def conv(x, filters, size, strides=1):
    """A convolution without bias, for batch norm."""
    return layers.conv2d(x, filters, size, strides, padding="same", use_bias=False)


def bottleneck(x, filters, strides, training):
    """A residual block of ResNet v1.5, with the stride in the 3x3 convolution."""
    shortcut = x
    if strides > 1 or x.shape[-1] != 4 * filters:
        shortcut = norm(conv(x, 4 * filters, 1, strides), training, relu=False)
    y = norm(conv(x, filters, 1), training)
    y = norm(conv(y, filters, 3, strides), training)
    return tf.nn.relu(norm(conv(y, 4 * filters, 1), training, relu=False) + shortcut)


def resnet50(images, training):
    """He et al. 2015, arXiv:1512.03385, with the strides of v1.5."""
    x = norm(conv(images, 64, 7, 2), training)
    x = layers.max_pooling2d(x, 3, 2, padding="same")
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            strides = 2 if stage and not block else 1
            x = bottleneck(x, 64 * 2**stage, strides, training)
    return layers.dense(tf.reduce_mean(x, [1, 2]), 1000)


def plain_cnn(images, training):
    """Convolutions without normalization and shortcuts."""
    x = images
    for filters in (64, 128, 256, 256):
        x = layers.conv2d(x, filters, 3, padding="same", activation=tf.nn.relu)
        x = layers.max_pooling2d(x, 2, 2)
    x = layers.dense(layers.flatten(x), 1024, tf.nn.relu)
    return layers.dense(x, 1000)


def perceptron(images, training):
    """Three wide layers: most memory is weights."""
    x = layers.flatten(images)
    for _ in range(3):
        x = layers.dense(x, 4096, tf.nn.relu)
    return layers.dense(x, 1000)


def attention(images, training):
    """Four blocks of self-attention over the rows of an image."""
    x = layers.dense(tf.reshape(images, [-1, images.shape[1], images.shape[2] * 3]), 512)
    for _ in range(4):
        query, key, value = (
            tf.transpose(tf.reshape(layers.dense(x, 512), [-1, x.shape[1], 8, 64]), [0, 2, 1, 3])
            for _ in range(3)
        )
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / 8.0)
        mixed = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        x += layers.dense(tf.reshape(mixed, [-1, x.shape[1], 512]), 512)
        x += layers.dense(layers.dense(x, 2048, tf.nn.relu), 512)
    return layers.dense(tf.reduce_mean(x, 1), 1000)


PROGRAMS = {  # name: (network, image size, per-core batch, precision)
    "ResNet-50, bfloat16": (resnet50, 224, 128, tf.bfloat16),
    "ResNet-50, float32": (resnet50, 224, 64, tf.float32),
    "plain CNN, float32": (plain_cnn, 128, 128, tf.float32),
    "perceptron, float32": (perceptron, 64, 256, tf.float32),
    "attention, bfloat16": (attention, 256, 64, tf.bfloat16),
}
TOPOLOGIES = ("v2-8", "v3-8", "v4-8")


def make_estimator(network, dtype, batch_size):
    """Returns a TPUEstimator that trains a network with momentum."""

    def model_fn(features, labels, mode, params):
        images = tf.cast(features, dtype) / 255
        with tf1.tpu.bfloat16_scope():
            logits = tf.cast(network(images, mode == tf.estimator.ModeKeys.TRAIN), tf.float32)
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
        optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
        if params["use_tpu"]:
            optimizer = tf1.tpu.CrossShardOptimizer(optimizer)
        with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss, tf1.train.get_global_step())
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    config = tf1.estimator.tpu.RunConfig(
        cluster=tf.distribute.cluster_resolver.TPUClusterResolver("local"),
        model_dir=os.path.join(tempfile.gettempdir(), "not_written"),
        tpu_config=tf1.estimator.tpu.TPUConfig(
            per_host_input_for_training=tf1.estimator.tpu.InputPipelineConfig.PER_HOST_V2
        ),
    )
    return tf1.estimator.tpu.TPUEstimator(
        model_fn, config=config, use_tpu=True, train_batch_size=batch_size
    )


def make_input_fn(pixels):
    """Returns an input_fn of black uint8 images."""

    def input_fn(params):
        shape = [params["batch_size"], pixels, pixels, 3]
        element = tf.zeros(shape, tf.uint8), tf.zeros(shape[:1], tf.int32)
        return tf.data.Dataset.from_tensors(element).repeat()

    return input_fn


def report(name, topology, with_batch=False, batch=None, effort=compiler.QUICK):
    """Returns the report of a program on a slice."""
    network, pixels, per_core, dtype = PROGRAMS[name]
    cores = {"v2-8": 8, "v3-8": 8, "v4-8": 4}[topology]

    def make(mode, size):
        return make_estimator(network, dtype, size)

    return check_program(
        make("train", (batch or per_core) * cores),
        {"train": make_input_fn(pixels)},
        topology,
        with_batch=make if with_batch else None,
        effort=effort,
    )


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--full", action="store_true", help="full effort of the compiler")
    flags = parser.parse_args()
    runtime.prepare()
    print("| program | per-core batch | memory, estimated | by the compiler (v3) | error |")
    speeds = {}
    for name, (_, _, per_core, _) in PROGRAMS.items():
        effort = compiler.FULL if flags.full else compiler.QUICK
        reports = {t: report(name, t, effort=effort).modes["train"] for t in TOPOLOGIES}
        speeds[name] = reports
        estimated = reports["v3-8"].sizes.hbm_bytes / 2**20
        compiled = reports["v3-8"].compiled.memory["peak"] / 2**20
        error = estimated / compiled - 1
        print(
            f"| {name} | {per_core} | {estimated:,.0f} MiB | {compiled:,.0f} MiB | {error:+.0%} |"
        )
    print(f"\n| program | {' | '.join(f'{t}: step, examples/s, of peak' for t in TOPOLOGIES)} |")
    for name, reports in speeds.items():
        cells = []
        for topology, train in reports.items():
            cores = 4 if topology == "v4-8" else 8
            time = train.step_time
            rate = train.batch_size * cores / time.seconds
            cells.append(f"{time.seconds * 1e3:.1f} ms, {rate:,.0f}, {time.share_of_peak:.0%}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    if flags.largest:
        found = report("ResNet-50, bfloat16", "v3-8", with_batch=True, batch=1152)
        print("\n" + "\n".join(f.message for f in found.findings if f.code == "hbm"))


if __name__ == "__main__":
    main()
