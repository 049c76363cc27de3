"""Experience and the learner's data set survive a round trip."""

import os

import numpy as np
import pytest

from examples.rl import replay
from examples.rl.connect_four import data
from input_fns import dataset_info
from input_fns.core import inspection, records
from input_fns.record_pipeline import RecordPipeline


def make_arrays(size, seed):
    """Experience with the names and dtypes of Connect Four."""
    random = np.random.default_rng(seed)
    return {
        "board": random.integers(0, 2, [size, 6, 7, 2], dtype=np.uint8),
        "policy": random.random([size, 7], dtype=np.float32),
        "value": random.choice(np.float32([-1, 0, 1]), size),
    }


@pytest.fixture
def data_dir(tmp_path):
    """A replay buffer of two iterations, 13 and 40 examples."""
    parts = [make_arrays(13, 1), make_arrays(40, 2)]
    replay.write(str(tmp_path), data.NAME, parts, ("policy", "value"))
    return str(tmp_path)


def read(pipeline, split):
    """Returns the features and labels of a split."""
    return next(pipeline.host_examples(split, 1000))


def test_experience_survives_a_round_trip(tmp_path):
    arrays = make_arrays(7, 1)
    path = replay.path(str(tmp_path), 3)
    replay.save(path, arrays)
    assert os.path.basename(path) == "0003.npz"
    for name, array in replay.load(path).items():
        np.testing.assert_array_equal(array, arrays[name])


def test_test_split_is_the_last_tenth_of_the_newest_iteration(data_dir):
    pipeline = RecordPipeline(dataset_info.load(data_dir, data.NAME))
    old, new = make_arrays(13, 1), make_arrays(40, 2)
    features, labels = read(pipeline, "test")
    np.testing.assert_array_equal(features["board"], new["board"][36:])
    np.testing.assert_array_equal(labels["policy"], new["policy"][36:])
    features, labels = read(pipeline, "train")
    np.testing.assert_array_equal(
        features["board"], np.concatenate([old["board"], new["board"][:36]])
    )
    np.testing.assert_array_equal(
        labels["value"], np.concatenate([old["value"], new["value"][:36]])
    )


def test_prepare_data_finds_no_problem(data_dir):
    found = dataset_info.read(data_dir)
    assert [inspection.inspect(found, split).problems for split in found.splits] == [[], []]


def test_writing_again_leaves_equal_files(data_dir):
    def contents():
        return {entry.name: open(entry.path, "rb").read() for entry in os.scandir(data_dir)}

    before = contents()
    parts = [make_arrays(13, 1), make_arrays(40, 2)]
    replay.write(data_dir, data.NAME, parts, ("policy", "value"))
    assert contents() == before


def test_old_shards_are_removed(data_dir):
    replay.write(data_dir, data.NAME, [make_arrays(20, 5)], ("policy", "value"))
    assert len([name for name in os.listdir(data_dir) if name.endswith(".tfrecord")]) == 2


def test_training_mirrors_boards_with_their_policies(data_dir):
    pipeline = data.make_pipeline(data_dir)
    plain = make_arrays(13, 1), make_arrays(40, 2)
    rows = {
        (board.tobytes(), policy.tobytes()): mirrored
        for part in plain
        for mirrored, step in ((False, 1), (True, -1))
        for board, policy in zip(part["board"][:, :, ::step], part["policy"][:, ::step])
    }
    input_fn = pipeline.train_input_fn("train", seed=1)
    features, labels = next(records.iterate(lambda: input_fn({"batch_size": 49})))
    found = [
        rows[board.tobytes(), policy.tobytes()]
        for board, policy in zip(features["board"], labels["policy"])
    ]
    assert 10 < sum(found) < 39
