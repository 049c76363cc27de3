"""TPU emulator: runs any TPUEstimator program, unmodified, on the cores of a CPU."""

from tpu.emulator.emulator import emulate

__all__ = ["emulate"]
