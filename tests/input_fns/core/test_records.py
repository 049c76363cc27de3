"""Reading shards: shuffled without end for training, exactly once for evaluation."""

import itertools
import os
import threading

import numpy as np
import pytest
import tensorflow as tf

from input_fns import DataError
from input_fns.core import records
from input_fns.core.input_context import HostShard
from input_fns.dataset_info import ShardInfo
from tests.marks import slow

NUM_EXAMPLES = 23


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three shards that hold the numbers 0 to 22 in order."""
    folder = tmp_path_factory.mktemp("numbers")
    paths = [str(folder / f"{shard}.tfrecord") for shard in range(3)]
    for path, numbers in zip(paths, np.array_split(np.arange(NUM_EXAMPLES), 3)):
        with tf.io.TFRecordWriter(path) as writer:
            for number in numbers:
                writer.write(str(number))
    return paths


def parse(serialized):
    numbers = tf.strings.to_number(serialized, tf.int32)
    return {"image": tf.stack([numbers, -numbers], axis=1)}, numbers


def batches(dataset, session, count=None):
    """The first `count` elements of a dataset, or all."""
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    element = iterator.get_next()
    session.run(iterator.initializer)

    def rest():
        while True:
            try:
                yield session.run(element)
            except tf.errors.OutOfRangeError:
                return

    return list(itertools.islice(rest(), count))


def draw(count, seed):
    return tf.random.stateless_uniform([count, 2], seed)


def train_from_memory(files, batch_size, seed=1, start_step=0, **more):
    return of_memory(files, HostShard(batch_size), seed, start_step, **more)


def of_memory(files, host_shard, seed=1, start_step=0, **more):
    examples = records.in_order(files, parse, 4)
    return records.train_from_memory(
        examples, NUM_EXAMPLES, draw, host_shard, seed, start_step, **more
    )


def shards_of(files):
    parts = np.array_split(np.arange(NUM_EXAMPLES), len(files))
    return [ShardInfo(path, os.stat(path).st_size, len(p)) for path, p in zip(files, parts)]


def of_files(files, host_shard, seed=1, start_step=0, **more):
    return records.train_from_files(
        files, shards_of(files), parse, draw, host_shard, seed, start_step, **more
    )


def evaluate(files, host_shard, parse=parse):
    dataset = records.in_order(files, parse, 4, shards_of(files), host_shard)
    return records.pad_final_batch(dataset, host_shard, NUM_EXAMPLES)


def labels_of(dataset, session, count):
    return np.stack([labels for (_, labels), _ in batches(dataset, session, count)])


def numbers_of(dataset, session, count):
    return np.stack([numbers for _, numbers in batches(dataset, session, count)])


def number_as_length(features, labels):
    del features
    return labels


@pytest.mark.parametrize("batch_size", [5, 40, slow(1), slow(23)])
@pytest.mark.parametrize("group_lengths", [None, number_as_length])
def test_every_epoch_from_memory_holds_every_example_once(
    files, session, batch_size, group_lengths
):
    count = -(-3 * NUM_EXAMPLES // batch_size)
    dataset = train_from_memory(files, batch_size, group_lengths=group_lengths)
    labels = labels_of(dataset, session, count).ravel()
    for epoch in range(3):
        of_epoch = labels[epoch * NUM_EXAMPLES : (epoch + 1) * NUM_EXAMPLES]
        np.testing.assert_array_equal(np.sort(of_epoch), np.arange(NUM_EXAMPLES))


def test_features_and_labels_stay_together(files, session):
    for (features, labels), _ in batches(train_from_memory(files, 5), session, 9):
        np.testing.assert_array_equal(features["image"], np.stack([labels, -labels], axis=1))


def test_epochs_come_in_different_orders(files, session):
    labels = labels_of(train_from_memory(files, NUM_EXAMPLES), session, 2)
    assert not np.array_equal(labels[0], labels[1])
    assert not np.array_equal(labels[0], np.arange(NUM_EXAMPLES))


@pytest.mark.slow(cost=0.1)
def test_batches_group_examples_of_similar_length(files, session):
    """Epochs of 23 examples in batches of 5: every batch within an epoch is whole."""

    def spreads(group_lengths):
        labels = labels_of(train_from_memory(files, 5, group_lengths=group_lengths), session, 23)
        within = [i for i in range(23) if 5 * i // NUM_EXAMPLES == (5 * i + 4) // NUM_EXAMPLES]
        return np.ptp(labels[within], axis=1), labels[within].min(axis=1)

    grouped, shortest = spreads(number_as_length)
    # Without the examples that share a batch with another epoch, 4 at most on either side.
    assert grouped.max() <= 4 + 8
    assert np.mean(grouped) < 6 < 12 < np.mean(spreads(None)[0])
    assert (np.diff(shortest) < 0).any()  # batches are shuffled


@pytest.mark.parametrize("start_step", [5, 14, slow(1), slow(4), slow(9)])
@pytest.mark.parametrize("group_lengths", [None, number_as_length])
def test_a_start_step_goes_on_where_an_undisturbed_run_would_be(
    files, session, start_step, group_lengths
):
    def labels(start, count):
        dataset = train_from_memory(files, 5, start_step=start, group_lengths=group_lengths)
        return labels_of(dataset, session, count)

    np.testing.assert_array_equal(labels(start_step, 20 - start_step), labels(0, 20)[start_step:])


def test_training_batches_have_static_shapes(files):
    for dataset in (
        train_from_memory(files, 5),
        of_files(files, HostShard(5)),
    ):
        (features, labels), numbers = dataset.element_spec
        assert numbers.shape.as_list() == [5, 2 + 2]  # those of `draw`, and seeds
        assert features["image"].shape.as_list() == [5, 2]
        assert labels.shape.as_list() == [5]


def test_reading_starts_when_the_iterator_is_initialized(session):
    started = threading.Event()

    def contents():
        started.set()
        yield b"0"

    dataset = records.from_files(contents, tf.strings.length, batch_size=1)
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    session.run(iterator.initializer)  # without get_next
    assert started.wait(timeout=60)


@pytest.mark.parametrize(("record_bytes", "rows"), [(1, 8), (3 * 2**20, 5), (2**25, 1)])
def test_few_large_records_are_parsed_at_once(files, record_bytes, rows, session):
    first, *_ = batches(records.in_order(files, parse, record_bytes), session)
    assert first[1].shape == (rows,)


def test_training_from_files_reads_every_example_equally_often(files, session):
    dataset = of_files(files, HostShard(NUM_EXAMPLES))
    epochs = labels_of(dataset, session, 3)
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(NUM_EXAMPLES))
    assert not np.array_equal(epochs[0], epochs[1])


@pytest.mark.parametrize("batch_size", [5, 40, slow(1), slow(23)])
def test_evaluation_gives_every_example_once_in_order(files, session, batch_size):
    dataset = evaluate(files, HostShard(batch_size))
    features, labels = zip(*batches(dataset, session))
    assert len(labels) == -(-NUM_EXAMPLES // batch_size)
    weights = np.concatenate([feature["weight"] for feature in features])
    assert set(weights) <= {0.0, 1.0}
    np.testing.assert_array_equal(np.concatenate(labels)[weights == 1], np.arange(NUM_EXAMPLES))
    assert dataset.element_spec[0]["weight"].shape.as_list() == [batch_size]
    assert dataset.element_spec[0]["image"].shape.as_list() == [batch_size, 2]


def test_padding_stands_at_the_end(files, session):
    *_, (features, _) = batches(evaluate(files, HostShard(5)), session)
    np.testing.assert_array_equal(features["weight"], [1, 1, 1, 0, 0])


def of_all_hosts(make_dataset, session, batch_size, batches_per_step, num_hosts, steps):
    """Global batches `[steps, global_batch]` of labels, put together from what each host reads."""
    hosts = [
        labels_of(
            make_dataset(HostShard(batch_size, batches_per_step, host, num_hosts)),
            session,
            steps * batches_per_step,
        ).reshape(steps, -1)
        for host in range(num_hosts)
    ]
    return np.concatenate(hosts, axis=1)


@pytest.mark.parametrize(
    ("batch_size", "cores", "num_hosts"), [(2, 3, 2), slow(3, 4, 1), slow(1, 3, 4)]
)
@pytest.mark.parametrize("start_step", [3, slow(0)])
def test_global_batches_are_the_same_on_any_hosts_and_cores(
    files, session, batch_size, cores, num_hosts, start_step
):
    def train(host_shard):
        return of_memory(files, host_shard, start_step=start_step)

    split = of_all_hosts(train, session, batch_size, cores, num_hosts, 9)
    whole = labels_of(train(HostShard(batch_size * cores * num_hosts)), session, 9)
    np.testing.assert_array_equal(split, whole)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("num_hosts", [4, slow(2), slow(3), slow(7)])
def test_hosts_that_stream_have_equal_shares_without_a_common_example(files, session, num_hosts):
    seen = [
        set(labels_of(of_files(files, HostShard(1, 1, host, num_hosts)), session, 60).ravel())
        for host in range(num_hosts)
    ]
    shares = [len(examples) for examples in seen]
    assert sum(shares) == len(set.union(*seen)) == NUM_EXAMPLES
    assert max(shares) - min(shares) <= 1


def test_a_host_without_records_is_an_error(files):
    shards = [ShardInfo("a", 80, 3)]
    with pytest.raises(DataError, match="host 6 of 8 gets none of the 3 records of the split"):
        records.train_from_files(files[:1], shards, parse, draw, HostShard(5, 1, 6, 8), 1)


@pytest.mark.slow(cost=0.1)
def test_streaming_hosts_together_see_every_example(files, session):
    epochs = [
        labels_of(of_files(files, HostShard(1, 1, h, 3)), session, n)
        for h, n in enumerate([7, 8, 8])
    ]
    np.testing.assert_array_equal(np.sort(np.concatenate(epochs).ravel()), np.arange(NUM_EXAMPLES))


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("batch_size", "cores", "num_hosts"), [(2, 3, 2), (5, 8, 1), slow(3, 4, 1)]
)
def test_evaluation_by_hosts_and_cores_gives_every_example_once(
    files, session, batch_size, cores, num_hosts
):
    steps = -(-NUM_EXAMPLES // (batch_size * cores * num_hosts))
    counted = []
    for host in range(num_hosts):
        host_shard = HostShard(batch_size, cores, host, num_hosts)
        elements = batches(evaluate(files, host_shard), session)
        assert len(elements) == steps * cores  # every core has a batch at every step
        for features, labels in elements:
            counted.extend(labels[features["weight"] == 1])
    assert sorted(counted) == list(range(NUM_EXAMPLES))


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(("batch_size", "cores", "num_hosts"), [(2, 3, 2), slow(3, 4, 1)])
def test_random_numbers_belong_to_the_example_and_not_to_the_core(
    files, session, batch_size, cores, num_hosts
):
    hosts = [
        numbers_of(of_memory(files, HostShard(batch_size, cores, host, num_hosts)), session, cores)
        for host in range(num_hosts)
    ]
    whole = numbers_of(of_memory(files, HostShard(batch_size * cores * num_hosts)), session, 1)
    np.testing.assert_array_equal(np.concatenate(hosts).reshape(whole[0].shape), whole[0])


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("make", [of_memory, of_files])
def test_order_and_random_numbers_are_functions_of_the_seed(files, session, make):
    once, again, other = (
        batches(make(files, HostShard(5), seed), session, 10) for seed in (1, 1, 2)
    )
    orders = [np.stack([labels for (_, labels), _ in run]) for run in (once, again, other)]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    numbers = [np.stack([numbers for _, numbers in run]) for run in (once, again, other)]
    np.testing.assert_array_equal(numbers[0], numbers[1])
    # They differ between batches, too.
    assert len(np.unique([numbers[0], numbers[2]])) == numbers[0].size + numbers[2].size


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("make", [of_memory, of_files])
@pytest.mark.parametrize("cores", [2, slow(1)])
def test_the_random_numbers_of_a_resumed_run_go_on(files, session, make, cores):
    host_shard = HostShard(6 // cores, batches_per_step=cores)
    whole = numbers_of(make(files, host_shard), session, 5 * cores)
    rest = numbers_of(make(files, host_shard, start_step=3), session, 2 * cores)
    np.testing.assert_array_equal(rest, whole[3 * cores :])


# In an epoch, at its end, in a later one.
@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("start_step", [slow(1), 4, slow(5), 12])
@pytest.mark.parametrize("num_hosts", [3, slow(1)])
def test_a_streaming_run_that_resumes_sees_what_an_undisturbed_one_would(
    files, session, start_step, num_hosts
):
    host_shard = HostShard(5, 1, num_hosts - 1, num_hosts)
    undisturbed = labels_of(of_files(files, host_shard), session, start_step + 3)
    resumed = labels_of(of_files(files, host_shard, start_step=start_step), session, 3)
    np.testing.assert_array_equal(resumed, undisturbed[start_step:])


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(("record_bytes", "in_order"), [(2**29, True), (2**20, False)])
def test_the_window_of_the_shuffle_is_bounded_in_bytes(files, session, record_bytes, in_order):
    dataset = of_files(files, HostShard(NUM_EXAMPLES), record_bytes=record_bytes)
    (labels,) = labels_of(dataset, session, 1)
    of_first_file = labels[labels < 8]  # with room for one record alone a file stays in its order
    assert np.array_equal(of_first_file, np.arange(8)) == in_order


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("batch_size", [5, slow(40)])
@pytest.mark.parametrize(
    "labels_of_numbers",
    [
        lambda n: {"mask": tf.zeros([tf.size(n), 3, 4], tf.uint8) + 1, "n": {"value": n}},
        lambda n: (n, tf.cast(n, tf.float32)),
        lambda n: tf.reshape(tf.repeat(n, 12), [-1, 3, 4]),
        lambda n: (),
    ],
)
def test_padding_does_not_depend_on_the_structure(files, session, labels_of_numbers, batch_size):
    def parse_nested(serialized):
        features, numbers = parse(serialized)
        return {"a": features, "b": tf.strings.as_string(numbers)}, labels_of_numbers(numbers)

    in_order = records.in_order(files, parse_nested, 4)
    host_shard = HostShard(batch_size)
    elements = batches(records.pad_final_batch(in_order, host_shard, NUM_EXAMPLES), session)
    (whole,) = batches(in_order.rebatch(NUM_EXAMPLES), session)
    weights = np.concatenate([features.pop("weight") for features, _ in elements])
    assert weights.sum() == NUM_EXAMPLES
    joined = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *elements)
    for found, expected in zip(tf.nest.flatten(joined), tf.nest.flatten(whole)):
        np.testing.assert_array_equal(found[weights == 1], expected)
        padding = found[weights == 0]
        assert set(padding.ravel()) <= {0, b""}


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(("batch_size", "cores"), [(2, 1), (1, 2), slow(4, 1)])
def test_a_host_parses_its_rows_of_the_evaluation_only(files, session, batch_size, cores):
    parsed = []

    def count(serialized):
        parsed.extend(serialized.tolist())
        return np.int32(0)

    def counted(serialized):
        with tf.control_dependencies([tf.numpy_function(count, [serialized], tf.int32)]):
            return parse(tf.identity(serialized))

    for host in range(3):
        parsed.clear()
        evaluated = batches(
            evaluate(files, HostShard(batch_size, cores, host, 3), counted), session
        )
        size = batch_size * cores
        rows = [r for r in range(NUM_EXAMPLES) if r // size % 3 == host]
        assert sorted(map(int, parsed)) == rows
        labels = np.concatenate([labels for _, labels in evaluated])
        weights = np.concatenate([features["weight"] for features, _ in evaluated])
        np.testing.assert_array_equal(labels[weights == 1], rows)
        assert len(evaluated) == cores * -(-NUM_EXAMPLES // (3 * size))


@pytest.mark.slow(cost=0.1)
def test_a_host_whose_rows_of_the_final_batch_are_padding_has_that_batch(files, session):
    *_, (features, labels) = batches(evaluate(files, HostShard(10, 1, 2, 3)), session)
    assert features["weight"].tolist() == [1, 1, 1] + [0] * 7  # rows 20 to 22
    ((features, labels),) = batches(evaluate(files, HostShard(25, 1, 2, 3)), session)
    assert features["weight"].tolist() == [0] * 25
    assert not labels.any()
    assert not features["image"].any()
    assert features["image"].shape == (25, 2)
