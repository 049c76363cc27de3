"""Parses untrusted serialized tf.train.Examples."""

from __future__ import annotations

import tensorflow as tf


def parse(serialized, features, may_be_empty=False):
    """Parses like `tf.io.parse_example`, without its memory fault.

    In TensorFlow 2.15 `tf.io.parse_example` and `tf.io.parse_single_example` read out of bounds and
    crash on a bytes feature whose length is negative as an int32 (FastParseExample,
    example_proto_fast_parsing.cc). A tf.train.Example is a tf.train.SequenceExample with only a
    context; its parser rejects such a record and takes half the time.

    Args:
      serialized: string `[batch]`.
      features: `{name: tf.io.FixedLenFeature}`.
      may_be_empty: whether the batch may be 0, as in a serving request. TensorFlow's parser does
        not accept that, so a record is added and removed.

    Returns:
      `{name: tensor [batch, ...]}`. Running it raises InvalidArgumentError for a corrupted record
      or a missing feature.
    """
    if may_be_empty:
        serialized = tf.concat([serialized, [_any_example(features)]], axis=0)
    context, _, _ = tf.io.parse_sequence_example(serialized, context_features=features)
    if may_be_empty:
        context = {name: values[:-1] for name, values in context.items()}
    return context


def _any_example(features):
    """Returns a serialized example that has all features."""
    values = {
        tf.string: tf.train.Feature(bytes_list=tf.train.BytesList(value=[b""])),
        tf.int64: tf.train.Feature(int64_list=tf.train.Int64List(value=[0])),
    }
    feature = {name: values[kind.dtype] for name, kind in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
