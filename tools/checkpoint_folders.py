"""Folders of checkpoints that the converters read and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from common import files, flagfiles
from engine.cli import hparams
from models import registry


def flags_of(model_dir: str) -> list[tuple[str, str]]:
    """Returns (name, value) of the flags of a run, in flags.cfg of its model_dir."""
    return flagfiles.pairs(files.read_text(f"{model_dir}/flags.cfg"))


def params_of(flags: list[tuple[str, str]]) -> dict:
    """Returns the hyperparameters of a run without a data set, from `flags_of`.

    Raises:
      ModelError, UsageError: the model or a hyperparameter is unknown.
    """
    model = registry.find(dict(flags).get("model", ""))
    return hparams.resolve(model, [value for name, value in flags if name == "params"], None)


def write(
    out: str, contents: Mapping[str, bytes], write_weights: Callable[[str], None] | None = None
) -> None:
    """Writes a folder; it appears under its name when it is complete.

    Args:
      out: path, local or gs://.
      contents: `{name of a file: content}`.
      write_weights: function of the folder that adds other files, before these.
    """
    partial = files.partial_name(out)
    try:
        tf.io.gfile.makedirs(partial)
        if write_weights:
            write_weights(partial)
        for name, content in contents.items():
            with tf.io.gfile.GFile(f"{partial}/{name}", "wb") as file:
                file.write(content)
        tf.io.gfile.rename(partial, out)
    except BaseException:
        if tf.io.gfile.exists(partial):
            tf.io.gfile.rmtree(partial)
        raise
