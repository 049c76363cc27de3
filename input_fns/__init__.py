"""Input pipelines: from files to batches."""


class DataError(ValueError):
    """Data is missing, corrupted, or does not match the flags."""
