"""Checks the flags of the program in the image, those after `--`, with the program's own parser."""

from __future__ import annotations

import dataclasses
import os
import re

from engine.cli import startup

_FLAGS_MODULES = {
    "run_cpu.py": ("engine.cli.flags", "engine.cli.cpu_flags"),
    "run_tpu.py": ("engine.cli.flags", "tpu.connect.flags"),
}
_FLAGFILE = re.compile(r"--?flagfile=(.+)")
_STRATEGY = re.compile(r"--?strategy=(.+)")
_PATHS = ("model_dir", "export_dir", "data_dir", "warm_start_from")


@dataclasses.dataclass(frozen=True)
class ProgramFlags:
    """The program's flags that a manifest depends on.

    Attributes:
      is_parsed: False for a program of your own, and if a flagfile is not on this machine.
      strategy: --strategy.
      mode: --mode; "" if not parsed.
      early_stop_evals: --early_stop_evals.
      seed: --seed.
      paths: `{flag: path}` of the flags that are set and name a folder or checkpoint.
    """

    is_parsed: bool = False
    strategy: str = "none"
    mode: str = ""
    early_stop_evals: int = 0
    seed: int | None = None
    paths: dict[str, str] = dataclasses.field(default_factory=dict)


def parse(program: str, arguments: list[str], doc: str) -> ProgramFlags:
    """Parses the flags of run_cpu.py or run_tpu.py. An invalid flag exits with status 2.

    Flagfiles are read from this machine; the image has those of configs/.

    Args:
      program: name of the program in the image.
      arguments: its flags.
      doc: printed by --help.
    """
    if program not in _FLAGS_MODULES or missing_flagfiles(arguments):
        strategies = [found[1] for found in map(_STRATEGY.fullmatch, arguments) if found]
        return ProgramFlags(strategy=strategies[-1] if strategies else "none")
    values = startup.start([program, *arguments], doc, *_FLAGS_MODULES[program])
    return ProgramFlags(
        is_parsed=True,
        strategy=values.strategy if program == "run_cpu.py" else "none",
        mode=values.mode,
        early_stop_evals=values.early_stop_evals,
        seed=values.seed,
        paths={name: values[name].value for name in _PATHS if values[name].value},
    )


def missing_flagfiles(arguments: list[str]) -> list[str]:
    """Returns the paths of the flagfiles that are not on this machine."""
    paths = [found[1] for found in map(_FLAGFILE.fullmatch, arguments) if found]
    return [path for path in paths if not os.path.isfile(path)]
