"""Flags that only run_cpu.py has. Imports no TensorFlow."""

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
    "Synchronous data-parallel training: mirrored over the GPUs of this machine, or "
    "multi_worker_mirrored over the machines in TF_CONFIG. Each replica computes an equal slice of "
    "the global batch and gradients are all-reduced. Evaluation and prediction use one device.",
)
flags.DEFINE_integer(
    "replicas",
    0,
    "For mirrored: number of GPUs, or of virtual CPU devices on a machine without a GPU; 0 uses "
    "all GPUs.",
    lower_bound=0,
)
flags.DEFINE_boolean(
    "dynamic_padding",
    True,
    "Text for BERT: pads each batch to its longest row instead of the max_length of the data set. "
    "False keeps the static shapes of a TPU.",
)
flags.DEFINE_boolean(
    "group_by_length",
    False,
    "Text for BERT: trains on batches of rows of similar length, which --dynamic_padding makes "
    "shorter. Faster for texts much shorter than max_length; each epoch has every row once.",
)
strict_flags.harden(FLAGS, __name__)


@flags.multi_flags_validator(["group_by_length", "dynamic_padding", "accumulate_steps"])
def _check_group_by_length(values):
    if values["group_by_length"] and not values["dynamic_padding"]:
        raise flags.ValidationError("--group_by_length needs --dynamic_padding")
    if values["group_by_length"] and values["accumulate_steps"] > 1:
        raise flags.ValidationError(
            "--group_by_length has no use with --accumulate_steps, which pads to max_length. "
            "Remove one of them"
        )
    return True


@flags.multi_flags_validator(["strategy", "replicas"])
def _check_replicas(values):
    if values["replicas"] and values["strategy"] != "mirrored":
        raise flags.ValidationError("--replicas needs --strategy=mirrored")
    return True
