"""Parses serialized tf.train.Examples, which may be of anybody."""

from __future__ import annotations

import tensorflow as tf


def parse(serialized, features):
    """Does what `tf.io.parse_example` does, without its fault.

    A bytes feature whose length is negative as an int32 makes `tf.io.parse_example` and
    `tf.io.parse_single_example` of TensorFlow 2.15 read outside of the record and kills the
    process (FastParseExample, example_proto_fast_parsing.cc). A tf.train.Example is a
    tf.train.SequenceExample with nothing but a context, whose parser refuses such a record and
    takes half the time.

    Args:
      serialized: string `[batch]`.
      features: `{name: tf.io.FixedLenFeature}`.

    Returns:
      `{name: tensor [batch, ...]}`. Running it raises InvalidArgumentError for a broken record, or
      one that lacks a feature.
    """
    context, _, _ = tf.io.parse_sequence_example(serialized, context_features=features)
    return context
