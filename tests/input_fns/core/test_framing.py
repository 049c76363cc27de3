"""Records are framed as TensorFlow frames them."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from input_fns.core import framing
from input_fns.core.dataset_parts import ShardInfo


@pytest.mark.parametrize("lengths", [[0], [5, 300, 1, 7], [100_003]])
def test_records_are_framed_as_by_tensorflow(tmp_path, lengths):
    random = np.random.default_rng(len(lengths))
    records = [random.bytes(length) for length in lengths]
    with tf.io.TFRecordWriter(str(tmp_path / "a")) as file:
        for record in records:
            file.write(record)
    assert b"".join(map(framing.frame, records)) == (tmp_path / "a").read_bytes()
    assert framing.frame(b"abcdef", 2) == framing.frame(b"abc") + framing.frame(b"def")


@pytest.fixture
def shard(tmp_path):
    """The path of 150 records of different lengths, and its metadata: every third is indexed."""
    records = [b"%d" % i * (1 + i % 7) for i in range(150)]
    framed = [framing.frame(record) for record in records]
    offsets = np.cumsum([0, *map(len, framed)]).tolist()
    (tmp_path / "a").write_bytes(b"".join(framed))
    info = ShardInfo("a", offsets[-1], 150, offsets=framing.index(offsets[:-1]))
    assert info.stride == 3
    return tmp_path / "a", info, records


@pytest.mark.parametrize("numbers", [range(0, 150, 7), range(4), range(149, 150), range(0)])
@pytest.mark.parametrize("is_indexed", [True, False])
def test_some_records_of_a_shard(shard, numbers, is_indexed):
    path, info, records = shard
    info = info if is_indexed else dataclasses.replace(info, offsets=())
    assert list(framing.sample(str(path), numbers, info)) == [records[i] for i in numbers]


def test_a_record_of_a_sample_that_has_changed(shard):
    path, info, _ = shard
    content = path.read_bytes().replace(b"44444", b"44544")
    path.write_bytes(content)
    with pytest.raises(framing.FramingError, match="corrupted record 4"):
        list(framing.sample(str(path), range(0, 150, 4), info))
    path.write_bytes(content[:-20])
    with pytest.raises(framing.FramingError, match="truncated record at byte"):
        list(framing.sample(str(path), [149], info))
