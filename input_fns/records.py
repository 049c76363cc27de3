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


def train_from_memory(files, parse, num_examples, deployment, seed, start_step=0):
    """Endless training batches of a split that fits in memory.

    Epoch e is the permutation that `(seed, e)` names, so the order depends on nothing else: a run
    that starts at `start_step` sees what an undisturbed run would have seen from there on, and the
    global batches are the same on any number of hosts and cores. A batch may span two epochs;
    within an epoch no example comes twice. Every host reads every file.
    """
    start = start_step * deployment.global_batch_size
    first_epoch, offset = divmod(start, num_examples)

    @_plain
    def permutation(epoch):
        order = tf.random.experimental.stateless_shuffle(tf.range(num_examples), [seed, epoch])
        return order[tf.where(tf.equal(epoch, first_epoch), offset, 0) :]

    order = tf.data.Dataset.range(first_epoch, _ENDLESS).map(permutation)
    order = order.rebatch(deployment.global_batch_size, drop_remainder=True)
    order = _share_of_host(order, deployment)
    # One element, the whole split; a batch is then one gather out of it.
    examples = _in_order(files, parse).rebatch(num_examples).cache().repeat()

    @_plain
    def gather(examples, rows):
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), examples)

    dataset = tf.data.Dataset.zip((examples, order)).map(
        gather, num_parallel_calls=tf.data.AUTOTUNE
    )
    return dataset.prefetch(tf.data.AUTOTUNE)


def train_from_files(files, parse, deployment, seed):
    """Endless training batches of a split of any size: shards and a window of records shuffled.

    Each host has files of its own, or, where there are fewer files than hosts, every so-manyth
    record of all: within an epoch no two hosts see the same example.
    """
    host, num_hosts = deployment.host, deployment.num_hosts
    by_file = len(files) >= num_hosts
    if by_file:
        files = files[host::num_hosts]
    dataset = tf.data.Dataset.from_tensor_slices(files)
    # Record i of a pass over the files must be the same on all hosts that share them.
    dataset = dataset.shuffle(len(files), seed=seed)
    dataset = dataset.interleave(
        tf.data.TFRecordDataset,
        cycle_length=min(_PARALLEL_FILES, len(files)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if not by_file:
        dataset = dataset.shard(num_hosts, host)
    dataset = dataset.shuffle(_SHUFFLE_BUFFER, seed=seed).repeat()
    dataset = dataset.batch(deployment.batch_size, drop_remainder=True)
    dataset = dataset.map(_plain(parse), num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def evaluate(files, parse, deployment):
    """Every example once, in order; the last global batch padded with examples of weight 0."""
    global_batch_size = deployment.global_batch_size

    @_plain
    def pad(features, labels):
        missing = global_batch_size - tf.shape(labels)[0]
        weight = tf.pad(tf.ones_like(labels, tf.float32), [[0, missing]])

        def pad_one(tensor):
            padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
            return tf.ensure_shape(tf.pad(tensor, padding), [global_batch_size, *tensor.shape[1:]])

        features, labels = tf.nest.map_structure(pad_one, (features, labels))
        return {**features, "weight": tf.ensure_shape(weight, [global_batch_size])}, labels

    dataset = _in_order(files, parse).rebatch(global_batch_size)
    dataset = dataset.map(pad, num_parallel_calls=tf.data.AUTOTUNE)
    return _share_of_host(dataset, deployment).prefetch(tf.data.AUTOTUNE)


def predict(files, parse, deployment):
    """Every example once, in order; the last batch may be smaller. One host only."""
    return _in_order(files, parse).rebatch(deployment.batch_size).prefetch(tf.data.AUTOTUNE)


def _share_of_host(dataset, deployment):
    """Cuts global batches into those of the cores of one host."""
    first = deployment.host * deployment.host_batch_size

    @_plain
    def rows_of_host(*batch):
        rows = slice(first, first + deployment.host_batch_size)
        batch = tf.nest.map_structure(lambda tensor: tensor[rows], batch)
        return batch if len(batch) > 1 else batch[0]

    if deployment.num_hosts > 1:
        dataset = dataset.map(rows_of_host)
    if deployment.batches_per_step > 1:
        dataset = dataset.rebatch(deployment.batch_size, drop_remainder=True)
    return dataset


def _in_order(files, parse):
    dataset = tf.data.TFRecordDataset(files).batch(_PARSE_BATCH)
    return dataset.map(_plain(parse), num_parallel_calls=tf.data.AUTOTUNE)
