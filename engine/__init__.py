"""Shared by both wrappers: command line, training, evaluation, checkpoints and export."""

from common import python_version

# Before modules that older versions of Python cannot import.
python_version.require()
