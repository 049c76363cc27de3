"""Parser for flags that hold an image size. Imports no TensorFlow."""

from __future__ import annotations

import re

from absl import flags

_MAX_DIGITS = 7


class SizeParser(flags.ArgumentParser):
    """Parses SIZE or HEIGHTxWIDTH into `(height, width)`."""

    syntactic_help = "SIZE or HEIGHTxWIDTH, such as 224 or 224x320"

    def parse(self, argument):
        """Returns `(height, width)`."""
        if isinstance(argument, tuple):
            return argument
        if not re.fullmatch(r"[1-9][0-9]*(x[1-9][0-9]*)?", argument):
            raise ValueError(f"must be {self.syntactic_help}")
        height, _, width = argument.partition("x")
        if max(len(height), len(width)) > _MAX_DIGITS:
            raise ValueError(f"must be {self.syntactic_help}, each of at most {_MAX_DIGITS} digits")
        return int(height), int(width or height)

    def flag_type(self):
        """Returns the type name that `--help` prints."""
        return "image size"


class SizeSerializer(flags.ArgumentSerializer):
    """Formats `(height, width)` so that `SizeParser` can read it."""

    def serialize(self, value):
        """Returns HEIGHTxWIDTH."""
        return f"{value[0]}x{value[1]}"
