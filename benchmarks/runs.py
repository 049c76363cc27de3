"""Runs of run_cpu.py and run_tpu.py, for the child processes of benchmarks."""

from __future__ import annotations

import glob
import importlib
import json
import sys

_FLAGS = {"run_cpu": "engine.cli.cpu_flags", "run_tpu": "tpu.connect.flags"}


def run(wrapper: str = "run_cpu") -> dict:
    """Runs a wrapper with the flags of sys.argv; returns the newest result of its model_dir."""
    from engine.cli import startup, tensorflow_import

    startup.start(sys.argv, "", "engine.cli.flags", _FLAGS[wrapper])
    tensorflow_import.import_tensorflow()
    from engine.cli.flags import FLAGS

    startup.run(importlib.import_module(wrapper).main)
    results = []
    for path in glob.glob(f"{glob.escape(FLAGS.model_dir)}/result_*.json"):
        with open(path) as file:
            results.append(json.load(file))
    return max(results, key=lambda result: result["step"])


def recipe(name, *arguments):
    """Returns (hyperparameters for 10 classes, parsed flags) of a file in configs/."""
    from engine.cli import hparams
    from engine.cli.flags import FLAGS
    from models import registry

    FLAGS(["", f"--flagfile=configs/{name}.cfg", *arguments, "--data_dir=x", "--model_dir=x"])
    return hparams.resolve(registry.find(FLAGS.model), FLAGS.params, {"num_classes": 10}), FLAGS


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
