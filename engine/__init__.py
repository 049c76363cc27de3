"""Shared by both wrappers: command line, training, evaluation, checkpoints and export."""
