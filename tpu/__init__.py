"""TPU connection, emulator and check, for any TPUEstimator program."""
