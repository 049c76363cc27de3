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
from tensorflow.python.data.ops import readers  # an interleave with a bounded read-ahead

from common.constants import DROPOUT_SEED, EXAMPLE_WEIGHT
from input_fns import DataError
from input_fns.core import caching, chunks, class_sampling, examples, memory

# The functions of this package need no AutoGraph; converting them delays every start.
no_autograph = tf.autograph.experimental.do_not_convert

# Parallel calls of the stages that compute: one per core.
PARALLEL_CALLS = max(
    2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
)
# Records that are parsed at once.
_PARSE_BATCH = 1024
_PARSE_BYTES = 2**24
_REPEAT_BYTES = 2**20  # of records that are repeated at once, of each chunk
_SHUFFLE_BUFFER = 16384
_SHUFFLE_BYTES = 2**29  # of two buffers: that of the next group fills early
# Chunks that are read at the same time in training, and those that are read ahead in order.
_PARALLEL_CHUNKS, _READ_AHEAD = 32, 8
# In training, a chunk has up to so many bytes or records, and a group those of _GROUP_CHUNKS such
# chunks. A resumed run reads at most one group again: a second or two.
CHUNK_BYTES, CHUNK_RECORDS = 2**26, 2**16
_GROUP_CHUNKS = 16
_READ_BUFFER = 2**18
# Batches to prefetch, and the fraction of the available memory that they may fill.
_PREFETCH = 16
_PREFETCH_SHARE = 0.1
# Batches of the window in which `group_lengths` sorts examples: more pad less and shuffle less.
_GROUPED_BATCHES = 50
# Name of the op that divides the elements between the workers of a tf.data service.
DIVIDED = "elements_of_a_data_service_worker"
# Epochs or steps; Dataset.range needs an end.
_ENDLESS = 2**40


def parallel_map(dataset, function):
    """Returns `dataset.map(function)` in parallel, in order, without AutoGraph."""
    return dataset.map(no_autograph(function), num_parallel_calls=PARALLEL_CALLS)


def in_order(files, parse, record_bytes, shards=(), host_shard=None):
    """Returns `parse` of all records, in order, in batches of any size.

    Args:
      files: paths.
      parse: see the module's docstring.
      record_bytes: mean size of a record, before or after `parse`; bounds the memory of a batch.
      shards: `ShardInfo` of each file. Those with an index are read in parallel.
      host_shard: `input_context.HostShard`: only the host's rows of each global batch are parsed;
        None for all rows.
    """
    size = _parse_batch(record_bytes)
    cut = chunks.cut(shards, _PARSE_BYTES, CHUNK_RECORDS) if shards else chunks.of_files(files)
    buffered = max(1, min(CHUNK_RECORDS, _PARSE_BYTES // record_bytes) // size)  # a chunk

    @no_autograph
    def read(chunk):
        return _read_chunk(tf.gather(files, chunk[0]), *_columns(chunk)[1:]).batch(size)

    dataset = tf.data.Dataset.from_tensor_slices(np.array(cut, np.int64))
    dataset = select_host_rows(_concatenate(dataset, read, _READ_AHEAD, buffered), host_shard)
    return parallel_map(dataset, parse)


def names(files, record_bytes, shards=()):
    """Yields the name of the source file of each record, in order; b"" if it has none."""
    feature = {"name": tf.io.FixedLenFeature([], tf.string, "")}
    parse = functools.partial(examples.parse, features=feature)
    for batch in iterate(lambda: in_order(files, parse, record_bytes, shards)):
        yield from batch["name"]


def select_host_rows(dataset, host_shard):
    """Returns the host's rows of each global batch, in batches of any size but 0.

    Args:
      dataset: nested tensors `[n, ...]`: every example once, in order, in batches of any size.
      host_shard: `input_context.HostShard`; None for all rows.
    """
    if not host_shard or host_shard.num_hosts == 1:
        return dataset

    @no_autograph
    def select(first, batch):
        count = tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]
        hosts = (first + tf.range(count)) // host_shard.host_batch_size % host_shard.num_hosts
        rows = tf.where(tf.equal(hosts, host_shard.host))[:, 0]
        return first + count, tf.nest.map_structure(lambda t: tf.gather(t, rows), batch)

    @no_autograph
    def has_rows(*batch):
        return tf.shape(tf.nest.flatten(batch)[0])[0] > 0

    return dataset.scan(np.int64(0), select).filter(has_rows)


def _parse_batch(record_bytes):
    """Returns the number of records that are parsed at once."""
    return max(1, min(_PARSE_BATCH, _PARSE_BYTES // record_bytes))


def _columns(chunk):
    """Returns the values of int64 `[5]`; not `tf.unstack`, see `_read_chunk`."""
    return [chunk[i] for i in range(len(chunks.Chunk._fields))]


def _read_chunk(path, offset, end, skip, take):
    """Returns the serialized records of a chunk.

    Args: scalar tensors, see `chunks.Chunk`. TensorFlow 2.15 crashes in `noop_elimination` if
      `skip` or `take` is not the first output of an op.
    """
    del end
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path], compression_type="", buffer_size=_READ_BUFFER, byte_offsets=[offset]
    )
    dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    return dataset.skip(skip).take(take)


def _concatenate(dataset, read, read_ahead, buffered):
    """Returns the elements of the datasets `read(*element)` of each element, in order.

    `read_ahead` next datasets are read at the same time, with `buffered` elements of each.
    """
    return readers.ParallelInterleaveDataset(
        dataset,
        read,
        cycle_length=1,
        block_length=1,
        sloppy=False,
        buffer_output_elements=buffered,
        prefetch_input_elements=read_ahead,
    )


def from_files(files, transform, batch_size: int) -> tf.data.Dataset:
    """Returns batches of files that are not in a split, in order; the final one may be smaller.

    Args:
      files: function that returns an iterator of bytes.
      transform: function from a file, a string scalar, to features.
      batch_size: files per batch.
    """
    dataset = tf.data.Dataset.from_generator(files, output_signature=tf.TensorSpec([], tf.string))
    return with_options(parallel_map(dataset, transform).batch(batch_size).prefetch(2))


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
    dataset, num_examples, draw, host_shard, seed, start_step=0, group_lengths=None, sampling=None
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
      sampling: None, or `(classes, exponent)`: a function from a batch of `dataset` to the classes,
        int `[n]`, and the exponent of `class_sampling.order`, which then is the order of an epoch
        of `num_examples`.

    Returns:
      `tf.data.Dataset` of `(examples, numbers)` in batches of exactly `host_shard.batch_size`.
    """
    start = start_step * host_shard.global_batch_size
    first_epoch, offset = divmod(start, num_examples)

    @no_autograph
    def columns(*batch):
        found = {"lengths": group_lengths(*batch)} if group_lengths else {}
        return {**found, "classes": sampling[0](*batch)} if sampling else found

    @no_autograph
    def order_of(epoch, columns):
        order_seed = [seed, epoch]
        if sampling:
            order = class_sampling.order(columns["classes"], num_examples, sampling[1], order_seed)
        else:
            order = tf.random.experimental.stateless_shuffle(tf.range(num_examples), order_seed)
        if group_lengths:
            lengths = columns["lengths"]
            order = _grouped(order, lengths, host_shard.global_batch_size, epoch, order_seed)
        return order[tf.where(tf.equal(epoch, first_epoch), offset, 0) :]

    order = tf.data.Dataset.range(first_epoch, _ENDLESS)
    if group_lengths or sampling:
        of_examples = dataset.map(columns).rebatch(num_examples).cache().repeat()
        order = tf.data.Dataset.zip((order, of_examples)).map(order_of)
    else:
        order = order.map(lambda epoch: order_of(epoch, {}))
    order = order.rebatch(host_shard.global_batch_size, drop_remainder=True)
    numbers = tf.data.Dataset.range(start_step, _ENDLESS)
    numbers = _random_numbers(numbers, draw, host_shard.global_batch_size, seed)
    order = _host_rows(tf.data.Dataset.zip((order, numbers)), host_shard)
    order = _of_worker(order, host_shard)
    # One element, the whole split: a batch is one gather from it.
    examples = dataset.rebatch(num_examples).cache().repeat()

    def gather(examples, rows_and_numbers):
        rows, numbers = rows_and_numbers
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), examples), numbers

    return parallel_map(tf.data.Dataset.zip((examples, order)), gather)


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
    files,
    shards,
    parse,
    draw,
    host_shard,
    seed,
    start_step=0,
    record_bytes=1,
    copies="",
    sampling=None,
):
    """Returns endless training batches of a split of any size, through a shuffle buffer.

    Each host reads its own range of the records. Epoch e divides the chunks of this range into
    groups of about 1 GiB, each with chunks from all parts of the range. The chunks of a group are
    interleaved and shuffled in a buffer, and the buffer is emptied before the next group. So the
    order is a function of `(seed, e)`, and a run that starts at `start_step` skips whole groups by
    their sizes: it continues exactly like an uninterrupted run.

    Args:
      files: paths of all shards of the split.
      shards: `ShardInfo` of each file.
      parse: see the module's docstring.
      draw: as in `train_from_memory`.
      host_shard: `input_context.HostShard`.
      seed: seed of the order and of the random numbers.
      start_step: global batches to skip, those of the run that is resumed.
      record_bytes: size of one record; bounds the shuffle buffer.
      copies: local folder for copies of the chunks that the host reads; "" for no copies.
      sampling: None, or `(classes, exponent)`: the classes of all records, int `[total]`, and the
        exponent of `class_sampling`, which leaves out or repeats records. The epochs of all hosts
        together have its shares of the classes.

    Returns:
      `tf.data.Dataset` of `(examples, numbers)` in batches of exactly `host_shard.batch_size`.

    Raises:
      DataError: the split has too few records for this number of hosts.
    """
    host, num_hosts = host_shard.host, host_shard.num_hosts
    total = sum(shard.num_examples for shard in shards)
    start, stop = chunks.host_range(total, host, num_hosts)
    size, repeats = stop - start, None
    if sampling:
        classes, rates = sampling[0], class_sampling.rates(*sampling)
        start, stop, size = class_sampling.host_part(classes, rates, host, num_hosts)
        # The smallest dtype: a constant of the graph.
        classes = classes[start:stop].astype(np.min_scalar_type(classes.max()))

        def repeats(epoch):
            stream = tf.random.experimental.stateless_fold_in([seed, epoch], 2)
            return class_sampling.repeats(classes, rates, size, stream)

    if start == stop:
        raise DataError(
            f"host {host} of {num_hosts} gets none of the {total} records of the split. "
            "Use fewer hosts, more records, or --cache=memory"
        )
    own = chunks.cut(shards, CHUNK_BYTES, CHUNK_RECORDS, start, stop)

    @no_autograph
    def read(chunk):
        shard, offset, end, skip, take = _columns(chunk)
        path = tf.gather(files, shard)
        if copies:
            path, offset = caching.local_copy(path, offset, end, shard, copies)
        return _read_chunk(path, offset, end, skip, take)

    first_epoch, offset = divmod(start_step * host_shard.host_batch_size, size)
    dataset = _shuffled(own, read, seed, first_epoch, offset, record_bytes, repeats)
    dataset = dataset.batch(host_shard.batch_size, drop_remainder=True)
    dataset = _of_worker(dataset, host_shard)

    def parse_batch(serialized):
        def with_static_batch(tensor):  # a TPU needs it; decode_raw loses it
            if not isinstance(tensor, tf.Tensor) or tensor.shape.rank is None:
                return tensor
            return tf.ensure_shape(tensor, [host_shard.batch_size, *tensor.shape[1:]])

        return tf.nest.map_structure(with_static_batch, parse(serialized))

    dataset = parallel_map(dataset, parse_batch)
    first = start_step * host_shard.batches_per_step
    numbers = _of_worker(tf.data.Dataset.range(first, _ENDLESS), host_shard)
    numbers = _random_numbers(numbers, draw, host_shard.batch_size, seed + host)
    return tf.data.Dataset.zip((dataset, numbers))


def _shuffled(own, read, seed, first_epoch, offset, record_bytes, repeats):
    """Returns the records of the `Chunk`s `own` in endless epochs; see `train_from_files`.

    `read` is a function from int64 `[5]`, a `Chunk`, to a dataset of records, `offset` the number
    of examples of the first epoch to skip, and `repeats` None, or a function from the epoch to how
    often each record of `own` is in it.
    """
    num_chunks = len(own)
    num_groups = _num_groups(own)
    in_group = -(-num_chunks // num_groups)
    none = chunks.Chunk(0, 0, 0, 0, 0)  # fills the last part
    table = np.array([*own, none], np.int64)
    ends = np.cumsum(table[:, -1])
    firsts = ends - table[:, -1]
    at_once = min(in_group, _PARALLEL_CHUNKS)
    # Equal parts of the split, in order: a group has one chunk of each.
    parts = np.minimum(np.arange(in_group * num_groups), num_chunks).reshape(in_group, num_groups)
    shuffle_buffer = max(1, min(_SHUFFLE_BUFFER, _SHUFFLE_BYTES // 2 // record_bytes))

    @no_autograph
    def groups(epoch):
        keys = tf.random.stateless_uniform([2, *parts.shape], [seed, epoch])
        order = tf.gather(parts, tf.argsort(keys[0], axis=1), batch_dims=1)
        within = tf.argsort(tf.transpose(keys[1]), axis=1)
        order = tf.gather(tf.transpose(order), within, batch_dims=1)
        times = () if repeats is None else (repeats(epoch),)
        of_chunks = table[:, -1]
        if times:
            totals = tf.concat([[0], tf.cumsum(tf.cast(times[0], tf.int64))], axis=0)
            of_chunks = tf.gather(totals, ends) - tf.gather(totals, firsts)
        sizes = tf.reduce_sum(tf.gather(of_chunks, order), axis=1)
        starts = tf.cumsum(sizes, exclusive=True)
        skipped = tf.where(tf.equal(epoch, first_epoch), np.int64(offset), 0)
        skips = tf.clip_by_value(skipped - starts, 0, sizes)
        stream = tf.random.experimental.stateless_fold_in([seed, epoch], 1)
        seeds = tf.random.stateless_uniform(tf.shape(sizes), stream, None, None, tf.int64)
        rest = tf.where(skips < sizes)[:, 0]
        elements = tf.nest.map_structure(lambda t: tf.gather(t, rest), (order, skips, seeds))
        dataset = tf.data.Dataset.from_tensor_slices(elements)
        return dataset.map(no_autograph(lambda *element: (*element, *times)))

    @no_autograph
    def read_group(numbers, skip, order_seed, *times):
        group = tf.boolean_mask(numbers, numbers < num_chunks)

        def read_chunk(chunk, first):
            dataset = read(chunk)
            if times:
                dataset = _repeated(dataset, times[0][first : first + chunk[-1]], record_bytes)
            return dataset

        dataset = tf.data.Dataset.from_tensor_slices(
            (tf.gather(table, group), tf.gather(firsts, group))
        )
        dataset = dataset.interleave(
            no_autograph(read_chunk),
            cycle_length=at_once,
            num_parallel_calls=at_once,
            deterministic=True,
        )
        return dataset.shuffle(shuffle_buffer, seed=order_seed).skip(tf.identity(skip))

    # The buffer of the next group fills while that of this group empties.
    dataset = tf.data.Dataset.range(first_epoch, _ENDLESS).flat_map(groups)
    return _concatenate(dataset, read_group, 1, _parse_batch(record_bytes))


def _repeated(dataset, times, record_bytes):
    """Returns each record as often as `times`, int32 `[n]`, says."""
    size = max(1, min(_PARSE_BATCH, _REPEAT_BYTES // record_bytes))
    dataset = tf.data.Dataset.zip((dataset, tf.data.Dataset.from_tensor_slices(times))).batch(size)
    dataset = dataset.map(
        no_autograph(
            lambda batch, times: tf.gather(batch, tf.repeat(tf.range(tf.size(times)), times))
        )
    )
    return dataset.unbatch()


def _num_groups(own):
    """Returns the number of groups of chunks: of `_GROUP_CHUNKS` chunks, or more small ones."""
    num_bytes = sum(chunk.end - chunk.offset for chunk in own)
    full = max(
        num_bytes / (CHUNK_BYTES * _GROUP_CHUNKS),
        sum(chunk.take for chunk in own) / (CHUNK_RECORDS * _GROUP_CHUNKS),
    )
    return math.ceil(min(full, len(own) / _GROUP_CHUNKS))


def pad_final_batch(dataset, host_shard, num_examples):
    """Returns a host's rows of every global batch, the final one padded with weight 0.

    All hosts get the same number of batches: those of a host may be padding only.

    Args:
      dataset: `(features, labels)` in batches of any size, the host's rows in order; see
        `select_host_rows`. Features are a dict, labels any nested structure; all tensors are
        `[n, ...]`.
      host_shard: `input_context.HostShard`.
      num_examples: number of examples of all hosts.

    Returns:
      `tf.data.Dataset` in batches of exactly `host_shard.batch_size`. `features["weight"]`, float32
      `[batch]`, is 1 for an example and 0 for padding; padding is zeros.
    """
    batch_size = host_shard.batch_size
    steps = -(-num_examples // host_shard.global_batch_size)

    def pad(features, labels):
        present = tf.shape(tf.nest.flatten((features, labels))[0])[0]
        missing = batch_size - present

        def pad_one(tensor):
            padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
            return tf.ensure_shape(tf.pad(tensor, padding), [batch_size, *tensor.shape[1:]])

        weighted = {**features, EXAMPLE_WEIGHT: tf.ones([present])}
        return tf.nest.map_structure(pad_one, (weighted, labels))

    dataset = parallel_map(dataset.rebatch(batch_size), pad)
    # A dynamic shape of a batch of padding: the smallest that no model rejects.
    padding = tf.data.Dataset.range(_ENDLESS).map(
        no_autograph(
            lambda _: tf.nest.map_structure(
                lambda spec: tf.zeros([size or 1 for size in spec.shape], spec.dtype),
                dataset.element_spec,
            )
        )
    )
    return prefetched(dataset.concatenate(padding).take(steps * host_shard.batches_per_step))


def prefetched(dataset):
    """Returns `dataset` with a prefetch of 2 to 16 batches, as available memory permits."""
    batch_bytes = sum(
        math.prod(size or 1 for size in spec.shape) * spec.dtype.size  # unknown sizes count as 1
        for spec in tf.nest.flatten(dataset.element_spec)
    )
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


def split_numbers(numbers):
    """Splits float32 `[n, numbers + 2]` into the numbers of `draw` and the model's seeds.

    Returns:
      float32 `[n, numbers]`, and `{"dropout_seed": int32 [n, 2]}`, the features from which a model
      draws its own random numbers.
    """
    seeds = tf.cast(numbers[:, -2:] * 2.0**24, tf.int32)
    return numbers[:, :-2], {DROPOUT_SEED: seeds}


def _random_numbers(steps, draw, count, seed):
    """Returns batches of `draw`'s numbers and two more; that of step i depends on `(seed, i)`."""

    @no_autograph
    def numbers(step):
        # Streams that differ from the permutations' and from each other.
        draw_seed, model_seed = (
            tf.random.experimental.stateless_fold_in([seed, stream], step) for stream in (1, 2)
        )
        seeds = tf.random.stateless_uniform([count, 2], model_seed)
        return tf.concat([draw(count, draw_seed), seeds], axis=1)

    return steps.map(numbers)


def _of_worker(dataset, host_shard):
    """Returns the elements of a worker of a tf.data service, before the stages that cost time."""
    if host_shard.num_workers == 1:
        return dataset
    return dataset.shard(host_shard.num_workers, host_shard.worker, name=DIVIDED)


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
