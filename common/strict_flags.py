"""Flag parsers that are stricter than absl's. Imports no TensorFlow.

A value that passes can be stored in a flagfile and read back unchanged, and a number fits into
TensorFlow's types.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata

from absl import flags

from common import names

# Some of TensorFlow's counters of steps and examples are int32.
MAX_INTEGER = 2**31 - 1
_MAX_SHOWN = 100  # characters of a value in a message
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# A flagfile cannot store these. A lone surrogate stands for a byte that is not UTF-8.
_NOT_TEXT = {"Cc": "a control character", "Cs": "a byte that is not UTF-8"}
_NOT_TEXT.update(Zl="a line separator", Zp="a paragraph separator")


def to_integer(text: str) -> int:
    """Parses a decimal integer of at most `MAX_INTEGER`; raises ValueError for other text."""
    text = text.strip()
    # int() also accepts underscores and digits of other scripts, and is slow for many digits.
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"'{shown(text)}' is not a decimal integer")
    if len(text.lstrip("+-0")) > len(str(MAX_INTEGER)) or abs(int(text)) > MAX_INTEGER:
        raise ValueError(f"it is larger than {MAX_INTEGER}")
    return int(text)


def to_float(text: str) -> float:
    """Parses a finite decimal number; raises ValueError for other text."""
    text = text.strip()
    if not _FLOAT.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError("it is not a finite decimal number")
    return float(text)


def check_text(text: str) -> str:
    """Returns `text` if one line of a flagfile can store it; raises ValueError otherwise."""
    for place, character in enumerate(text):
        problem = _NOT_TEXT.get(unicodedata.category(character))
        if problem:
            raise ValueError(f"character {place + 1} is {problem}")
    if text != text.strip():
        raise ValueError("it begins or ends with a space")
    return text


def to_path(text: str) -> str:
    """Returns a path with `~` and `~user` expanded, as a shell does."""
    path = os.path.expanduser(check_text(text))
    if path.startswith("~"):
        raise ValueError("the home folder of '~' is unknown; write ./~ for a folder of that name")
    return path


def shown(value: str) -> str:
    """Returns a flag value, shortened and escaped, for a one-line message."""
    short = value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}... ({len(value)})"
    return names.shown(short)


_CONVERTERS = {flags.IntegerParser: to_integer, flags.FloatParser: to_float}


class _StrictParser(flags.ArgumentParser):
    """Checks and converts the text of a value before the parser that a flag had."""

    def __init__(self, name, convert, parser):
        self._name, self._convert, self.wrapped = name, convert, parser
        self.syntactic_help = parser.syntactic_help

    def parse(self, argument):
        if isinstance(argument, str):
            text = _checked(self._name, check_text, argument)
            argument = _checked(self._name, self._convert, text)
        return self.wrapped.parse(argument)

    def flag_type(self):
        return self.wrapped.flag_type()


def _checked(name, check, argument):
    # absl would put the unescaped value into the message of a ValueError.
    try:
        return check(argument)
    except ValueError as error:
        raise flags.IllegalFlagValueError(f"flag --{name}={shown(argument)}: {error}") from error


def harden(flag_values: flags.FlagValues, module: str, paths: tuple[str, ...] = ()) -> None:
    """Replaces absl's parsers for the flags of one module with strict ones.

    Args:
      flag_values: the flags.
      module: name of the module that defines the flags.
      paths: names of the flags that hold a path, in which `~` is expanded.
    """
    for flag in flag_values.flags_by_module_dict().get(module, ()):
        parser = flag.parser
        if isinstance(parser, (_StrictParser, flags.BooleanParser)):
            continue
        convert = to_path if flag.name in paths else _CONVERTERS.get(type(parser), str)
        flag.parser = _StrictParser(flag.name, convert, parser)
