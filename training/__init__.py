"""What both wrappers share around a model."""
