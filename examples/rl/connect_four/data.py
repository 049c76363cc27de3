"""The replay buffer of Connect Four, mirrored at random."""

from __future__ import annotations

import tensorflow as tf

from input_fns import dataset_info
from input_fns.core.records import no_autograph
from input_fns.record_pipeline import RecordPipeline

NAME = "connect_four"


def make_pipeline(data_dir):
    """Returns the input pipeline of the data set in `data_dir`."""
    return MirroredPipeline(dataset_info.load(data_dir, NAME))


class MirroredPipeline(RecordPipeline):
    """Mirrors half of the training positions, left to right: the rules are symmetric."""

    def draw(self, count, seed):
        """Returns float32 `[count, 1]` in [0, 1)."""
        return tf.random.stateless_uniform([count, 1], seed)

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Returns features and labels; in training some rows are mirrored."""
        if random is None:
            return features, labels
        is_mirrored = random[:, 0] < 0.5
        board, policy = features["board"], labels["policy"]
        board = tf.where(is_mirrored[:, None, None, None], board[:, :, ::-1], board)
        policy = tf.where(is_mirrored[:, None], policy[:, ::-1], policy)
        return {**features, "board": board}, {**labels, "policy": policy}
