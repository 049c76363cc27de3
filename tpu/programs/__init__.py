"""Runs, checks and compares TPUEstimator programs, unmodified, without a TPU."""
