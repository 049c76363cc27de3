"""Oversampling by class: shares of the classes, equal use of examples, hosts, resumed runs."""

import numpy as np
import pytest
import tensorflow as tf

from input_fns.core import class_sampling, records
from input_fns.core.dataset_parts import ShardInfo
from input_fns.core.input_context import HostShard

COUNTS = np.array([40, 0, 7, 2])
SIZE = int(COUNTS.sum())
LABELS = np.random.default_rng(1).permutation(np.repeat(np.arange(4), COUNTS))


def epochs(session, exponent, count):
    """The examples of `count` epochs, int `[count, SIZE]`."""
    number = tf.compat.v1.placeholder(tf.int64, [])
    order = class_sampling.order(
        tf.constant(LABELS), SIZE, exponent, [tf.constant(5, tf.int64), number]
    )
    return np.stack([session.run(order, {number: i}) for i in range(count)])


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.9])
def test_classes_have_their_shares_of_each_epoch(session, exponent):
    weights = np.where(COUNTS, COUNTS.astype(float) ** exponent, 0)
    expected = SIZE * weights / weights.sum()
    found = [np.bincount(LABELS[epoch], minlength=4) for epoch in epochs(session, exponent, 200)]
    assert np.abs(found - expected).max() < 1  # rounded up or down
    # The mean of 200 numbers that are rounded at random.
    assert np.abs(np.mean(found, axis=0) - expected).max() < 5 * 0.5 / 200**0.5


def test_examples_of_a_class_are_equally_frequent(session):
    of_epochs = epochs(session, 0.0, 100)
    for epoch in of_epochs:
        counts = np.bincount(epoch, minlength=SIZE)
        for label in (0, 2, 3):
            assert np.ptp(counts[label == LABELS]) <= 1
    # Over the epochs, too: an epoch has 16 or 17 of the 40 frequent examples.
    frequent = np.bincount(of_epochs.ravel(), minlength=SIZE)[LABELS == 0]
    assert 15 < frequent.min() <= frequent.max() < 70


def test_epochs_are_shuffled_and_differ(session):
    first, second = LABELS[epochs(session, 0.0, 2)]
    assert not np.array_equal(first, second)
    assert (np.diff(first) < 0).any()


def batches(session, host_shard, count, start_step=0):
    blocks = tf.data.Dataset.range(SIZE).batch(9)
    sampling = (lambda numbers: tf.gather(LABELS, numbers)), 0.0
    dataset = records.train_from_memory(
        blocks,
        SIZE,
        lambda count, seed: tf.zeros([count, 1]),
        host_shard,
        1,
        start_step,
        sampling=sampling,
    )
    element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()[0]
    return np.stack([session.run(element) for _ in range(count)])


@pytest.mark.slow(cost=0.1)
def test_global_batches_are_the_same_on_any_hosts_and_cores(session):
    whole = batches(session, HostShard(12), 9)
    hosts = [batches(session, HostShard(3, 2, host, 2), 18).reshape(9, 6) for host in range(2)]
    np.testing.assert_array_equal(np.concatenate(hosts, axis=1), whole)
    counts = np.bincount(LABELS[whole.ravel()], minlength=4)
    assert np.abs(counts - 36 * (COUNTS > 0)).max() <= 6  # 2.2 epochs


@pytest.mark.slow(cost=0.1)
def test_a_resumed_run_continues(session):
    whole = batches(session, HostShard(12), 9)
    for start_step in (2, 7):
        rest = batches(session, HostShard(12), 9 - start_step, start_step)
        np.testing.assert_array_equal(rest, whole[start_step:])


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_repeats_are_those_of_an_order(session, exponent):
    rates = class_sampling.rates(LABELS, exponent)
    number = tf.compat.v1.placeholder(tf.int64, [])
    seed = [tf.constant(5, tf.int64), number]
    repeats = class_sampling.repeats(tf.constant(LABELS), rates, SIZE, seed)
    for epoch, expected in enumerate(epochs(session, exponent, 3)):
        found = session.run(repeats, {number: epoch})
        np.testing.assert_array_equal(found, np.bincount(expected, minlength=SIZE))


def test_hosts_read_different_examples_with_equal_epochs():
    labels = np.sort(LABELS)  # the rare classes are at the end
    rates = class_sampling.rates(labels, 0.0)
    parts = [class_sampling.host_part(labels, rates, host, 3) for host in range(3)]
    starts, stops, sizes = zip(*parts)
    assert (0, *stops[:2]) == starts
    assert stops[-1] == SIZE
    assert sum(sizes) == SIZE
    assert max(sizes) - min(sizes) <= 1
    assert stops[0] - starts[0] > stops[-1] - starts[-1]
    for start, stop, size in parts:  # what is sampled of the records of a host
        assert abs(rates[labels[start:stop]].sum() - size) <= rates.max()


@pytest.fixture
def shards(tmp_path, monkeypatch):
    """Files and `ShardInfo`s of the labels as text, in small chunks and groups."""
    monkeypatch.setattr(records, "CHUNK_RECORDS", 4)
    monkeypatch.setattr(records, "_GROUP_CHUNKS", 3)
    monkeypatch.setattr(records, "_SHUFFLE_BUFFER", 8)
    paths, infos = [], []
    for i, part in enumerate(np.array_split(np.arange(SIZE), 3)):
        path = str(tmp_path / f"{i}")
        with tf.io.TFRecordWriter(path) as file:
            for number in part:
                file.write(b"%03d" % number)
        offsets = tuple(range(0, 19 * len(part), 19 * 4))
        infos.append(ShardInfo(f"{i}", 19 * len(part), len(part), offsets=offsets))
        paths.append(path)
    return paths, infos


def from_files(session, shards, host_shard, count, start_step=0):
    dataset = records.train_from_files(
        *shards,
        lambda serialized: tf.strings.to_number(serialized, tf.int32),
        lambda count, seed: tf.zeros([count, 1]),
        host_shard,
        1,
        start_step,
        sampling=(LABELS, 0.0),
    )
    element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()[0]
    return np.stack([session.run(element) for _ in range(count)])


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("num_hosts", [1, 2, 3])
def test_epochs_of_files_have_the_shares_on_any_number_of_hosts(session, shards, num_hosts):
    parts = [
        class_sampling.host_part(LABELS, class_sampling.rates(LABELS, 0.0), host, num_hosts)
        for host in range(num_hosts)
    ]
    hosts = [
        from_files(session, shards, HostShard(1, 1, host, num_hosts), 2 * size).reshape(2, size)
        for host, (*_, size) in enumerate(parts)
    ]
    for host, (start, stop, _) in zip(hosts, parts):
        assert start <= host.min()
        assert host.max() < stop
        assert not np.array_equal(*host)  # epochs are shuffled and differ
    for epoch in np.concatenate(hosts, axis=1):
        found = np.bincount(LABELS[epoch], minlength=4)
        # Rounded in each host; a host boundary cuts the copies of one example.
        assert np.abs(found - SIZE / 3 * (COUNTS > 0)).max() <= num_hosts * 2


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("start_step", [1, 3, 8])
def test_a_resumed_run_from_files_continues(session, shards, start_step):
    whole = from_files(session, shards, HostShard(12), 10)
    rest = from_files(session, shards, HostShard(12), 10 - start_step, start_step)
    np.testing.assert_array_equal(rest, whole[start_step:])
