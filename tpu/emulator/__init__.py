"""TPU emulator: runs unmodified TPUEstimator programs on a CPU.

from tpu import emulator

with emulator.emulate("v3-8"):
    main()
"""

from tpu.emulator.emulator import emulate

__all__ = ["emulate"]
