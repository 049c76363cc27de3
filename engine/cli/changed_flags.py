"""What a training that resumes changes: its flags beside those in flags.cfg of model_dir."""

from __future__ import annotations

import os

from common import files, flagfiles
from common.errors import UsageError
from common.folders import is_file
from engine.cli import hparams
from models import registry
from models.model import ModelError

# Flags of a training that is only longer, elsewhere, or watched in another way.
_FREE = {
    "mode", "train_steps", "train_epochs", "model_dir", "data_dir", "cache", "data_service",
    "warm_start_from", "warm_start_include", "save_checkpoints_steps", "keep_checkpoint_max",
    "summary_steps", "iterations_per_loop", "best_metric", "early_stop_evals", "checkpoint",
    "max_eval_examples", "devices", "undefok",
}  # fmt: skip
# A comment begins with "#".
_FREE_PREFIXES = ("eval_", "predict_", "export_", "tpu", "pjrt_", "check_", "#")
# A comment of flags.cfg, in the form of a flag: `SplitInfo.identity` of the training split.
TRAINING_DATA = "# training_data"
# What changes the weights of a training of equal length, besides the flags of synthetic data.
_OF_WEIGHTS = {
    "model", "dataset", "train_split", "train_batch_size", "accumulate_steps", "precision",
    "augment", "oversample", "image_size", "group_by_length", "seed", TRAINING_DATA,
}  # fmt: skip
_SHOWN = 6


def describe(model_dir: str, flagfile: str, of_weights: bool = False) -> str:
    """Returns the flags that differ, such as "learning_rate=0.1 (before: 0.01)"; "" if none do.

    Args:
      model_dir: folder whose flags.cfg is that of the training that is resumed.
      flagfile: text of the flags of this run, as flags.cfg has them.
      of_weights: whether only what changes the weights is compared: the model, its
        hyperparameters, the training data, and flags such as the batch size.
    """
    path = os.path.join(model_dir, "flags.cfg")
    if not is_file(path):
        return ""
    try:
        before, now = (_values(text, of_weights) for text in (files.read_text(path), flagfile))
    except ValueError:  # it only repeats the flags
        return ""
    if of_weights and "seed" not in now:  # any seed will do
        before.pop("seed", None)
    if TRAINING_DATA not in before:  # of an older version
        now.pop(TRAINING_DATA, None)
    same = _written_otherwise(now, before)
    lines = [
        f"{name.lstrip('# ')}={now.get(name, 'default')} (before: {before.get(name, 'default')})"
        for name in dict.fromkeys((*now, *before))
        if now.get(name) != before.get(name) and name not in same
    ]
    more = f", and {len(lines) - _SHOWN} more" if lines[_SHOWN:] else ""
    return ", ".join(lines[:_SHOWN]) + more


def _written_otherwise(now, before):
    """Returns the hyperparameters with the same value in another form: 1e-2 and 0.01, a default."""
    if now.get("model") != before.get("model"):
        return set()
    try:
        model = registry.find(now["model"])
        known = {*hparams.resolve(model, [], None)}
        values, others = (
            hparams.resolve(model, [f"{n}={v}" for n, v in of.items() if n in known], None)
            for of in (now, before)
        )
    except (UsageError, ModelError, KeyError):  # of another version
        return set()
    return {name for name in known & {*now, *before} if values[name] == others[name]}


def _values(text, of_weights):
    """Returns `{flag or hyperparameter: text}` of a flagfile."""
    found: dict[str, str] = {}
    for name, value in flagfiles.pairs(text):
        if of_weights:
            is_compared = name in _OF_WEIGHTS or name.startswith("synthetic_")
        else:
            is_compared = name not in _FREE and not name.startswith(_FREE_PREFIXES)
        if name == "params":
            found.update(pair for _, pair in hparams.pairs([value]))
        elif is_compared:
            found[name] = value or "true"
    return found
