"""Trains a detector on a CPU and on eight emulated cores, with unequal numbers of boxes."""

from __future__ import annotations

from tests import numerics

BATCH = 16


def excess(run_with, run_tpu_with, variables, tmp_path, flags, *, steps: int, terms: int) -> float:
    """Returns the largest difference of the variables after training, in tolerances.

    Args:
      run_with: the fixture.
      run_tpu_with: the fixture.
      variables: the fixture.
      tmp_path: the fixture.
      flags: of model and data.
      steps: of the training.
      terms: of the largest sum of an image; see `numerics.tolerance`.
    """
    flags = [
        *flags,
        "--mode=train",
        "--seed=1",
        f"--train_batch_size={BATCH}",
        f"--save_checkpoints_steps={steps}",
        "--params=batch_norm_cross_replica=true,optimizer=momentum,learning_rate=0.01",
    ]
    run_with(*flags, f"--model_dir={tmp_path}/start", "--train_steps=1")
    flags += [f"--warm_start_from={tmp_path}/start", f"--train_steps={steps}"]
    run_with(*flags, f"--model_dir={tmp_path}/cpu")
    cores = ["--tpu=emulator", "--tpu_topology=1x8"]
    run_tpu_with(*flags, f"--model_dir={tmp_path}/tpu", *cores)
    expected, got = variables(tmp_path / "cpu"), variables(tmp_path / "tpu")
    assert got["global_step"] == expected["global_step"] == steps
    return numerics.excess(got, expected, depth=steps, terms=BATCH * terms, magnitude=1.0)
