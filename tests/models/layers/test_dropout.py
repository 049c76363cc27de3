"""Dropout that is a function of the batch."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device, dropout
from tests import numerics

SHAPE = (13, 7, 64)


def masks(session, seeds, count=1):
    """What `count` calls keep of ones, for a batch with these seeds."""
    features = {} if seeds is None else {"dropout_seed": tf.constant(seeds, tf.int32)}
    with dropout.seeded(features):
        dropped = [dropout.dropout(tf.ones(SHAPE), 0.3, training=True) for _ in range(count)]
    return session.run(dropped)


def test_a_share_is_dropped_and_the_rest_scaled_up(session):
    (mask,) = masks(session, [[5, 6]])
    kept_share = 1 - round(0.3 * 2**16) / 2**16
    numerics.assert_close(np.unique(mask), [0, 1 / kept_share])
    assert np.mean(mask == 0) == pytest.approx(0.3, abs=0.02)


def test_equal_seeds_drop_the_same(session):
    first, second = (masks(session, [[5, 6], [other, other]])[0] for other in (1, 2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("seeds", [[[5, 7]], [[4, 6]]])
def test_other_seeds_drop_others(session, seeds):
    assert np.mean(masks(session, [[5, 6]])[0] == masks(session, seeds)[0]) < 0.65


def test_each_call_drops_others(session):
    first, second = masks(session, [[5, 6]], count=2)
    assert np.mean(first == second) < 0.65


@pytest.mark.parametrize("half", [slice(0, 7), slice(7, 13)])
def test_either_half_of_a_batch_drops_its_share(session, half):
    (mask,) = masks(session, [[5, 6]])
    assert np.mean(mask[half] == 0) == pytest.approx(0.3, abs=0.02)


def test_the_halves_of_a_batch_drop_others(session):
    (mask,) = masks(session, [[5, 6]])
    assert np.mean(mask[:6] == mask[7:]) < 0.65


def test_without_seeds_every_run_drops_others(session):
    with dropout.seeded({}):
        dropped = dropout.dropout(tf.ones(SHAPE), 0.3, training=True)
    assert np.mean(session.run(dropped) == session.run(dropped)) < 0.65


def test_a_mask_can_be_broadcast(session):
    with dropout.seeded({}):
        dropped = dropout.dropout(tf.ones(SHAPE), 0.5, training=True, noise_shape=[13, 1, 1])
    assert np.ptp(session.run(dropped), axis=(1, 2)).max() == 0


@pytest.mark.parametrize(("rate", "training"), [(0.3, False), (0.0, True)])
def test_otherwise_nothing_is_done(rate, training):
    x = tf.ones(SHAPE)
    assert dropout.dropout(x, rate, training) is x


def test_bfloat16_stays_what_it_is(session):
    x = tf.ones(SHAPE, tf.bfloat16)
    with dropout.seeded({}):
        assert dropout.dropout(x, 0.3, training=True).dtype == tf.bfloat16


@pytest.mark.parametrize("shape", [SHAPE, (64, 3, 5), (8, 3, 5, 6), (33, 4), (34, 5), (5, 6, 1, 3)])
def test_a_tpu_keeps_the_same(session, shape):
    """Its masks are packed to bits."""
    found = []
    for params in ({}, {"use_tpu": True}):
        with device.scope(params), dropout.seeded({"dropout_seed": tf.constant([[5, 6]])}):
            mask, _ = dropout.keep_mask(shape, 0.3)
        assert mask.shape == shape
        found.append(mask)
    np.testing.assert_array_equal(*session.run(found))


@pytest.mark.parametrize(
    ("batch_size", "dtype"), [(32, "int32"), (24, "int32"), (16, "uint16"), (8, "uint8")]
)
def test_masks_of_a_tpu_are_bits_between_their_uses(graph, batch_size, dtype):
    with device.scope({"use_tpu": True}):
        dropout.keep_mask((batch_size, 12, 9, 7), 0.3)
    (total,) = (op.outputs[0] for op in graph.get_operations() if op.type == "Sum")
    words = total if dtype == "int32" else total.consumers()[0].outputs[0]
    assert (words.shape, words.dtype) == ((1, 1, 12, 9, 7), dtype)


def test_stochastic_depth_skips_whole_images_and_keeps_the_mean(session):
    ones = tf.ones([4000, 2, 2, 3])
    dropped = session.run(dropout.drop_path(ones, 0.25, training=True))
    first = dropped[:, 0, 0, 0]
    np.testing.assert_array_equal(
        dropped, np.broadcast_to(first[:, None, None, None], (4000, 2, 2, 3))
    )
    numerics.assert_close(np.unique(first), [0, 1 / 0.75])
    assert 0.22 < np.mean(first == 0) < 0.28


def test_normal_numbers_are_a_function_of_the_batch(session):
    def draw(seed):
        with dropout.seeded({"dropout_seed": tf.constant([seed])}):
            return session.run([dropout.random_normal([13, 7]) for _ in range(2)])

    first, second = draw([5, 6])
    np.testing.assert_array_equal([first, second], draw([5, 6]))
    assert not np.isin(first, [second, *draw([5, 7])]).any()
