"""The result files of a run."""

import json

import numpy as np

from training import results


def test_sections_of_a_step_come_together(tmp_path, result):
    results.write(str(tmp_path), 5, "train", {"examples_per_second": 2.5})
    results.write(str(tmp_path), 5, "eval", {"accuracy": np.float32(0.5), "examples": np.int64(7)})
    results.write(str(tmp_path), 5, "eval", {"confusion_matrix": np.eye(2, dtype=np.int32)})
    assert result(tmp_path, 5) == {
        "step": 5,
        "train": {"examples_per_second": 2.5},
        "eval": {"confusion_matrix": [[1, 0], [0, 1]]},
    }


def test_bytes_and_arrays_become_json():
    values = {"name": b"Dress", "row": np.array([1.5, 2.0], np.float32)}
    assert json.dumps(values, default=results.to_json) == '{"name": "Dress", "row": [1.5, 2.0]}'
