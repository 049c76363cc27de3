"""The recipe of `make run` on eight PJRT devices. `.ci/run` runs this slow test every time."""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]
pytest.importorskip("jax", reason="the extra 'pjrt' is not installed")


@pytest.mark.slow
def test_digits_reach_their_accuracy(run_tpu_with, digits_dir, tmp_path, result):
    run_tpu_with(
        f"--flagfile={ROOT}/configs/digits.cfg",
        f"--data_dir={digits_dir}",
        f"--model_dir={tmp_path}",
        "--mode=train_and_eval",
        *("--tpu=pjrt", "--tpu_topology=", "--devices=cpu:8"),
    )
    assert result(tmp_path, 338)["eval"]["accuracy"] >= 0.97
