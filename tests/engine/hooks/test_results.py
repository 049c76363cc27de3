"""Result files of a run."""

import json

import numpy as np
import pytest

from engine.hooks import results


def test_sections_of_a_step_are_merged(tmp_path, result):
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


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 10**5])
def test_an_invalid_result_is_reported_and_overwritten(tmp_path, capsys, content):
    path = tmp_path / "result_20.json"
    path.write_bytes(content)
    assert results.read(str(tmp_path), 20) == {}
    assert "result_20.json is invalid" in capsys.readouterr().out
    results.write(str(tmp_path), 20, "eval", {"accuracy": 0.5})
    assert json.loads(path.read_text()) == {"step": 20, "eval": {"accuracy": 0.5}}


def test_sections_of_wrong_types_are_ignored(tmp_path):
    (tmp_path / "result_20.json").write_text('{"step": "x", "eval": 3, "export": {}, "train": {}}')
    assert results.read(str(tmp_path), 20) == {"train": {}}


def test_a_result_is_completed_after_a_kill(tmp_path):
    results.complete(str(tmp_path), 20, 0)
    assert results.read(str(tmp_path), 20)["train"] == {"start_step": 20, "skipped_records": 0}
    results.write(str(tmp_path), 30, "train", {"start_step": 10})
    results.complete(str(tmp_path), 30, 0)
    assert results.read(str(tmp_path), 30)["train"] == {"start_step": 10}
