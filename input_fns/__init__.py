"""Input pipelines: from files to batches."""

from common.errors import OneLine


class DataError(OneLine, ValueError):
    """Data is missing, corrupted, or does not match the flags."""
