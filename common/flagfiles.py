"""Flagfiles on the command line: checked before absl reads them, and overridden by other flags.

absl would block on a pipe or an include cycle. Imports no TensorFlow.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable

from common.errors import UsageError
from common.names import is_remote, shown

_FLAGFILE = re.compile(r"--?flagfile(?:=(.*))?")
_MAX_BYTES = 2**20
_MAX_NAME = 200  # of a flag; absl compares an unknown name with others by a recursive function


def check(arguments: Iterable[str]) -> None:
    """Checks the names of flags and the flagfiles in a list of arguments, and in these flagfiles.

    Raises:
      UsageError: the name of a flag is too long, or a flagfile is missing, is not a UTF-8 text
        file, or includes itself.
    """
    _check(list(arguments), ())


def move_first(arguments: Iterable[str]) -> list[str]:
    """Returns the arguments with the flagfiles first: all other flags override them.

    absl lets the later of two flags win, so `--mode=check --flagfile=RECIPE` would train with a
    recipe that has `--mode=train`.
    """
    arguments = list(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flagfiles, others = [], []
    words = iter(arguments[:end])
    for word in words:
        found = _FLAGFILE.fullmatch(word)
        if found is None:
            others.append(word)
        else:
            flagfiles += [word] if found[1] is not None else [word, *itertools.islice(words, 1)]
    return flagfiles + others + arguments[end:]


def pairs(text: str) -> list[tuple[str, str]]:
    """Returns (name, value) of each line of a flags.cfg, as a run writes it."""
    return [line.lstrip("-").partition("=")[::2] for line in text.splitlines()]


def _check(arguments, including):
    for argument, following in zip(arguments, [*arguments[1:], ""]):
        if argument == "--":
            return
        name = argument.partition("=")[0]
        if name.startswith("-") and len(name) > _MAX_NAME:
            raise UsageError(f"unknown flag {shown(name[:40])}... of {len(name)} characters")
        found = _FLAGFILE.fullmatch(argument)
        if found is None:
            continue
        path = os.path.expanduser((following if found[1] is None else found[1]).strip("\"'"))
        if path:
            real = os.path.realpath(path)
            if real in including:
                raise UsageError(f"--flagfile={shown(path)} includes itself")
            _check(_lines(path), (*including, real))


def _lines(path):
    if is_remote(path):
        raise UsageError(
            f"--flagfile={shown(path)} is not a local file. Copy it to this machine, for example "
            "by 'gcloud storage cp', or call estimator_models (docs/python.md), which reads it"
        )
    inside = os.path.join(path, "flags.cfg")
    if os.path.isfile(inside):
        raise UsageError(f"--flagfile={shown(path)} is a folder. Write --flagfile={shown(inside)}")
    if not os.path.isfile(path):
        raise UsageError(f"--flagfile={shown(path)} is missing or not a file")
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
        text = content.decode()
        if text.startswith("\ufeff"):  # absl would not read the first flag
            raise UsageError(
                f"--flagfile={shown(path)} begins with a byte order mark. Save it as UTF-8 without "
                "BOM"
            )
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--flagfile={shown(path)} is not UTF-8 text: {error}") from error
    if len(content) > _MAX_BYTES:
        raise UsageError(f"--flagfile={shown(path)} has more than {_MAX_BYTES} bytes")
    return [line.strip() for line in text.splitlines()]
