"""From records to batches, for every kind of data."""
