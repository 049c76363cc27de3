"""What both wrappers share: command line, training, evaluation, checkpoints and export."""
