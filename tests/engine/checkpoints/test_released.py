"""Checkpoints without a global step get one in a copy."""

import numpy as np
import tensorflow as tf

from engine.checkpoints import find, released, writer

VALUES = {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}


def test_a_copy_has_the_step_0_and_the_values(tmp_path):
    path = str(tmp_path / "theirs" / "model.ckpt")
    writer.write(path, VALUES)
    assert released.find(f"{path}.index") == path
    copy = released.add_step(path, str(tmp_path / "model_dir"))
    assert find.read_step(copy) == 0
    np.testing.assert_array_equal(tf.train.load_variable(copy, "kernel"), VALUES["kernel"])
    assert released.find(copy) is None


def test_other_values_of_checkpoint_are_left_alone(tmp_path):
    assert [released.find(which) for which in ("latest", "best", str(tmp_path))] == [None] * 3
