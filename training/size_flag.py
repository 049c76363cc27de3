"""The flag `--image_size`. Imports no TensorFlow."""

from __future__ import annotations

import re

from absl import flags


def define(description: str, flag_values=flags.FLAGS) -> None:
    """Defines `--image_size=SIZE` or `HEIGHTxWIDTH`, whose value is `(height, width)` or None."""
    flags.DEFINE(
        _Parser(),
        "image_size",
        None,
        description,
        flag_values=flag_values,
        serializer=_Serializer(),
    )


class _Parser(flags.ArgumentParser):
    syntactic_help = "SIZE or HEIGHTxWIDTH, such as 224 or 224x320"

    def parse(self, argument):
        if isinstance(argument, tuple):
            return argument
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", argument):
            raise ValueError(f"it should be {self.syntactic_help}")
        height, _, width = argument.partition("x")
        return int(height), int(width or height)

    def flag_type(self):
        return "image size"


class _Serializer(flags.ArgumentSerializer):
    def serialize(self, value):
        return f"{value[0]}x{value[1]}"
