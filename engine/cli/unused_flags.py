"""Finds flags of the command line that the run does not read. Imports no TensorFlow.

Flags of a flagfile are never reported: the modes share a recipe.
"""

from __future__ import annotations

import os

from common.constants import ANNOTATION_TASKS, TABLE_TASKS
from common.errors import UsageError
from engine.cli.flags import (
    BEST_METRIC_MODES,
    FLAGS,
    MODES,
    TRAINING_MODES,
    TRANSLATION,
    is_of_command_line,
)

_SYNTHETIC = "synthetic"
_CONTINUOUS = "continuous_eval"
_BUILDS_TRAINING = (*TRAINING_MODES, "check")
# Flags that ask for something that other modes do not do: an error.
_NEEDS_MODE = {
    "checkpoint": ("eval", "predict", "export"),
    "early_stop_evals": BEST_METRIC_MODES,
    "predictions": ("predict", "export"),
    "max_eval_examples": ("eval", *BEST_METRIC_MODES),
    "skip_bad_records": _BUILDS_TRAINING,
    "check_report": ("check",),
    "check_run_steps": ("check",),
}
_OF_EXPORT = ("export_top_k", "export_text", "export_to_tpu")
# Flags of a step of the run that other modes do not have: the same command is often repeated with
# another --mode, so a line is printed.
_READ_IN = {
    # continuous_eval ends with the last step, for which --train_epochs needs the other two.
    **dict.fromkeys(("train_steps", "train_epochs"), (*_BUILDS_TRAINING, _CONTINUOUS)),
    **dict.fromkeys(("train_split", "train_batch_size"), (*_BUILDS_TRAINING, _CONTINUOUS)),
    **dict.fromkeys(("accumulate_steps", "augment", "oversample"), _BUILDS_TRAINING),
    **dict.fromkeys(("warm_start_from", "warm_start_include"), TRAINING_MODES),
    **dict.fromkeys(("keep_checkpoint_max", "summary_steps"), TRAINING_MODES),
    **dict.fromkeys(("strategy", "replicas", "group_by_length"), TRAINING_MODES),
    "data_service": TRAINING_MODES,
    "save_checkpoints_steps": _BUILDS_TRAINING,  # a TPU has no longer loops
    "iterations_per_loop": _BUILDS_TRAINING,
    **dict.fromkeys(("eval_split", "eval_splits"), tuple(m for m in MODES if m != "train")),
    "eval_batch_size": ("eval", *BEST_METRIC_MODES, "check"),
    "predict_batch_size": tuple(mode for mode in MODES if mode != "train"),
    "best_metric": (*BEST_METRIC_MODES, "check"),
    **dict.fromkeys(("eval_every_steps", "eval_every_epochs"), BEST_METRIC_MODES),
    "eval_every_minutes": ("train_and_eval",),
    "eval_timeout_secs": (_CONTINUOUS,),
    "export_dir": ("train_and_eval", "export"),
    "check_compiler": ("check",),
}
# Flags that the evaluator of a cluster reads.
_OF_EVALUATOR = (
    "eval_split",
    "eval_splits",
    "eval_batch_size",
    "predict_batch_size",
    "best_metric",
    "eval_every_steps",
    "eval_every_epochs",
    "eval_timeout_secs",
    "export_dir",
    "export_check",
)


def check() -> None:
    """Checks the flags that ask for something that this run does not do.

    Raises:
      UsageError: such a flag is on the command line.
    """
    for name, modes in _NEEDS_MODE.items():
        if _is_set(name) and FLAGS.mode not in modes:
            valid = " or ".join(f"--mode={mode}" for mode in modes)
            raise UsageError(f"--{name} has no effect with --mode={FLAGS.mode}. Use {valid}")
    for name in () if _exports() else _OF_EXPORT:
        if _is_set(name):
            raise UsageError(
                f"--{name} has no effect: --mode={FLAGS.mode} does not export. Use --mode=export, "
                "or --export_dir with --mode=train_and_eval"
            )
    if _is_set("warm_start_include") and not FLAGS.warm_start_from:
        raise UsageError("--warm_start_include has no effect without --warm_start_from. Remove it")
    _check_synthetic()


def report() -> None:
    """Prints the other flags of the command line that this mode does not read."""
    unread = [name for name, modes in _READ_IN.items() if FLAGS.mode not in modes]
    if not _exports() and FLAGS.mode != "check":
        unread.append("export_check")
    unread = [
        f"--{name}"
        for name in unread
        if is_of_command_line(name) and not (_is_cluster() and name in _OF_EVALUATOR)
    ]
    if unread:
        print(f"without effect with --mode={FLAGS.mode}: {', '.join(unread)}")


def _check_synthetic():
    names = [name for name in FLAGS if name.startswith("synthetic_") and _is_set(name)]
    is_synthetic = FLAGS.dataset == _SYNTHETIC
    if names and (not is_synthetic or FLAGS.data_dir is not None):
        reason = "whose data set is imitated" if is_synthetic else "only with --dataset=synthetic"
        other = "--data_dir" if is_synthetic else f"--dataset={FLAGS.dataset}"
        raise UsageError(f"--{names[0]} has no effect with {other}, {reason}. Remove it")
    if not is_synthetic or FLAGS.data_dir is not None:
        return
    shapes = ("synthetic_text", "synthetic_tables", "synthetic_audio", "image_size")
    shape, *others = [name for name in shapes if FLAGS[name].value is not None]
    if others:
        raise UsageError(f"--{others[0]} has no effect with --{shape}. Remove one of them")
    task = FLAGS.synthetic_task
    needed = "synthetic_text"
    if task in (*TABLE_TASKS, *ANNOTATION_TASKS):
        needed = "synthetic_tables" if task in TABLE_TASKS else "image_size"
    if shape != needed and (task != TRANSLATION or is_of_command_line("synthetic_task")):
        raise UsageError(
            f"--synthetic_task={task} has no effect with --{shape}: it needs --{needed}"
        )
    has_classes = shape == "image_size" or (
        shape == "synthetic_audio" and len(FLAGS.synthetic_audio) == 2
    )
    if _is_set("synthetic_classes") and not has_classes:
        raise UsageError(f"--synthetic_classes has no effect with --{shape}. Remove it")


def _is_set(name):
    """Returns whether the command line sets a flag to another value than its default."""
    return name in FLAGS and is_of_command_line(name) and FLAGS[name].value != FLAGS[name].default


def _exports():
    return FLAGS.mode == "export" or (FLAGS.mode == "train_and_eval" and bool(FLAGS.export_dir))


def _is_cluster():
    return bool(os.environ.get("TF_CONFIG")) and FLAGS.mode in TRAINING_MODES
