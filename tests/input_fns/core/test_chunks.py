"""Chunks of shards: plans, index, local copies, and the order of epochs that they make."""

import contextlib
import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

from common import files
from input_fns import DataError
from input_fns.core import caching, chunks, records
from input_fns.core.input_context import HostShard
from input_fns.dataset_info import ShardInfo
from tests.marks import slow

RECORD_BYTES = 3 + 16
MB = 10**6


def write_shards(folder, counts, stride=2):
    """Writes shards with the numbers 100, 101, ... and an index of every `stride`-th record."""
    shards, number = [], 100
    for i, count in enumerate(counts):
        with tf.io.TFRecordWriter(str(folder / f"{i}")) as writer:
            for k in range(number, number + count):
                writer.write(str(k))
        number += count
        offsets = tuple(range(0, count * RECORD_BYTES, stride * RECORD_BYTES)) if stride else ()
        shards.append(ShardInfo(f"{i}", count * RECORD_BYTES, count, offsets=offsets))
    return [str(folder / shard.name) for shard in shards], shards


def parse(serialized):
    return tf.strings.to_number(serialized, tf.int32)


def draw(count, seed):
    return tf.random.stateless_uniform([count, 1], seed)


def train(split, host_shard, start_step=0, seed=1, **more):
    paths, shards = split
    return records.train_from_files(
        paths, shards, parse, draw, host_shard, seed, start_step, **more
    )


def steps(dataset, session, count):
    """The examples of the first `count` batches."""
    # As in training: the thread of autotuning delays the end of a test.
    iterator = tf.compat.v1.data.make_initializable_iterator(records.with_options(dataset))
    numbers, _ = iterator.get_next()
    session.run(iterator.initializer)
    return [session.run(numbers).tolist() for _ in range(count)]


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 2 records, groups of about 6 records, a shuffle buffer of 4 records."""
    monkeypatch.setattr(records, "CHUNK_RECORDS", 2)
    monkeypatch.setattr(records, "_GROUP_CHUNKS", 3)
    monkeypatch.setattr(records, "_SHUFFLE_BUFFER", 4)


# Plans.


def even_shards(count, num_bytes=100 * MB, num_records=1000, num_offsets=64):
    stride = -(-num_records // num_offsets) if num_offsets else 1
    size = num_bytes // num_records
    offsets = tuple(range(0, num_bytes, stride * size)) if num_offsets else ()
    return [ShardInfo(f"{i}", num_bytes, num_records, offsets=offsets) for i in range(count)]


def bytes_read(shards, num_hosts):
    """Bytes that all hosts read, and those of their records; a read buffer per chunk is added."""
    total = sum(shard.num_examples for shard in shards)
    size = shards[0].num_bytes // shards[0].num_examples
    read = needed = 0
    for host in range(num_hosts):
        start, stop = chunks.host_range(total, host, num_hosts)
        plan = chunks.cut(shards, records.CHUNK_BYTES, records.CHUNK_RECORDS, start, stop)
        assert sum(chunk.take for chunk in plan) == stop - start
        assert max(chunk.end - chunk.offset for chunk in plan) <= records.CHUNK_BYTES or not all(
            shard.offsets for shard in shards
        )
        read += sum((chunk.skip + chunk.take) * size for chunk in plan)
        read += len(plan) * records._READ_BUFFER // 2
        needed += (stop - start) * size
    assert needed == sum(shard.num_bytes for shard in shards)
    return read / needed


@pytest.mark.parametrize("num_hosts", [8, 64, 128])
@pytest.mark.parametrize("num_shards", [100, 190, 1320])
def test_hosts_read_their_own_records(num_shards, num_hosts):
    assert bytes_read(even_shards(num_shards), num_hosts) <= 1.02


def test_without_an_index_hosts_read_records_of_others():
    assert bytes_read(even_shards(100, num_offsets=0), 64) > 1.2


@pytest.mark.parametrize("num_hosts", [1, 3, 64, 128])
def test_every_host_has_records_if_there_are_enough(num_hosts):
    ranges = [chunks.host_range(130, host, num_hosts) for host in range(num_hosts)]
    assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 130
    sizes = [stop - start for start, stop in ranges]
    assert 0 < min(sizes) <= max(sizes) <= min(sizes) + 1


def read(chunk):
    """Numbers of a chunk of `write_shards([7, 1, 12])`, in Python."""
    first = 100 + [0, 7, 8][chunk.shard] + chunk.offset // RECORD_BYTES + chunk.skip
    assert chunk.offset % RECORD_BYTES == 0
    assert chunk.offset + (chunk.skip + chunk.take) * RECORD_BYTES <= chunk.end
    return list(range(first, first + chunk.take))


@pytest.mark.parametrize("limits", [(10**9, 10**9), (50, 10**9), (10**9, 3), (1, 1)])
@pytest.mark.parametrize("stride", [2, 3, 0])
def test_chunks_hold_every_record_of_a_range_once(tmp_path, limits, stride):
    _, shards = write_shards(tmp_path, [7, 1, 12], stride)
    for start, stop in itertools.combinations_with_replacement(range(21), 2):
        plan = chunks.cut(shards, *limits, start, stop)
        found = list(itertools.chain(*map(read, plan)))
        assert found == list(range(100 + start, 100 + stop))


@pytest.mark.parametrize("num_hosts", [1, 7, 20])
def test_chunks_of_all_hosts_hold_every_record_once(tmp_path, num_hosts):
    _, shards = write_shards(tmp_path, [7, 1, 12])
    ranges = [chunks.host_range(20, host, num_hosts) for host in range(num_hosts)]
    plans = [chunks.cut(shards, 50, 3, *bounds) for bounds in ranges]
    found = [number for plan in plans for chunk in plan for number in read(chunk)]
    assert found == list(range(100, 120))


def test_records_of_a_chunk(tmp_path, session):
    paths, shards = write_shards(tmp_path, [7, 1, 12], stride=3)
    plan = chunks.cut(shards, 50, 3, 1, 19)
    dataset = tf.data.Dataset.from_tensor_slices(np.array(plan, np.int64)).flat_map(
        lambda chunk: records._read_chunk(tf.gather(paths, chunk[0]), *records._columns(chunk)[1:])
    )
    dataset = dataset.batch(18).map(lambda serialized: (parse(serialized), ()))
    assert steps(dataset, session, 1) == [list(range(101, 119))]


def test_a_host_opens_no_shard_without_its_records(tmp_path, session):
    split = write_shards(tmp_path, [8, 8, 8])
    for i in (0, 2):
        os.remove(split[0][i])
    ((*numbers,),) = steps(train(split, HostShard(8, 1, 1, 3)), session, 1)
    assert sorted(numbers) == list(range(108, 116))


@pytest.mark.slow(cost=0.1)
def test_a_host_does_not_read_the_records_of_another(tmp_path, session):
    """The first half of the shard is garbage, which only the first host would read."""
    split = write_shards(tmp_path, [16])
    with open(split[0][0], "r+b") as file:
        file.write(b"x" * 8 * RECORD_BYTES)
    ((*numbers,),) = steps(train(split, HostShard(8, 1, 1, 2)), session, 1)
    assert sorted(numbers) == list(range(108, 116))
    with pytest.raises(tf.errors.DataLossError):
        steps(train(split, HostShard(8, 1, 0, 2)), session, 1)


# Epochs. The sizes of a split: one group of chunks, or many.


@pytest.mark.parametrize(
    ("counts", "stride", "num_hosts", "num_sessions"),
    [
        ([5], 2, 1, 2),
        slow([7, 1, 12, 3], 2, 3, 2),
        *(
            slow(counts, stride, num_hosts, num_sessions)
            for counts in ([5], [7, 1, 12, 3])
            for stride in (2, 0)
            for num_hosts in (1, 3)
            for num_sessions in (1, 4, 10)
        ),
    ],
)
def test_every_epoch_has_every_example_once(
    tmp_path, session, small_chunks, counts, stride, num_hosts, num_sessions
):
    split = write_shards(tmp_path, counts, stride)
    for host in range(num_hosts):
        start, stop = chunks.host_range(sum(counts), host, num_hosts)
        size = stop - start
        host_shard = HostShard(1, 1, host, num_hosts)
        bounds = [3 * size * i // num_sessions for i in range(num_sessions + 1)]
        seen = [
            number
            for first, last in zip(bounds, bounds[1:])
            for (number,) in steps(train(split, host_shard, first), session, last - first)
        ]
        epochs = np.reshape(seen, [3, size])
        np.testing.assert_array_equal(
            np.sort(epochs, axis=1), [list(range(100 + start, 100 + stop))] * 3
        )
        if size > 5:
            assert not np.array_equal(epochs[0], epochs[1])


def test_one_of_64_hosts(tmp_path, session, small_chunks):
    split = write_shards(tmp_path, [60, 70])
    start, stop = chunks.host_range(130, 31, 64)
    epochs = np.reshape(
        steps(train(split, HostShard(1, 1, 31, 64)), session, 3 * (stop - start)), [3, -1]
    )
    assert np.sort(epochs).tolist() == [list(range(100 + start, 100 + stop))] * 3


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("counts", "num_hosts", "copied", "starts"),
    [
        ([5], 3, False, [1]),
        ([7, 1, 12, 3], 1, False, [3, 12]),
        *(
            slow(counts, num_hosts, copied, [1, 2, 3, 5, 6, 12, 35])
            for counts in ([5], [7, 1, 12, 3])
            for num_hosts in (1, 3)
            for copied in (False, True)
        ),
    ],
)
def test_a_resumed_run_continues_like_an_uninterrupted_one(
    tmp_path, session, small_chunks, counts, num_hosts, copied, starts
):
    split = write_shards(tmp_path, counts)
    (tmp_path / "copies").mkdir()
    copies = str(tmp_path / "copies") if copied else ""
    host_shard = HostShard(2, 1, num_hosts - 1, num_hosts)
    whole = steps(train(split, host_shard, copies=copies), session, 40)
    for start in starts:
        resumed = steps(train(split, host_shard, start, copies=copies), session, 4)
        assert resumed == whole[start : start + 4]


@pytest.mark.slow(cost=0.1)
def test_the_order_depends_on_the_seed(tmp_path, session, small_chunks):
    split = write_shards(tmp_path, [7, 1, 12, 3])
    orders = [steps(train(split, HostShard(23), seed=seed), session, 1) for seed in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]


@pytest.mark.slow(cost=0.1)
def test_skipped_groups_are_not_read(tmp_path, session, small_chunks):
    """A run that resumes at the last group needs the shards of that group only."""
    split = write_shards(tmp_path, [2] * 9)
    host_shard = HostShard(6)
    last = steps(train(split, host_shard), session, 3)[-1]
    for path, numbers in zip(split[0], np.reshape(range(100, 118), [9, 2])):
        if not set(numbers) & set(last):
            os.remove(path)
    dataset = train(split, host_shard, 2).take(1)
    with contextlib.suppress(tf.errors.NotFoundError):  # the group of the next epoch, read ahead
        assert steps(dataset, session, 1)[0] == last


def test_the_last_group_has_as_many_chunks_as_others(tmp_path, session, small_chunks):
    """Four chunks are two groups of two, not three and one."""
    split = write_shards(tmp_path, [2] * 4)
    for numbers in np.reshape(steps(train(split, HostShard(4)), session, 8), [-1, 4]):
        assert len({number // 2 for number in numbers}) == 2


def test_a_group_has_chunks_of_all_parts_of_the_split(tmp_path, session, monkeypatch):
    """Records that are sorted by class: a uniform permutation leaves classes out of a group."""
    monkeypatch.setattr(records, "CHUNK_RECORDS", 2)
    monkeypatch.setattr(records, "_GROUP_CHUNKS", 4)
    split = write_shards(tmp_path, [6] * 4)
    groups = np.reshape(steps(train(split, HostShard(8)), session, 12), [12, 8])
    for group in groups:
        assert sorted(np.array(group - 100) // 6) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len({tuple(sorted(group)) for group in groups.tolist()}) > 3


def test_small_shards_share_a_group(tmp_path, session, monkeypatch):
    monkeypatch.setattr(records, "_GROUP_CHUNKS", 2)
    split = write_shards(tmp_path, [2] * 9)
    first = steps(train(split, HostShard(9)), session, 1)[0]
    assert len({number // 2 for number in first}) > 5
    own = chunks.cut(split[1], records.CHUNK_BYTES, records.CHUNK_RECORDS)
    assert records._num_groups(own) == 1


def test_groups_of_large_shards():
    """1 GiB of chunks of 50 MB; at least 16 chunks of any size."""
    for num_offsets, groups in [(64, 10), (0, 7)]:
        own = chunks.cut(
            even_shards(100, num_offsets=num_offsets), records.CHUNK_BYTES, records.CHUNK_RECORDS
        )
        assert records._num_groups(own) == groups


# Local copies.


def copied(split, folder, session, host_shard=None, start_step=0, count=1):
    host_shard = host_shard or HostShard(2)
    return steps(train(split, host_shard, start_step, copies=str(folder)), session, count)


@pytest.fixture
def copies(tmp_path):
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder


@pytest.mark.slow(cost=0.1)
def test_a_second_session_completes_the_copies_of_the_first(
    tmp_path, session, small_chunks, copies
):
    split = write_shards(tmp_path, [7, 1, 12, 3])
    whole = steps(train(split, HostShard(2)), session, 23)
    assert copied(split, copies, session, count=2) == whole[:2]
    assert copied(split, copies, session, start_step=2, count=21) == whole[2:]
    sizes = [path.stat().st_size for path in copies.iterdir()]
    assert sum(sizes) == 23 * RECORD_BYTES
    for path in split[0]:
        os.remove(path)
    assert copied(split, copies, session, count=23) == whole


def test_a_copy_that_a_killed_process_left_is_written_again(tmp_path, session, copies):
    split = write_shards(tmp_path, [7])
    name = f"00000-0-{7 * RECORD_BYTES}.tfrecord"
    partial = copies / f"{name}.partial-0123abcd"
    partial.write_bytes(b"killed")
    (copies / name).write_bytes(b"another size")
    ((*numbers,),) = copied(split, copies, session, HostShard(7))
    assert sorted(numbers) == list(range(100, 107))
    assert [path.name for path in copies.iterdir()] == [name]


def test_hosts_copy_their_own_records(tmp_path, session, copies):
    split = write_shards(tmp_path, [16])
    copied(split, copies, session, HostShard(4, 1, 1, 2))
    (copy,) = copies.iterdir()
    assert copy.name == f"00000-{8 * RECORD_BYTES}-{16 * RECORD_BYTES}.tfrecord"


def test_a_copy_that_another_process_writes_is_kept(tmp_path, copies):
    """Both write a temporary file; the last rename wins, with the same bytes."""
    split = write_shards(tmp_path, [7])
    path = str(copies / "copy")
    with files.atomic_write(path, "wb") as other:
        caching._copy_range(split[0][0], 0, 7 * RECORD_BYTES, path)
        other.write((tmp_path / "0").read_bytes())
    assert (copies / "copy").read_bytes() == (tmp_path / "0").read_bytes()
    assert len(list(copies.iterdir())) == 1


def test_a_shard_that_ends_early_is_an_error(tmp_path, copies):
    split = write_shards(tmp_path, [7])
    with pytest.raises(DataError, match="/0 ends before byte 999"):
        caching._copy_range(split[0][0], 0, 999, str(copies / "copy"))
    assert not list(copies.iterdir())


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("size", "error"), [(None, tf.errors.NotFoundError), (52, tf.errors.DataLossError)]
)
def test_errors_of_a_shard_are_those_of_reading_it(tmp_path, session, copies, size, error):
    """An exception of the function that copies would print a stack trace."""
    split = write_shards(tmp_path, [7])
    if size is None:
        os.remove(split[0][0])
    else:
        os.truncate(split[0][0], size)
    with pytest.raises(error, match=r"/0|truncated") as raised:
        copied(split, copies, session, count=8)
    assert "Traceback" not in raised.value.message
    assert not list(copies.iterdir())


# Reading in order.


@pytest.mark.parametrize(("stride", "parse_bytes"), [(2, 1), (2, 50), (0, 50), (0, 2**24)])
def test_chunks_are_read_in_order(tmp_path, session, monkeypatch, stride, parse_bytes):
    monkeypatch.setattr(records, "_PARSE_BYTES", parse_bytes)
    paths, shards = write_shards(tmp_path, [7, 1, 0, 12, 3], stride)
    dataset = records.with_options(records.in_order(paths, parse, RECORD_BYTES, shards))
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    element = iterator.get_next()
    session.run(iterator.initializer)
    found = []
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            found.append(session.run(element).tolist())
    assert list(itertools.chain(*found)) == list(range(100, 123))
