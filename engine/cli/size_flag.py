"""How an image size is written in a flag. Imports no TensorFlow."""

from __future__ import annotations

import re

from absl import flags

_MOST_DIGITS = 7


class SizeParser(flags.ArgumentParser):
    """Reads SIZE or HEIGHTxWIDTH as `(height, width)`."""

    syntactic_help = "SIZE or HEIGHTxWIDTH, such as 224 or 224x320"

    def parse(self, argument):
        """Returns `(height, width)`."""
        if isinstance(argument, tuple):
            return argument
        if not re.fullmatch(r"[1-9][0-9]*(x[1-9][0-9]*)?", argument):
            raise ValueError(f"it should be {self.syntactic_help}")
        height, _, width = argument.partition("x")
        if max(len(height), len(width)) > _MOST_DIGITS:
            raise ValueError(f"it should be {self.syntactic_help}, of at most 7 digits each")
        return int(height), int(width or height)

    def flag_type(self):
        """For `--help`."""
        return "image size"


class SizeSerializer(flags.ArgumentSerializer):
    """Writes `(height, width)` as the parser reads it."""

    def serialize(self, value):
        """Returns HEIGHTxWIDTH."""
        return f"{value[0]}x{value[1]}"
