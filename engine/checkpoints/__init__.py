"""Checkpoints: find, verify, recover, average, warm start, keep the best."""
