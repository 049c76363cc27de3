"""Parsing stored examples, and the receiver that serving feeds."""

import numpy as np
import pytest
import tensorflow as tf

from input_fns.dataset_info import Feature
from input_fns.image import images


def example(array, label):
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[array.tobytes()])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_stored_numbers_come_back_bit_for_bit(session, dtype):
    stored = np.random.default_rng(1).normal(100, 50, [13, 7, 5, 3]).astype(dtype)
    feature = Feature("raw", dtype, (7, 5, 3))
    parse = images.stored_fn({"image": feature}, has_labels=True, num_classes=4)
    strings, labels = parse(tf.constant([example(row, i % 4) for i, row in enumerate(stored)]))
    assert labels.dtype == tf.int32
    pixels, labels = session.run((images.decode_raw(strings["image"], feature), labels))
    np.testing.assert_array_equal(pixels, stored)
    np.testing.assert_array_equal(labels, np.arange(13) % 4)


@pytest.mark.parametrize("label", [4, -1, 2**32, 2**32 + 3, -(2**32) + 3, 2**63 - 1])
def test_a_label_outside_the_classes_is_an_error(session, label):
    parse = images.stored_fn({"image": Feature("raw", "uint8", (1,))}, True, num_classes=4)
    _, labels = parse(tf.constant([example(np.uint8([1]), label)]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="outside the classes"):
        session.run(labels)
