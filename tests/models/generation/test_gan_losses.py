"""Losses of GANs against PyTorch 2.13, in float64.

waves = lambda *shape, phase: np.sin(np.arange(np.prod(shape)) * 1.7 + phase).reshape(shape)
nchw = lambda x: torch.tensor(x.transpose(0, 3, 1, 2).copy())
F = torch.nn.functional
kernel = torch.tensor(waves(3, 3, 2, 4, phase=4).transpose(3, 2, 0, 1).copy(),
                      requires_grad=True)
def score(x):
    x = F.leaky_relu(F.conv2d(x, kernel, padding=1), 0.2)
    x = torch.tanh(F.avg_pool2d(x, 2)).permute(0, 2, 3, 1)
    return x.reshape(3, -1) @ torch.tensor(waves(24, phase=5))
mix = torch.tensor([0.25, 0.5, 0.875])[:, None, None, None]
real, generated = (nchw(waves(3, 4, 6, 2, phase=p)) for p in (6, 7))
between = (mix * real + (1 - mix) * generated).requires_grad_()
(gradient,) = torch.autograd.grad(score(between).sum(), between, create_graph=True)
penalty = (gradient.flatten(1).norm(dim=1) - 1) ** 2
penalty.mean().backward()
print(penalty, kernel.grad.permute(2, 3, 1, 0)[1, 1])
a, b = (torch.tensor(2 * waves(5, phase=p)) for p in (8, 9))
print(F.relu(1 - a) + F.relu(1 + b))
bce = lambda x, y: F.binary_cross_entropy_with_logits(x, y * torch.ones(5), reduction="none")
print(bce(a, 1) + bce(b, 0), bce(b, 1))
"""

import numpy as np
import pytest
import tensorflow as tf

from models.generation import gan_losses
from tests import numerics

PENALTY = [1.9957599, 2.56559823, 1.22266755]
SLOPE = [
    [0.42905501, 0.14379639, -0.50506997, 0.23748859],
    [0.3147556, 0.21141522, -0.47199272, 0.06701748],
]
HINGE = [1.82423697, 1.54352125, 3.5074487, 2.99861878, 0.8161863]
CROSS_ENTROPY = [1.31737517, 1.1390591, 2.52743439, 2.43434379, 0.79334423]
OF_GENERATOR = [0.36364922, 2.05094018, 0.87240151, 0.12709276, 0.78927153]


def waves(*shape, phase):
    return np.sin(np.arange(np.prod(shape)) * 1.7 + phase).reshape(shape)


def logits():
    return [tf.constant(2 * waves(5, phase=phase), tf.float32) for phase in (8, 9)]


@pytest.mark.parametrize(
    ("name", "expected"), [("hinge", HINGE), ("non_saturating", CROSS_ENTROPY)]
)
def test_the_loss_of_a_discriminator_is_that_of_pytorch(session, name, expected):
    of_discriminator, _ = gan_losses.LOSSES[name]
    numerics.assert_close(session.run(of_discriminator(*logits())), expected, depth=4)


def test_the_losses_of_a_generator_are_those_of_pytorch(session):
    _, generated = logits()
    losses = {
        name: of_generator(generated) for name, (_, of_generator) in gan_losses.LOSSES.items()
    }
    found = session.run({**losses, "logits": generated})
    numerics.assert_close(found["non_saturating"], OF_GENERATOR, depth=4)
    np.testing.assert_array_equal(found["hinge"], -found["logits"])
    np.testing.assert_array_equal(found["wasserstein_gp"], -found["logits"])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_penalty_and_its_gradient_are_those_of_pytorch(session, compiled):
    """The second derivatives compile by XLA."""
    dense = tf.constant(waves(24, 1, phase=5), tf.float32)

    def penalty_and_slope(kernel, real, generated):
        def score(x):
            x = tf.nn.leaky_relu(tf.nn.conv2d(x, kernel, 1, "SAME"), 0.2)
            x = tf.tanh(tf.nn.avg_pool2d(x, 2, 2, "VALID"))
            return tf.matmul(tf.reshape(x, [3, -1]), dense)[:, 0]

        mix = tf.constant([0.25, 0.5, 0.875])
        penalty = gan_losses.gradient_penalty(score, real, generated, mix)
        return penalty, tf.gradients(tf.reduce_mean(penalty), kernel)[0]

    shapes = (3, 3, 2, 4), (3, 4, 6, 2), (3, 4, 6, 2)
    inputs = [tf.constant(waves(*s, phase=p), tf.float32) for s, p in zip(shapes, (4, 6, 7))]
    call = tf.function(penalty_and_slope, jit_compile=True) if compiled else penalty_and_slope
    penalty, slope = session.run(call(*inputs))
    # A convolution of 18 terms and a sum of 24, forward and backward twice; a norm of 48 terms.
    arithmetic = {"terms": 48, "depth": 6}
    numerics.assert_close(penalty, PENALTY, **arithmetic)
    numerics.assert_close(slope[1, 1], SLOPE, magnitude=np.abs(slope).max(), **arithmetic)
