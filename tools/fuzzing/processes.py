"""Target: the cases of other targets, in child processes."""

from __future__ import annotations

import dataclasses

from tools.fuzzing import case as cases
from tools.fuzzing import checkpoint_files, conversion, image_conversion, image_input, running

_MODULES = (conversion, image_conversion, running, checkpoint_files, image_input)
_TARGETS = tuple(target for module in _MODULES for target in module.TARGETS)


class Processes:
    """Runs cases of other targets as a user would run the program."""

    name = "process"
    time_limit = 150.0

    def prepare(self, base):
        """Writes the files of the other targets."""
        for target in _TARGETS:
            (base / target.name).mkdir()
            target.prepare(base / target.name)

    def run(self, case: cases.Case) -> str:
        """Runs a case of another target."""
        target = case.random.choice(_TARGETS)
        cases.spawn = True
        try:
            return target.run(dataclasses.replace(case, base=case.base / target.name))
        finally:
            cases.spawn = False


TARGETS = (Processes(),)
