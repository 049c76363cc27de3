"""All fuzz targets, by name."""

from __future__ import annotations

import importlib
import os
import sys

from tools.fuzzing import (
    annotation_conversion,
    checkpoint_files,
    conversion,
    image_conversion,
    image_input,
    processes,
    running,
    serving,
    settings,
)

_ALL = (
    conversion,
    image_conversion,
    annotation_conversion,
    running,
    checkpoint_files,
    image_input,
    settings,
    serving,
    processes,
)
BY_NAME = {target.name: target for module in _ALL for target in module.TARGETS}
# Imported before child processes are forked; not run_cpu and run_tpu, whose flags conflict.
_MODULES = (
    "prepare_data",
    "engine.cli.resolve_flags",
    "engine.checkpoints.recovery",
    "engine.cli.modes",
    "engine.cli.runtime",
)


def base_name(target) -> str:
    """Returns the name of a target's valid files; several targets may share them."""
    return getattr(target, "files", target.name)


def import_all() -> None:
    """Imports the modules that the targets run."""
    from engine.cli import cpu_kernels

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    cpu_kernels.prefer_onednn()
    for name in _MODULES:
        importlib.import_module(name)
    sys.modules["engine.cli.runtime"].prepare()
