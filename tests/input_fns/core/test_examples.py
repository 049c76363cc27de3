"""Parsing records of anybody."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from input_fns.core import examples

FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "name": tf.io.FixedLenFeature([], tf.string, "none"),
}
# A length of 2**64 - 28, as a varint, instead of 14.
NEGATIVE_LENGTH = b"\n\x1b\n\x19\n\x05image\x12\x10\n\x0e\n\xe4\xff\xff\xff\x0fxxxxxxxx"


def example(**values):
    lists = {
        int: lambda value: tf.train.Feature(int64_list=tf.train.Int64List(value=[value])),
        bytes: lambda value: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])),
    }
    feature = {name: lists[type(value)](value) for name, value in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def test_it_gives_what_parse_example_gives(session):
    records = [
        example(image=b"a" * size, label=size, **({"name": b"n"} if size % 2 else {}), more=1)
        for size in range(13)
    ]
    expected, parsed = session.run(
        [tf.io.parse_example(records, FEATURES), examples.parse(records, FEATURES)]
    )
    assert parsed.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(parsed[name], value)
        assert parsed[name].dtype == value.dtype


@pytest.mark.parametrize("count", [0, 1, 13])
def test_a_batch_may_be_empty(session, count):
    records = tf.constant([example(image=b"a", label=7)] * count, tf.string, [count])
    parsed = session.run(examples.parse(records, FEATURES, may_be_empty=True))
    assert parsed["image"].tolist() == [b"a"] * count
    assert parsed["label"].tolist() == [7] * count
    assert parsed["name"].tolist() == [b"none"] * count


@pytest.mark.parametrize(
    "record",
    [
        NEGATIVE_LENGTH,
        b"nonsense",
        example(image=b"a"),
        example(image=1, label=1),
        example(image=b"a", label=1)[:-2],
    ],
    ids=["negative length", "nonsense", "no label", "other type", "cut"],
)
def test_a_broken_record_is_an_error(session, record):
    with pytest.raises(tf.errors.InvalidArgumentError):
        session.run(examples.parse([record], FEATURES))


@pytest.mark.slow
def test_tensorflow_s_own_parser_still_has_the_fault():
    """If this fails, `examples.parse` has become needless."""
    code = (
        "import tensorflow as tf\n"
        "features = {'image': tf.io.FixedLenFeature([], 'string')}\n"
        f"tf.io.parse_example([{NEGATIVE_LENGTH!r}], features)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode < 0
