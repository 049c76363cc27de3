"""What is fed: files in, batches out."""


class DataError(ValueError):
    """Data that is missing, broken, or not what was asked for."""
