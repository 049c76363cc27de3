"""Parsers for flags that hold two sizes. Imports no TensorFlow."""

from __future__ import annotations

import re

from absl import flags

_MAX_DIGITS = 7


class SizeParser(flags.ArgumentParser):
    """Parses SIZE or HEIGHTxWIDTH into `(height, width)`."""

    syntactic_help = "SIZE or HEIGHTxWIDTH, such as 224 or 224x320"
    _pattern = r"[1-9][0-9]*(x[1-9][0-9]*)?"

    def parse(self, argument):
        """Returns `(height, width)`."""
        if isinstance(argument, tuple):
            return argument
        if not re.fullmatch(self._pattern, argument):
            raise ValueError(f"must be {self.syntactic_help}")
        height, _, width = argument.partition("x")
        if max(len(height), len(width)) > _MAX_DIGITS:
            raise ValueError(f"must be {self.syntactic_help}, each of at most {_MAX_DIGITS} digits")
        return int(height), int(width or height)

    def flag_type(self):
        """Returns the type name that `--help` prints."""
        return "image size"


class TextSizeParser(SizeParser):
    """Parses TOKENSxVOCABULARY into `(tokens, vocabulary)`."""

    syntactic_help = "TOKENSxVOCABULARY, such as 128x32768"
    _pattern = r"[1-9][0-9]*x[1-9][0-9]*"

    def flag_type(self):
        """Returns the type name that `--help` prints."""
        return "text size"


class SizeSerializer(flags.ArgumentSerializer):
    """Formats two sizes so that their parser can read them."""

    def serialize(self, value):
        """Returns SIZExSIZE."""
        return f"{value[0]}x{value[1]}"
