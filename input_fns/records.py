"""Reads sharded TFRecord files: in order for evaluation, shuffled without end for training.

`parse` takes a batch of serialised examples (string `[n]`) to `(features, labels)`, so that parsing
costs a few operations a batch and not a few an example.
"""

from __future__ import annotations

import tensorflow as tf

# A training split whose decoded examples fit in this is held in memory: no shuffle buffer, a
# perfect shuffle, and an order that can be taken up again at any step.
IN_MEMORY_BYTES = 2**30

# These functions hold no Python control flow; to look for some would delay every start.
_plain = tf.autograph.experimental.do_not_convert

_PARSE_BATCH = 1024
_SHUFFLE_BUFFER = 16384
_PARALLEL_FILES = 16
# Enough epochs for any training; a Dataset.range needs an end.
_ENDLESS = 2**40


def train_from_memory(files, parse, num_examples, batch_size, seed, start_step=0):
    """Endless training batches of a split that fits in memory.

    Epoch e is the permutation that `(seed, e)` names, so the order depends on nothing else, and a
    run that starts at `start_step` sees what an undisturbed run would have seen from there on.
    A batch may span two epochs; within an epoch no example comes twice.
    """
    first_epoch, offset = divmod(start_step * batch_size, num_examples)

    @_plain
    def permutation(epoch):
        order = tf.random.experimental.stateless_shuffle(tf.range(num_examples), [seed, epoch])
        return order[tf.where(tf.equal(epoch, first_epoch), offset, 0) :]

    order = tf.data.Dataset.range(first_epoch, _ENDLESS).map(permutation)
    order = order.rebatch(batch_size, drop_remainder=True)
    # One element, the whole split; a batch is then one gather out of it.
    examples = _in_order(files, parse).rebatch(num_examples).cache().repeat()

    @_plain
    def gather(examples, rows):
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), examples)

    dataset = tf.data.Dataset.zip((examples, order)).map(
        gather, num_parallel_calls=tf.data.AUTOTUNE
    )
    return dataset.prefetch(tf.data.AUTOTUNE)


def train_from_files(files, parse, batch_size, seed):
    """Endless training batches of a split of any size: shards and a window of records shuffled."""
    dataset = tf.data.Dataset.from_tensor_slices(files)
    dataset = dataset.shuffle(len(files), seed=seed)
    dataset = dataset.interleave(
        tf.data.TFRecordDataset,
        cycle_length=min(_PARALLEL_FILES, len(files)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    dataset = dataset.shuffle(_SHUFFLE_BUFFER, seed=seed).repeat()
    dataset = dataset.batch(batch_size, drop_remainder=True)
    dataset = dataset.map(_plain(parse), num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def evaluate(files, parse, batch_size):
    """Every example once, in order; the last batch padded with examples of weight 0."""

    @_plain
    def pad(features, labels):
        missing = batch_size - tf.shape(labels)[0]
        weight = tf.pad(tf.ones_like(labels, tf.float32), [[0, missing]])

        def pad_one(tensor):
            padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
            return tf.ensure_shape(tf.pad(tensor, padding), [batch_size, *tensor.shape[1:]])

        features, labels = tf.nest.map_structure(pad_one, (features, labels))
        return {**features, "weight": tf.ensure_shape(weight, [batch_size])}, labels

    dataset = _in_order(files, parse).rebatch(batch_size)
    return dataset.map(pad, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def predict(files, parse, batch_size):
    """Every example once, in order; the last batch may be smaller."""
    return _in_order(files, parse).rebatch(batch_size).prefetch(tf.data.AUTOTUNE)


def _in_order(files, parse):
    dataset = tf.data.TFRecordDataset(files).batch(_PARSE_BATCH)
    return dataset.map(_plain(parse), num_parallel_calls=tf.data.AUTOTUNE)
