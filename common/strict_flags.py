"""Flag values that are checked more strictly than absl does. Imports no TensorFlow.

Whatever passes can be written into a flagfile and read from it again, and is a number that
TensorFlow can hold.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata

from absl import flags

from common import names

# What TensorFlow counts steps and examples in is 32 bits wide in places.
MAX_INTEGER = 2**31 - 1
_MOST_SHOWN = 100  # characters of a value
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Control characters end a line of a flagfile; half a surrogate pair is a byte that is not UTF-8.
_NOT_TEXT = {"Cc": "a control character", "Cs": "a byte that is not UTF-8"}
_NOT_TEXT.update(Zl="a line separator", Zp="a paragraph separator")


def to_integer(text: str) -> int:
    """Returns a number written in decimal digits; raises ValueError for any other text."""
    text = text.strip()
    # int() would take digits of other scripts and underscores too, and time for a million digits.
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"invalid literal for int() with base 10: '{shown(text)}'")
    if len(text.lstrip("+-0")) > len(str(MAX_INTEGER)) or abs(int(text)) > MAX_INTEGER:
        raise ValueError(f"it is larger than {MAX_INTEGER}")
    return int(text)


def to_float(text: str) -> float:
    """Returns a finite decimal number; raises ValueError for any other text."""
    text = text.strip()
    if not _FLOAT.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError("it is not a finite decimal number")
    return float(text)


def check_text(text: str) -> str:
    """Returns a text that fits into a line of a flagfile; raises ValueError for any other."""
    for place, character in enumerate(text):
        problem = _NOT_TEXT.get(unicodedata.category(character))
        if problem:
            raise ValueError(f"character {place + 1} is {problem}")
    if text != text.strip():
        raise ValueError("it begins or ends with a space")
    return text


def to_path(text: str) -> str:
    """Returns a path whose `~` or `~user` is expanded as a shell does."""
    path = os.path.expanduser(check_text(text))
    if path.startswith("~"):
        raise ValueError("the home folder of '~' is unknown; write ./~ for a folder of that name")
    return path


def shown(value: str) -> str:
    """Returns a value for a message of one line."""
    short = value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}... ({len(value)})"
    return names.shown(short)


class _IntegerParser(flags.IntegerParser):
    def __init__(self, name, lower_bound, upper_bound):
        super().__init__(lower_bound, upper_bound)
        self._name = name

    def convert(self, argument):
        if isinstance(argument, str):
            return _checked(self._name, to_integer, argument)
        return super().convert(argument)


class _FloatParser(flags.FloatParser):
    def __init__(self, name, lower_bound, upper_bound):
        super().__init__(lower_bound, upper_bound)
        self._name = name

    def convert(self, argument):
        if isinstance(argument, str):
            return _checked(self._name, to_float, argument)
        return super().convert(argument)


class _TextParser(flags.ArgumentParser):
    def __init__(self, name, check):
        self._name, self._check = name, check

    def parse(self, argument):
        return _checked(self._name, self._check, argument)


class _EnumParser(flags.EnumParser):
    def __init__(self, name, values, case_sensitive):
        super().__init__(values, case_sensitive)
        self._name = name

    def parse(self, argument):
        return super().parse(_checked(self._name, check_text, argument))


class _ListParser(flags.ListParser):
    def __init__(self, name):
        super().__init__()
        self._name = name

    def parse(self, argument):
        if isinstance(argument, str):
            _checked(self._name, check_text, argument)
        return super().parse(argument)


class _OtherParser(flags.ArgumentParser):
    def __init__(self, name, parser):
        self._name, self._parser = name, parser
        self.syntactic_help = parser.syntactic_help

    def parse(self, argument):
        if isinstance(argument, str):
            _checked(self._name, check_text, argument)
        return self._parser.parse(argument)

    def flag_type(self):
        return self._parser.flag_type()


def _checked(name, check, argument):
    # Not as ValueError: absl would put the value into the message as it is.
    try:
        return check(argument)
    except ValueError as error:
        raise flags.IllegalFlagValueError(f"flag --{name}={shown(argument)}: {error}") from error


def harden(flag_values: flags.FlagValues, module: str, paths: tuple[str, ...] = ()) -> None:
    """Replaces the parsers of the flags that a module defined.

    Args:
      flag_values: the flags.
      module: name of the module.
      paths: names of the flags that are paths: `~` is expanded.
    """
    for flag in flag_values.flags_by_module_dict().get(module, ()):
        name, parser = flag.name, flag.parser
        if type(parser) is flags.IntegerParser:
            flag.parser = _IntegerParser(name, parser.lower_bound, parser.upper_bound)
        elif type(parser) is flags.FloatParser:
            flag.parser = _FloatParser(name, parser.lower_bound, parser.upper_bound)
        elif type(parser) is flags.EnumParser:
            flag.parser = _EnumParser(name, tuple(parser.enum_values), parser.case_sensitive)
        elif type(parser) is flags.ListParser:
            flag.parser = _ListParser(name)
        elif type(parser) is flags.ArgumentParser:
            flag.parser = _TextParser(name, to_path if name in paths else check_text)
        elif not isinstance(parser, flags.BooleanParser):
            flag.parser = _OtherParser(name, parser)
