"""All fuzz targets, by name."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys

from tools.fuzzing import (
    annotation_conversion,
    checkpoint_files,
    conversion,
    image_conversion,
    image_input,
    running,
    serving,
    settings,
)
from tools.fuzzing import case as cases

_ALL = (
    conversion,
    image_conversion,
    annotation_conversion,
    running,
    checkpoint_files,
    image_input,
    settings,
    serving,
)
# Imported before child processes are forked; not run_cpu and run_tpu, whose flags conflict.
_MODULES = (
    "prepare_data",
    "engine.cli.resolve_flags",
    "engine.checkpoints.recovery",
    "engine.cli.modes",
    "engine.cli.runtime",
)


class Processes:
    """Cases of other targets in child processes, as a user would run the program."""

    name = "process"
    time_limit = 150.0
    _modules = (conversion, image_conversion, running, checkpoint_files, image_input)
    _targets = tuple(target for module in _modules for target in module.TARGETS)

    def prepare(self, base):
        """Writes the files of the other targets."""
        for target in self._targets:
            (base / target.name).mkdir()
            target.prepare(base / target.name)

    def run(self, case: cases.Case) -> str:
        """Runs a case of another target."""
        target = case.random.choice(self._targets)
        cases.spawn = True
        try:
            return target.run(dataclasses.replace(case, base=case.base / target.name))
        finally:
            cases.spawn = False


BY_NAME = {
    target.name: target
    for target in (*(target for module in _ALL for target in module.TARGETS), Processes())
}


def import_all() -> None:
    """Imports the modules that the targets run."""
    from engine.cli import cpu_kernels

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    cpu_kernels.prefer_onednn()
    for name in _MODULES:
        importlib.import_module(name)
    sys.modules["engine.cli.runtime"].prepare()
