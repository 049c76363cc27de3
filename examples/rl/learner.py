"""The learner: run_cpu.py or run_tpu.py, unmodified, as a process that trains and exports."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from common.errors import RunError

ROOT = pathlib.Path(__file__).parents[2]


def train(run_dir: str, command: Sequence[str], flags: Sequence[str], steps: int) -> str:
    """Trains up to a global step and exports; returns the path of the SavedModel.

    The learner resumes from its latest checkpoint, so this may be repeated after a crash: what is
    trained or exported is not done again.

    Args:
      run_dir: folder of the run; the data set is in `replay`.
      command: wrapper and its flags, such as `["run_tpu.py", "--tpu=emulator"]`.
      flags: flags of model and data set.
      steps: global step at which training ends.

    Raises:
      RunError: the learner failed.
    """
    model_dir = os.path.join(run_dir, "learner")
    wrapper, *wrapper_flags = command
    arguments = [
        *(sys.executable, str(ROOT / wrapper), *flags, "--keep_checkpoint_max=2", *wrapper_flags),
        *(f"--data_dir={run_dir}/replay", f"--model_dir={model_dir}"),
        *(f"--export_dir={run_dir}/exports", "--noexport_check", f"--train_steps={steps}"),
    ]
    log = os.path.join(run_dir, "learner.log")
    status = run(arguments, log)
    if status:
        raise RunError(f"{wrapper} ended with status {status}; the reason is in {log}")
    with open(os.path.join(model_dir, f"result_{steps}.json"), encoding="utf-8") as file:
        return json.load(file)["export"]


def run(command: Sequence[str], log: str) -> int:
    """Runs a command; returns its exit status. Its output is appended to `log`."""
    with open(log, "ab") as file:
        # The child inherits the lock of the driver; see `train.locked`.
        return subprocess.run(
            command, stdout=file, stderr=subprocess.STDOUT, close_fds=False
        ).returncode
