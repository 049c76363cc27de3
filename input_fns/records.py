"""Reads sharded TFRecord files: in order for evaluation, shuffled and repeated for training.

`parse` maps a batch of serialized examples (string `[n]`) to tensors `[n, ...]`: parsing costs a
few ops per batch instead of a few per example.

In training every example travels with a row of random numbers (`draw`, `split_numbers`). Its
augmentation is a function of this row, so the result depends on the seed only and not on threads,
hosts or cores.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os

import numpy as np
import tensorflow as tf

from common.constants import DROPOUT_SEED, EXAMPLE_WEIGHT
from input_fns import DataError, caching, examples, memory

# The functions of this package need no AutoGraph; converting them delays every start.
no_autograph = tf.autograph.experimental.do_not_convert

# Parallel calls of the stages that compute: one per core.
PARALLEL_CALLS = max(
    2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
)
# Records that are parsed at once.
_PARSE_BATCH = 1024
_PARSE_BYTES = 2**24
_SHUFFLE_BUFFER = 16384
_SHUFFLE_BYTES = 2**29
_PARALLEL_FILES = 16
# Batches to prefetch, and the fraction of the available memory that they may fill.
_PREFETCH = 16
_PREFETCH_SHARE = 0.1
# Batches of the window in which `group_lengths` sorts examples: more pad less and shuffle less.
_GROUPED_BATCHES = 50
# Training from files resumes in the exact order up to this split size: seconds of reading.
REPLAYED_BYTES = 2 * 2**30
# Primes: no two orders of a run share a seed.
_SEEDS_OF_EPOCHS, _SEEDS_OF_STEPS = 7919, 104729
# Epochs or steps; Dataset.range needs an end.
_ENDLESS = 2**40


def in_order(files, parse, record_bytes):
    """Returns `parse` of all records, in order, in batches of any size.

    Args:
      files: paths.
      parse: see the module's docstring.
      record_bytes: mean size of a record; bounds the memory of a batch.
    """
    size = max(1, min(_PARSE_BATCH, _PARSE_BYTES // record_bytes))
    dataset = tf.data.TFRecordDataset(files).batch(size)
    return dataset.map(no_autograph(parse), num_parallel_calls=PARALLEL_CALLS)


def names(files, record_bytes):
    """Yields the name of the source file of each record, in order; b"" if it has none."""
    feature = {"name": tf.io.FixedLenFeature([], tf.string, "")}
    parse = functools.partial(examples.parse, features=feature)
    for batch in iterate(lambda: in_order(files, parse, record_bytes)):
        yield from batch["name"]


def from_files(files, transform, batch_size: int) -> tf.data.Dataset:
    """Returns batches of files that are not in a split, in order; the final one may be smaller.

    Args:
      files: function that returns an iterator of bytes.
      transform: function from a file, a string scalar, to features.
      batch_size: files per batch.
    """
    dataset = tf.data.Dataset.from_generator(files, output_signature=tf.TensorSpec([], tf.string))
    dataset = dataset.map(transform, num_parallel_calls=PARALLEL_CALLS)
    return with_options(dataset.batch(batch_size).prefetch(2))


def iterate(dataset_fn):
    """Yields each element of `dataset_fn()` as NumPy arrays, from a separate graph and session.

    The caller may have a default session, and may use it between two elements.
    """
    graph = tf.Graph()
    with graph.as_default():
        dataset = with_options(dataset_fn().prefetch(1))
        element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
    with contextlib.closing(tf.compat.v1.Session(graph=graph)) as session:
        while True:
            try:
                yield session.run(element)
            except tf.errors.OutOfRangeError:
                return


def train_from_memory(
    dataset, num_examples, draw, host_shard, seed, start_step=0, group_lengths=None
):
    """Returns endless training batches of a split that fits in memory.

    The order of epoch e is a permutation seeded with `(seed, e)`: a run that starts at `start_step`
    continues exactly like an uninterrupted run, and the global batches are the same on any number
    of hosts and cores. Each epoch has every example once; a batch may span two epochs. Every host
    reads every file.

    Args:
      dataset: every example once, in batches of any size.
      num_examples: number of examples.
      draw: `(n, seed int32 [2]) -> float32 [n, numbers]`, random numbers for n examples.
      host_shard: `input_context.HostShard`.
      seed: seed of the order and of the random numbers.
      start_step: global batches to skip, those of the run that is resumed.
      group_lengths: None, or a function from a batch of `dataset` to lengths, int32 `[n]`. Examples
        of similar length then share a global batch: 50 batches of the shuffled epoch are sorted by
        length and cut again, and the new batches are shuffled.

    Returns:
      `tf.data.Dataset` of `(examples, numbers)` in batches of exactly `host_shard.batch_size`.
    """
    start = start_step * host_shard.global_batch_size
    first_epoch, offset = divmod(start, num_examples)

    @no_autograph
    def permutation(epoch, *lengths):
        order_seed = [seed, epoch]
        order = tf.random.experimental.stateless_shuffle(tf.range(num_examples), order_seed)
        if lengths:
            order = _grouped(order, *lengths, host_shard.global_batch_size, epoch, order_seed)
        return order[tf.where(tf.equal(epoch, first_epoch), offset, 0) :]

    order = tf.data.Dataset.range(first_epoch, _ENDLESS)
    if group_lengths:
        lengths = dataset.map(no_autograph(group_lengths)).rebatch(num_examples).cache().repeat()
        order = tf.data.Dataset.zip((order, lengths))
    order = order.map(permutation)
    order = order.rebatch(host_shard.global_batch_size, drop_remainder=True)
    numbers = _random_numbers(draw, host_shard.global_batch_size, seed, start_step)
    order = _host_rows(tf.data.Dataset.zip((order, numbers)), host_shard)
    # One element, the whole split: a batch is one gather from it.
    examples = dataset.rebatch(num_examples).cache().repeat()

    @no_autograph
    def gather(examples, rows_and_numbers):
        rows, numbers = rows_and_numbers
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), examples), numbers

    return tf.data.Dataset.zip((examples, order)).map(gather, num_parallel_calls=PARALLEL_CALLS)


def _grouped(order, lengths, batch_size, epoch, seed):
    """Returns `order`, int32 `[n]`, with examples of similar length in the same batches."""
    num_examples = order.shape[0]
    # Batches may span epochs: the first examples complete a batch of the epoch before.
    first = tf.cast(-epoch * num_examples % batch_size, tf.int32)
    num_batches = tf.maximum(num_examples - first, 0) // batch_size
    end = first + num_batches * batch_size
    grouped = order[first:end]
    window = tf.range(num_batches * batch_size) // (_GROUPED_BATCHES * batch_size)
    # Stable sorts, by length and then by window: equal lengths stay shuffled.
    by_length = tf.argsort(tf.gather(lengths, grouped), stable=True)
    by_length = tf.gather(by_length, tf.argsort(tf.gather(window, by_length), stable=True))
    batches = tf.reshape(tf.gather(grouped, by_length), [num_batches, batch_size])
    batches = tf.random.experimental.stateless_shuffle(batches, seed)
    return tf.concat([order[:first], tf.reshape(batches, [-1]), order[end:]], axis=0)


def train_from_files(
    files, counts, parse, draw, host_shard, seed, start_step=0, record_bytes=1, cache_path=""
):
    """Returns endless training batches of a split of any size, through a shuffle buffer.

    Each host reads its own files, equally many per host, and every num_hosts-th record of the
    remaining files. Within an epoch no two hosts read the same example. The order of epoch e is a
    function of `(seed, e)`. A run that starts at `start_step` skips the records that the epoch has
    consumed and continues exactly like an uninterrupted run; a split above `REPLAYED_BYTES`, where
    skipping would take long, continues in a different order.

    Args:
      files: paths of all shards of the split.
      counts: number of examples of each shard.
      parse: see the module's docstring.
      draw: as in `train_from_memory`.
      host_shard: `input_context.HostShard`.
      seed: seed of the order and of the random numbers.
      start_step: global batches to skip, those of the run that is resumed.
      record_bytes: size of one record; bounds the shuffle buffer.
      cache_path: prefix of a local file that one process copies the host's records to during the
        first epoch; "" for no copy.

    Returns:
      `tf.data.Dataset` of `(examples, numbers)` in batches of exactly `host_shard.batch_size`.

    Raises:
      DataError: the split has too few records for this number of hosts.
    """
    host, num_hosts = host_shard.host, host_shard.num_hosts
    first_shared = len(files) - len(files) % num_hosts
    own = list(range(host, first_shared, num_hosts))
    shared = list(range(first_shared, len(files)))
    # Rotate the first record over the hosts: no host is left without records of small files.
    shares = [(1, 0)] * len(own) + [(num_hosts, (host + i) % num_hosts) for i in range(len(shared))]
    own_files = [files[i] for i in own + shared]
    at_once = min(_PARALLEL_FILES, len(shares))
    copy = caching.claim(f"{cache_path}-{host}-of-{num_hosts}") if cache_path else ""
    shuffle_buffer = max(1, min(_SHUFFLE_BUFFER, _SHUFFLE_BYTES // record_bytes))

    num_examples = sum(
        len(range(share[1], counts[i], share[0])) for i, share in zip(own + shared, shares)
    )
    if not num_examples:
        raise DataError(
            f"host {host} of {num_hosts} gets no record of the {len(files)} files of the split. "
            "Use fewer hosts, more records, or --cache=memory"
        )
    first_epoch, offset, first_seed = 0, 0, seed
    if sum(counts) * record_bytes <= REPLAYED_BYTES:
        first_epoch, offset = divmod(start_step * host_shard.host_batch_size, num_examples)
    else:
        first_seed += _SEEDS_OF_STEPS * start_step

    @no_autograph
    def read_epoch(epoch):
        order_seed = first_seed + _SEEDS_OF_EPOCHS * epoch
        dataset = tf.data.Dataset.from_tensor_slices((own_files, np.array(shares, np.int64)))
        if not cache_path:  # a copy must not depend on the seed
            dataset = dataset.shuffle(len(shares), seed=order_seed)
        dataset = dataset.interleave(
            no_autograph(
                lambda file, share: tf.data.TFRecordDataset(file).shard(share[0], share[1])
            ),
            cycle_length=at_once,
            num_parallel_calls=at_once,
            deterministic=True,
        )
        dataset = dataset.cache(copy) if copy else dataset
        return dataset.shuffle(shuffle_buffer, seed=order_seed)

    dataset = tf.data.Dataset.range(first_epoch, _ENDLESS).flat_map(read_epoch)
    dataset = dataset.skip(offset).batch(host_shard.batch_size, drop_remainder=True)

    @no_autograph
    def parse_batch(serialized):
        def with_static_batch(tensor):  # a TPU needs it; decode_raw loses it
            if not isinstance(tensor, tf.Tensor) or tensor.shape.rank is None:
                return tensor
            return tf.ensure_shape(tensor, [host_shard.batch_size, *tensor.shape[1:]])

        return tf.nest.map_structure(with_static_batch, parse(serialized))

    dataset = dataset.map(parse_batch, num_parallel_calls=PARALLEL_CALLS)
    first = start_step * host_shard.batches_per_step
    numbers = _random_numbers(draw, host_shard.batch_size, seed + host, first)
    return tf.data.Dataset.zip((dataset, numbers))


def pad_final_batch(dataset, host_shard):
    """Returns every example once, in order, the final global batch padded with weight 0.

    Args:
      dataset: `(features, labels)` in batches of any size. Features are a dict, labels any nested
        structure; all tensors are `[n, ...]`.
      host_shard: `input_context.HostShard`.

    Returns:
      `tf.data.Dataset` in batches of exactly `host_shard.batch_size`. `features["weight"]`, float32
      `[batch]`, is 1 for an example and 0 for padding; padding is zeros.
    """
    global_batch_size = host_shard.global_batch_size

    @no_autograph
    def pad(features, labels):
        present = tf.shape(tf.nest.flatten((features, labels))[0])[0]
        missing = global_batch_size - present

        def pad_one(tensor):
            padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
            return tf.ensure_shape(tf.pad(tensor, padding), [global_batch_size, *tensor.shape[1:]])

        weighted = {**features, EXAMPLE_WEIGHT: tf.ones([present])}
        return tf.nest.map_structure(pad_one, (weighted, labels))

    dataset = dataset.rebatch(global_batch_size).map(pad, num_parallel_calls=PARALLEL_CALLS)
    return prefetched(_host_rows(dataset, host_shard))


def prefetched(dataset):
    """Returns `dataset` with a prefetch of 2 to 16 batches, as available memory permits."""
    batch_bytes = sum(_num_bytes(spec) for spec in tf.nest.flatten(dataset.element_spec))
    room = int(memory.available_bytes() * _PREFETCH_SHARE)
    return with_options(dataset.prefetch(max(2, min(_PREFETCH, room // batch_bytes))))


def with_options(dataset):
    """Returns `dataset`, without autotuning, that starts reading when its iterator is initialized.

    The autotuning thread can miss that a session closes and delays this until it wakes: a minute
    after half an hour of training; the parallel calls are set explicitly. Reading early fills a
    cache or a shuffle buffer while TensorFlow optimizes the graph of the first step.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_warm_start = True
    return dataset.with_options(options)


def _num_bytes(spec):
    """Returns the bytes of a tensor; unknown dimensions count as 1."""
    return math.prod(size or 1 for size in spec.shape) * spec.dtype.size


def split_numbers(numbers):
    """Splits float32 `[n, numbers + 2]` into the numbers of `draw` and the model's seeds.

    Returns:
      float32 `[n, numbers]`, and `{"dropout_seed": int32 [n, 2]}`, the features from which a model
      draws its own random numbers.
    """
    seeds = tf.cast(numbers[:, -2:] * 2.0**24, tf.int32)
    return numbers[:, :-2], {DROPOUT_SEED: seeds}


def _random_numbers(draw, count, seed, start):
    """Returns endless batches of `draw`'s numbers and two more; batch i depends on `(seed, i)`."""

    @no_autograph
    def numbers(step):
        # Streams that differ from the permutations' and from each other.
        draw_seed, model_seed = (
            tf.random.experimental.stateless_fold_in([seed, stream], step) for stream in (1, 2)
        )
        seeds = tf.random.stateless_uniform([count, 2], model_seed)
        return tf.concat([draw(count, draw_seed), seeds], axis=1)

    return tf.data.Dataset.range(start, _ENDLESS).map(numbers)


def _host_rows(dataset, host_shard):
    """Returns the per-core batches of one host, cut from global batches."""
    first = host_shard.host * host_shard.host_batch_size

    @no_autograph
    def select(*batch):
        rows = slice(first, first + host_shard.host_batch_size)
        return tf.nest.map_structure(lambda tensor: tensor[rows], batch)

    if host_shard.num_hosts > 1:
        dataset = dataset.map(select)
    if host_shard.batches_per_step > 1:
        dataset = dataset.rebatch(host_shard.batch_size, drop_remainder=True)
    return dataset
