"""Records are framed as TensorFlow frames them."""

import numpy as np
import pytest
import tensorflow as tf

from input_fns.core import framing


@pytest.mark.parametrize("lengths", [[0], [5, 300, 1, 7], [100_003]])
def test_records_are_framed_as_by_tensorflow(tmp_path, lengths):
    random = np.random.default_rng(len(lengths))
    records = [random.bytes(length) for length in lengths]
    with tf.io.TFRecordWriter(str(tmp_path / "a")) as file:
        for record in records:
            file.write(record)
    assert b"".join(map(framing.frame, records)) == (tmp_path / "a").read_bytes()
    assert framing.frame(b"abcdef", 2) == framing.frame(b"abc") + framing.frame(b"def")
