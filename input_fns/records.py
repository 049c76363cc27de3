"""Reads sharded TFRecord files: in order for evaluation, shuffled without end for training.

`parse` takes a batch of serialised examples (string `[n]`) to tensors `[n, ...]`, so that parsing
costs a few operations a batch and not a few an example.

In training every example travels with a row of random numbers (`draw`, `split_numbers`), which its
augmentation is a function of: what comes out depends on the seed alone, and not on threads, hosts
or cores.
"""

from __future__ import annotations

import contextlib
import math
import os

import numpy as np
import tensorflow as tf

from common.constants import DROPOUT_SEED
from input_fns import caching, examples, memory

# These functions hold no Python control flow; to look for some would delay every start.
plain = tf.autograph.experimental.do_not_convert

# Of the stages that compute: one for each core.
PARALLEL_CALLS = max(
    2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
)
_PARSE_BATCH = 1024
_SHUFFLE_BUFFER = 16384
_SHUFFLE_BYTES = 2**29
_PARALLEL_FILES = 16
# Batches that are read ahead, and the share of the available memory that they may fill.
_PREFETCH = 16
_PREFETCH_SHARE = 0.1
# A split of files up to this size is resumed in its exact order: a few seconds of reading.
REPLAYED_BYTES = 2 * 2**30
# Primes: no two orders of a run have one seed.
_SEEDS_OF_EPOCHS, _SEEDS_OF_STEPS = 7919, 104729
# Enough epochs for any training; a Dataset.range needs an end.
_ENDLESS = 2**40


def in_order(files, parse):
    """Every example once, in order, in batches of any size."""
    dataset = tf.data.TFRecordDataset(files).batch(_PARSE_BATCH)
    return dataset.map(plain(parse), num_parallel_calls=PARALLEL_CALLS)


def names(files):
    """Yields, for each record in order, the name of the file that it was made of; b"" of none."""
    feature = {"name": tf.io.FixedLenFeature([], tf.string, "")}
    graph = tf.Graph()
    with graph.as_default():
        dataset = in_order(files, lambda serialized: examples.parse(serialized, feature))
        dataset = untuned(dataset)
        batch = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()["name"]
    # Never the default session: who asks for names may have one of its own between two of them.
    with contextlib.closing(tf.compat.v1.Session(graph=graph)) as session:
        while True:
            try:
                yield from session.run(batch)
            except tf.errors.OutOfRangeError:
                return


def train_from_memory(dataset, num_examples, draw, deployment, seed, start_step=0):
    """Endless training batches of a split that fits in memory.

    Epoch e is the permutation that `(seed, e)` names, so the order depends on nothing else: a run
    that starts at `start_step` sees what an undisturbed run would have seen from there on, and the
    global batches are the same on any number of hosts and cores. A batch may span two epochs;
    within an epoch no example comes twice. Every host reads every file.

    Args:
      dataset: every example once, in batches of any size.
      num_examples: their number.
      draw: `(n, seed int32 [2]) -> float32 [n, numbers]`, random numbers for n examples.
      deployment: the host's share.
      seed: of the order and of the random numbers.
      start_step: global batches that an earlier run has used up.

    Returns:
      A data set of `(examples, numbers)` in batches of exactly `deployment.batch_size`.
    """
    start = start_step * deployment.global_batch_size
    first_epoch, offset = divmod(start, num_examples)

    @plain
    def permutation(epoch):
        order = tf.random.experimental.stateless_shuffle(tf.range(num_examples), [seed, epoch])
        return order[tf.where(tf.equal(epoch, first_epoch), offset, 0) :]

    order = tf.data.Dataset.range(first_epoch, _ENDLESS).map(permutation)
    order = order.rebatch(deployment.global_batch_size, drop_remainder=True)
    numbers = _random_numbers(draw, deployment.global_batch_size, seed, start_step)
    order = _share_of_host(tf.data.Dataset.zip((order, numbers)), deployment)
    # One element, the whole split; a batch is then one gather out of it.
    examples = dataset.rebatch(num_examples).cache().repeat()

    @plain
    def gather(examples, rows_and_numbers):
        rows, numbers = rows_and_numbers
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), examples), numbers

    return tf.data.Dataset.zip((examples, order)).map(gather, num_parallel_calls=PARALLEL_CALLS)


def train_from_files(
    files, counts, parse, draw, deployment, seed, start_step=0, record_bytes=1, cache_path=""
):
    """Endless training batches of a split of any size: shards and a window of records shuffled.

    Each host has as many files of its own as every other; of the files that are left it has every
    num_hosts-th record. Within an epoch no two hosts see the same example. The order of epoch e is
    a function of `(seed, e)`. A run that starts at another step reads and skips the records that
    the epoch has used up, and so sees what an undisturbed run would have seen; of a split above
    `REPLAYED_BYTES`, which would take long, it sees the examples in another order.

    Args:
      files: all shards of the split.
      counts: examples of each.
      parse: see above.
      draw: as in `train_from_memory`.
      deployment: the host's share.
      seed: of the order and of the random numbers.
      start_step: global batches that an earlier run has used up.
      record_bytes: of one record, which bounds the window.
      cache_path: a local file that the host's records are copied to as they are first read, by one
        of the processes that ask for it.

    Returns:
      A data set of `(examples, numbers)` in batches of exactly `deployment.batch_size`.
    """
    host, num_hosts = deployment.host, deployment.num_hosts
    first_shared = len(files) - len(files) % num_hosts
    own = list(range(host, first_shared, num_hosts))
    shared = list(range(first_shared, len(files)))
    # The first record of each goes to another host, so that files of few records leave none empty.
    shares = [(1, 0)] * len(own) + [(num_hosts, (host + i) % num_hosts) for i in range(len(shared))]
    own_files = [files[i] for i in own + shared]
    at_once = min(_PARALLEL_FILES, len(shares))
    copy = caching.claim(f"{cache_path}-{host}-of-{num_hosts}") if cache_path else ""
    window = max(1, min(_SHUFFLE_BUFFER, _SHUFFLE_BYTES // record_bytes))

    num_examples = sum(
        len(range(share[1], counts[i], share[0])) for i, share in zip(own + shared, shares)
    )
    first_epoch, offset, first_seed = 0, 0, seed
    if sum(counts) * record_bytes <= REPLAYED_BYTES:
        first_epoch, offset = divmod(start_step * deployment.host_batch_size, num_examples)
    else:
        first_seed += _SEEDS_OF_STEPS * start_step

    @plain
    def read_epoch(epoch):
        order_seed = first_seed + _SEEDS_OF_EPOCHS * epoch
        dataset = tf.data.Dataset.from_tensor_slices((own_files, np.array(shares, np.int64)))
        if not cache_path:  # a copy serves any seed
            dataset = dataset.shuffle(len(shares), seed=order_seed)
        dataset = dataset.interleave(
            plain(lambda file, share: tf.data.TFRecordDataset(file).shard(share[0], share[1])),
            cycle_length=at_once,
            num_parallel_calls=at_once,
            deterministic=True,
        )
        dataset = dataset.cache(copy) if copy else dataset
        return dataset.shuffle(window, seed=order_seed)

    dataset = tf.data.Dataset.range(first_epoch, _ENDLESS).flat_map(read_epoch)
    dataset = dataset.skip(offset).batch(deployment.batch_size, drop_remainder=True)

    @plain
    def parse_batch(serialized):
        def with_static_batch(tensor):  # a TPU takes no other; decode_raw loses it
            if not isinstance(tensor, tf.Tensor) or tensor.shape.rank is None:
                return tensor
            return tf.ensure_shape(tensor, [deployment.batch_size, *tensor.shape[1:]])

        return tf.nest.map_structure(with_static_batch, parse(serialized))

    dataset = dataset.map(parse_batch, num_parallel_calls=PARALLEL_CALLS)
    first = start_step * deployment.batches_per_step
    numbers = _random_numbers(draw, deployment.batch_size, seed + host, first)
    return tf.data.Dataset.zip((dataset, numbers))


def evaluate(dataset, deployment):
    """Every example once, in order; the last global batch padded with examples of weight 0.

    Args:
      dataset: `(features, labels)`, every example once, in batches of any size.
      deployment: the host's share.

    Returns:
      Batches of exactly `deployment.batch_size`; `features["weight"]` is float32 `[batch]`.
    """
    global_batch_size = deployment.global_batch_size

    @plain
    def pad(features, labels):
        present = tf.shape(labels)[0]
        missing = global_batch_size - present
        weight = tf.pad(tf.ones([present]), [[0, missing]])

        def pad_one(tensor):
            padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
            return tf.ensure_shape(tf.pad(tensor, padding), [global_batch_size, *tensor.shape[1:]])

        features, labels = tf.nest.map_structure(pad_one, (features, labels))
        return {**features, "weight": tf.ensure_shape(weight, [global_batch_size])}, labels

    dataset = dataset.rebatch(global_batch_size).map(pad, num_parallel_calls=PARALLEL_CALLS)
    return prefetched(_share_of_host(dataset, deployment))


def prefetched(dataset):
    """Returns the batches of `dataset` read ahead: two at least, and more if memory has room."""
    batch_bytes = sum(_num_bytes(spec) for spec in tf.nest.flatten(dataset.element_spec))
    room = int(memory.available_bytes() * _PREFETCH_SHARE)
    return untuned(dataset.prefetch(max(2, min(_PREFETCH, room // batch_bytes))))


def untuned(dataset):
    """Returns `dataset` without tf.data's tuner, which looks for numbers of parallel calls.

    They are set here instead. The tuner's thread can miss that a session closes, and holds it up
    until its next look: after half an hour of training a minute later.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _num_bytes(spec):
    """Bytes of a tensor, of each unknown dimension 1."""
    return math.prod(size or 1 for size in spec.shape) * spec.dtype.size


def split_numbers(numbers):
    """Returns the numbers that `draw` gave, and the features that a training batch gets with them.

    `dropout_seed`, int32 `[n, 2]`, is what a model may draw its own numbers from.
    """
    seeds = tf.cast(numbers[:, -2:] * 2.0**24, tf.int32)
    return numbers[:, :-2], {DROPOUT_SEED: seeds}


def _random_numbers(draw, count, seed, start):
    """Endless batches of random numbers; batch i is a function of `(seed, i)`.

    Those that `draw` gives, and two more: see `split_numbers`.
    """

    @plain
    def numbers(step):
        # Apart from the seeds of the permutations, and from each other.
        of_draw, of_seeds = (
            tf.random.experimental.stateless_fold_in([seed, stream], step) for stream in (1, 2)
        )
        seeds = tf.random.stateless_uniform([count, 2], of_seeds)
        return tf.concat([draw(count, of_draw), seeds], axis=1)

    return tf.data.Dataset.range(start, _ENDLESS).map(numbers)


def _share_of_host(dataset, deployment):
    """Cuts global batches into those of the cores of one host."""
    first = deployment.host * deployment.host_batch_size

    @plain
    def rows_of_host(*batch):
        rows = slice(first, first + deployment.host_batch_size)
        return tf.nest.map_structure(lambda tensor: tensor[rows], batch)

    if deployment.num_hosts > 1:
        dataset = dataset.map(rows_of_host)
    if deployment.batches_per_step > 1:
        dataset = dataset.rebatch(deployment.batch_size, drop_remainder=True)
    return dataset
