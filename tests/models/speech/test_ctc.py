"""CTC loss and its gradient, equal to TensorFlow's CPU kernel and to a sum over all alignments."""

import functools
import importlib.util
import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from models.speech import ctc
from tpu.check import compiler
from tpu.connect import topology

VOCAB, FRAMES, TOKENS = 5, 11, 6
CASES = 200
TOLERANCE = 1e-4


def make_cases(count=CASES):
    """Random targets and logits; every fifth has a special form."""
    random = np.random.default_rng(34)
    targets = np.zeros([count, TOKENS], np.int32)
    num_frames = random.integers(1, FRAMES + 1, count).astype(np.int32)
    logits = random.normal(size=[count, FRAMES, VOCAB], scale=3).astype(np.float32)
    for i in range(count):
        length = random.integers(0, TOKENS + 1)
        if i % 5 == 1:  # as long as the input, without equal neighbours
            length = min(length, num_frames[i])
            num_frames[i] = max(1, length)
            targets[i, :length] = 1 + np.arange(length) % (VOCAB - 1)
            continue
        if i % 5 == 2:  # repeated tokens
            targets[i, :length] = random.integers(1, VOCAB)
            continue
        if i % 5 == 3:  # blank first and last
            logits[i, [0, num_frames[i] - 1], ctc.BLANK] += 20
        targets[i, :length] = random.integers(1, VOCAB, length)
        if i % 5 == 4:
            targets[i] = 0
    return targets, logits, num_frames


@functools.cache
def build(jit_compile, *shapes):
    """Returns a session, and in its graph fed inputs, losses and gradients."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def compute(targets, logits, num_frames):
        upstream = tf.range(1.0, logits.shape[0] + 1)
        losses = ctc.loss(targets, logits, num_frames)
        gradients = tf.gradients(losses, logits, upstream)[0]
        return losses, gradients / upstream[:, tf.newaxis, tf.newaxis]

    with tf.Graph().as_default() as graph:
        types = (tf.int32, tf.float32, tf.int32)
        fed = [tf.compat.v1.placeholder(*both) for both in zip(types, shapes)]
        return tf.compat.v1.Session(graph=graph), fed, compute(*fed)


def ours(targets, logits, num_frames, jit_compile=False):
    """Loss and gradient."""
    inputs = (targets, logits, num_frames)
    session, fed, outputs = build(jit_compile, *(array.shape for array in inputs))
    return session.run(outputs, dict(zip(fed, inputs)))


def expected(targets, logits, num_frames):
    """Loss and gradient by TensorFlow's CPU kernel.

    It refuses empty targets, and is infinite for targets that need more frames: both are simple.
    """
    is_impossible = ctc_frames(targets) > num_frames
    is_empty = ~targets.any(axis=1)
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    is_used = np.arange(FRAMES) < num_frames[:, np.newaxis]
    losses = -(log_probs[..., ctc.BLANK] * is_used).sum(axis=1)
    gradients = (np.exp(log_probs) - np.eye(VOCAB)[ctc.BLANK]) * is_used[..., np.newaxis]
    losses[is_impossible], gradients[is_impossible] = 0, 0
    rest = ~is_empty & ~is_impossible
    losses[rest], gradients[rest] = kernel(targets[rest], logits[rest], num_frames[rest])
    return losses, gradients


def kernel(targets, logits, num_frames):
    """Loss and gradient by TensorFlow's CPU kernel, whose blank is the last class."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = tf.constant(logits)
        places = np.argwhere(targets > 0)
        losses = tf.compat.v1.nn.ctc_loss(
            tf.SparseTensor(places, targets[targets > 0] - 1, targets.shape),
            tf.concat([inputs[..., 1:], inputs[..., :1]], axis=-1),
            num_frames,
            ignore_longer_outputs_than_inputs=True,
            time_major=False,
        )
        return session.run([losses, tf.gradients(losses, inputs)[0]])


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_equals_the_cpu_kernel(jit_compile):
    cases = make_cases()
    losses, gradients = ours(*cases, jit_compile)
    expected_losses, expected_gradients = expected(*cases)
    np.testing.assert_allclose(losses, expected_losses, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(gradients, expected_gradients, rtol=0, atol=TOLERANCE)


def test_cases_cover_the_special_forms():
    targets, _, num_frames = make_cases()
    lengths = np.count_nonzero(targets, axis=1)
    required = ctc_frames(targets)
    assert np.sum(lengths == 0) > 20
    assert np.sum((lengths == num_frames) & (required == num_frames)) > 20
    assert np.sum(required > lengths) > 20
    assert np.sum(required > num_frames) > 10


def test_one_other_target_is_outside_the_tolerance():
    """Negative control: the tolerance is not met by chance."""
    targets, logits, num_frames = make_cases()
    found = ours(targets[:, ::-1].copy(), logits, num_frames)[0]
    assert np.mean(np.abs(found - expected(targets, logits, num_frames)[0]) > TOLERANCE) > 0.2


def ctc_frames(targets):
    """Frames that each target needs, in NumPy."""
    repeats = (targets[:, 1:] == targets[:, :-1]) & (targets[:, 1:] > 0)
    return np.count_nonzero(targets, axis=1) + repeats.sum(axis=1)


def collapse(alignment):
    """The target of an alignment."""
    return tuple(token for token, _ in itertools.groupby(alignment) if token != ctc.BLANK)


def test_equals_the_sum_over_all_alignments():
    logits = np.random.default_rng(1).normal(size=[1, 4, 3]).astype(np.float32)
    log_probs = logits[0] - np.log(np.exp(logits[0]).sum(axis=-1, keepdims=True))
    totals = {}
    for alignment in itertools.product(range(3), repeat=4):
        probability = np.exp(sum(log_probs[t, token] for t, token in enumerate(alignment)))
        target = collapse(alignment)
        totals[target] = totals.get(target, 0) + probability
    assert len(totals) == 15
    targets = np.zeros([15, 5], np.int32)
    for row, target in zip(targets, totals):
        row[: len(target)] = target
    found = ours(targets, np.repeat(logits, 15, axis=0), np.full(15, 4, np.int32))[0]
    np.testing.assert_allclose(found, -np.log(list(totals.values())), rtol=1e-5, atol=1e-6)


def test_impossible_target_and_no_frames_are_zero():
    logits = np.ones([2, 3, VOCAB], np.float32)
    targets = np.array([[1, 1, 2], [1, 0, 0]], np.int32)
    losses, gradients = ours(targets, logits, np.array([3, 0], np.int32))
    assert not losses.any()
    assert not gradients.any()


def test_frames_after_the_end_have_no_effect():
    targets, logits, num_frames = make_cases()
    other = logits + 50 * (np.arange(FRAMES)[:, np.newaxis] >= num_frames[:, None, None])
    before, after = (ours(targets, x.astype(np.float32), num_frames) for x in (logits, other))
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_array_equal(before[1], after[1])


def test_long_input_has_exact_gradients():
    """A thousand frames: the gradient of each frame sums to 0, as softmax minus posterior does."""
    random = np.random.default_rng(2)
    logits = random.normal(size=[2, 1000, VOCAB], scale=5).astype(np.float32)
    targets = random.integers(1, VOCAB, [2, 150]).astype(np.int32)
    losses, gradients = ours(targets, logits, np.array([1000, 700], np.int32))
    assert np.isfinite(losses).all()
    np.testing.assert_allclose(gradients.sum(axis=-1), 0, atol=1e-5)


def test_nan_logits_give_a_nan_loss():
    logits = np.full([1, 3, VOCAB], np.nan, np.float32)
    assert np.isnan(ours(np.array([[1, 2]], np.int32), logits, np.array([3], np.int32))[0]).all()


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu is not installed: Linux, x86-64, Python 3.11 and the 'check' extra",
)
def test_tpu_compiler_lowers_loss_and_gradient():
    def compute(logits):
        targets = tf.constant([[1 + i % 27 for i in range(150)]] * 4)
        losses = ctc.loss(targets, logits, tf.fill([4], 400))
        return losses, tf.gradients(losses, logits)[0]

    with context.eager_mode():
        specs = [tf.TensorSpec([4, 400, 32], tf.float32)]
        function = tf.function(compute, specs, autograph=False, jit_compile=True)
        hlo = function.experimental_get_compiler_ir(*specs)(stage="hlo_serialized")
    compiled = compiler.compile_hlo(hlo, compiler.get_target(topology.find("v3-8")))
    assert compiled.fits
