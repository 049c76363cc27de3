"""A training step of ResNet-50 in Flax, as HLO for the TPU compiler; `tpu_peers` runs this.

    FLAX_PYTHON -m benchmarks.peers.flax_resnet OUTPUT BATCH_PER_CORE

The network of `tf.keras.applications` in the style of Flax's ImageNet example: no biases before
batch norm, bfloat16 layers with float32 parameters, images of 224x224, momentum. OUTPUT is a
serialized HloModuleProto. Needs a separate environment, because JAX and TensorFlow 2.15 need
different versions of the same packages:

    python3.11 -m venv flax && flax/bin/pip install jax==0.4.30 flax==0.8.5 optax==0.2.3
"""

from __future__ import annotations

import functools
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

BLOCKS = (3, 4, 6, 3)
IMAGE_SIZE, NUM_CLASSES = 224, 1000

conv = functools.partial(nn.Conv, use_bias=False, dtype=jnp.bfloat16)
norm = functools.partial(nn.BatchNorm, use_running_average=False, momentum=0.9, dtype=jnp.bfloat16)


class Block(nn.Module):
    """Bottleneck block with the stride in the first 1x1 convolution, as in He et al. 2015."""

    filters: int
    strides: int
    projects: bool

    @nn.compact
    def __call__(self, x):
        """Returns `[batch, height, width, channels]`."""
        strides, shortcut = (self.strides, self.strides), x
        y = nn.relu(norm()(conv(self.filters, (1, 1), strides)(x)))
        y = nn.relu(norm()(conv(self.filters, (3, 3))(y)))
        y = norm()(conv(4 * self.filters, (1, 1))(y))
        if self.projects:
            shortcut = norm()(conv(4 * self.filters, (1, 1), strides)(x))
        return nn.relu(shortcut + y)


class ResNet50(nn.Module):
    """From uint8 images `[batch, 224, 224, 3]` to bfloat16 logits `[batch, 1000]`."""

    @nn.compact
    def __call__(self, images):
        """Returns the logits."""
        x = conv(64, (7, 7), (2, 2), [(3, 3), (3, 3)])(images.astype(jnp.bfloat16))
        x = nn.relu(norm()(x))
        x = nn.max_pool(x, (3, 3), (2, 2), [(1, 1), (1, 1)])
        for stage, count in enumerate(BLOCKS):
            for i in range(count):
                x = Block(64 * 2**stage, 2 if stage and not i else 1, not i)(x)
        return nn.Dense(NUM_CLASSES, dtype=jnp.bfloat16)(jnp.mean(x, (1, 2)))


def build(batch_size):
    """Returns (step, start): functions for `jax.jit` and `jax.eval_shape`.

    `step(variables, slots, images, labels)` returns new variables, slots and the loss; `start(key)`
    returns its arguments, with random images.
    """
    model, optimizer = ResNet50(), optax.sgd(0.1, momentum=0.9, nesterov=True)

    def start(key):
        shape = (batch_size, IMAGE_SIZE, IMAGE_SIZE, 3)
        images = jax.random.bits(key, shape, jnp.uint8)
        variables = model.init(key, images)
        labels = jax.random.randint(key, (batch_size,), 0, NUM_CLASSES)
        return variables, optimizer.init(variables["params"]), images, labels

    def step(variables, slots, images, labels):
        def mean_loss(params):
            logits, updated = model.apply(
                {**variables, "params": params}, images, mutable=["batch_stats"]
            )
            losses = optax.softmax_cross_entropy_with_integer_labels(
                logits.astype(jnp.float32), labels
            )
            return losses.mean(), updated

        params = variables["params"]
        (loss, updated), gradients = jax.value_and_grad(mean_loss, has_aux=True)(params)
        changes, slots = optimizer.update(gradients, slots, params)
        return {"params": optax.apply_updates(params, changes), **updated}, slots, loss

    return step, start


def main(path, batch_size):
    """Writes the HLO of the step to `path`."""
    step, start = build(int(batch_size))
    inputs = jax.eval_shape(start, jax.random.PRNGKey(0))
    lowered = jax.jit(step, donate_argnums=(0, 1)).lower(*inputs)
    with open(path, "wb") as file:
        file.write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main(*sys.argv[1:])
