"""Checks of local files that flags name, before the import of TensorFlow, which takes seconds.

They are those of `resolve_flags` that need no TensorFlow. It repeats them, and checks the rest:
gs://, the model and its hyperparameters, the contents of files.
"""

from __future__ import annotations

from common import files, folders
from common.errors import UsageError
from common.names import is_remote
from engine.checkpoints import checkpoint_files
from engine.cli import unused_flags
from engine.cli.flags import FLAGS, TRAINING_MODES, is_own_dataset, repaired_split, splits_read
from input_fns import DataError, dataset_info
from input_fns.dataset_info import DatasetInfo

_WITHOUT_LABELS = ("predict", "export")  # modes


def check() -> None:
    """Checks the data set and the checkpoints, and flags without effect.

    Raises:
      UsageError, DataError: one is missing, or the data set is another one or lacks a split.
    """
    unused_flags.check()
    is_prepared = FLAGS.dataset != "synthetic" and not is_own_dataset(FLAGS.dataset)
    if is_prepared and not is_remote(FLAGS.data_dir):
        splits = splits_read()
        data = dataset_info.load(FLAGS.data_dir, FLAGS.dataset, splits, repaired_split())
        for split in splits:
            check_split(data, split)
    if is_remote(FLAGS.model_dir):
        return
    _check_checkpoints()
    if FLAGS.mode in TRAINING_MODES and not folders.exists(FLAGS.model_dir):
        files.require_writable("model_dir", FLAGS.model_dir)


def check_split(data: DatasetInfo, name: str) -> None:
    """Checks that a split has examples, and labels if the mode needs them.

    Raises:
      DataError: it is missing or empty.
      UsageError: it has no labels.
    """
    require_split(data, name)
    if data.split(name).has_labels or FLAGS.mode in _WITHOUT_LABELS:
        return
    labelled = [other for other, split in data.splits.items() if split.has_labels]
    raise UsageError(
        f"--{_flag_of(name)}={name}: this split of {data.name} has no labels, which --mode="
        f"{FLAGS.mode} needs; it can be predicted only. Splits with labels: "
        f"{', '.join(labelled) or 'none'}"
    )


def require_split(data: DatasetInfo, name: str) -> None:
    """Checks that a data set has a split; the error names the flag, and a value for it.

    Raises:
      DataError: it is missing or empty.
    """
    try:
        data.split(name)
    except DataError as error:
        flag = _flag_of(name)
        other = FLAGS.eval_split if flag == "train_split" else FLAGS.train_split
        found = [
            known
            for known, split in data.splits.items()
            if split.num_examples and (split.has_labels or FLAGS.mode in _WITHOUT_LABELS)
        ]
        # "validation" before other splits; that of the training last.
        found.sort(key=lambda known: (known == other, known != "validation"))
        if not found:
            raise
        raise DataError(f"{error}. Set another one, such as --{flag}={found[0]}") from error


def _flag_of(split):
    """Returns the flag that names a split."""
    if split == FLAGS.train_split:
        return "train_split"
    return "eval_splits" if FLAGS.eval_splits else "eval_split"


def _check_checkpoints():
    if FLAGS.mode in ("eval", "predict", "export"):
        for which in checkpoint_files.ensemble_parts(FLAGS.checkpoint) or [FLAGS.checkpoint]:
            _check_checkpoint(FLAGS.model_dir, which)
    path = FLAGS.warm_start_from
    if FLAGS.mode not in TRAINING_MODES or not path or is_remote(path):
        return
    # With a checkpoint in model_dir the training resumes, and the flag is ignored.
    if not checkpoint_files.list_paths(FLAGS.model_dir) and not checkpoint_files.is_there(path):
        raise UsageError(f"--warm_start_from: no checkpoint in {path}")


def _check_checkpoint(model_dir, which):
    path = checkpoint_files.folder_or_path(model_dir, which)
    if checkpoint_files.is_made(which) or is_remote(path):
        return
    if not checkpoint_files.is_there(path):
        raise checkpoint_files.not_found(model_dir, which)
