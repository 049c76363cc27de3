"""Every kind of input that is fuzzed, by name."""

from __future__ import annotations

import importlib
import os
import sys

from tools.fuzzing import (
    checkpoint_files,
    conversion,
    picture_input,
    pictures,
    processes,
    running,
    serving,
    settings,
)

_ALL = (
    conversion,
    pictures,
    running,
    checkpoint_files,
    picture_input,
    settings,
    serving,
    processes,
)
BY_NAME = {target.name: target for module in _ALL for target in module.TARGETS}
# Imported once, before a child is forked; run_cpu and run_tpu define flags that differ.
_MODULES = (
    "prepare_data",
    "engine.cli.resolve_flags",
    "engine.checkpoints.recovery",
    "engine.cli.modes",
    "engine.cli.runtime",
)


def base_name(target) -> str:
    """Returns the name of a target's unmutated files, which several may share."""
    return getattr(target, "files", target.name)


def import_all() -> None:
    """Imports what the targets run."""
    from engine.cli import cpu_kernels

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    cpu_kernels.prefer_onednn()
    for name in _MODULES:
        importlib.import_module(name)
    sys.modules["engine.cli.runtime"].prepare()
