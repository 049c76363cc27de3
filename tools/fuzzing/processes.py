"""Target: whole programs, in processes of their own."""

from __future__ import annotations

import dataclasses

from tools.fuzzing import case as cases
from tools.fuzzing import checkpoint_files, conversion, picture_input, pictures, running

_MODULES = (conversion, pictures, running, checkpoint_files, picture_input)
_TARGETS = tuple(target for module in _MODULES for target in module.TARGETS)


class Processes:
    """The cases of other targets, a program each; their faults are those of a user."""

    name = "process"
    time_limit = 150.0

    def prepare(self, base):
        """Writes what the other targets need."""
        for target in _TARGETS:
            (base / target.name).mkdir()
            target.prepare(base / target.name)

    def run(self, case: cases.Case) -> str:
        """Runs a case of one of them."""
        target = case.random.choice(_TARGETS)
        cases.spawn = True
        try:
            return target.run(dataclasses.replace(case, base=case.base / target.name))
        finally:
            cases.spawn = False


TARGETS = (Processes(),)
