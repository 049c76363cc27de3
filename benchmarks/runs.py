"""Runs of run_cpu.py, for the child processes of benchmarks."""

from __future__ import annotations

import json
import os
import sys


def train() -> dict:
    """Runs run_cpu.py with the flags of sys.argv; returns the training results of its last step."""
    from engine.cli import startup, tensorflow_import

    startup.start(sys.argv, "", "engine.cli.flags", "engine.cli.cpu_flags")
    tensorflow_import.import_tensorflow()
    import run_cpu
    from engine.cli.flags import FLAGS

    startup.run(run_cpu.main)
    with open(os.path.join(FLAGS.model_dir, f"result_{FLAGS.train_steps}.json")) as file:
        return json.load(file)["train"]


def build(*arguments):
    """Returns (settings, Estimator, input_fns) of the flags of run_cpu.py."""
    import run_cpu
    from engine.cli import resolve_flags, runtime
    from engine.cli.flags import FLAGS

    FLAGS.unparse_flags()
    FLAGS(["run_cpu", *arguments])
    runtime.prepare()
    settings, state = resolve_flags.resolve()
    input_fns = run_cpu.build_input_fns(settings, state)
    return settings, run_cpu.build_estimator(settings, state), input_fns
