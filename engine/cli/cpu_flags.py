"""The flags of run_cpu.py alone. Imports no TensorFlow."""

from __future__ import annotations

from absl import flags

import engine.cli.flags
from common import strict_flags

FLAGS = engine.cli.flags.FLAGS

STRATEGIES = ("none", "mirrored", "multi_worker_mirrored")

flags.DEFINE_enum(
    "strategy",
    "none",
    STRATEGIES,
    "How a training, and nothing else, is spread: mirrored over the GPUs of this machine, "
    "multi_worker_mirrored over the machines in TF_CONFIG; both in step, each device with its part "
    "of the global batch.",
)
flags.DEFINE_integer(
    "replicas",
    0,
    "Of mirrored: how many GPUs or, without a GPU, parts of the CPU; 0: all GPUs.",
    lower_bound=0,
)
strict_flags.harden(FLAGS, __name__)


@flags.multi_flags_validator(["strategy", "replicas"])
def _check_replicas(values):
    if values["replicas"] and values["strategy"] != "mirrored":
        raise flags.ValidationError("--replicas is for --strategy=mirrored")
    return True
