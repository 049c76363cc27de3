"""Ensembles (--checkpoint=ensemble:A,B,...): the mean prediction of several checkpoints of a model.

The members are variables of one graph, so every mode and wrapper treats an ensemble as a network:
`write` makes one checkpoint of all, and `model_of` builds the networks.
"""

from __future__ import annotations

import dataclasses
import os
import re
import zlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import writer
from models.model import Model

_SCOPE = "member_{}"


def write(model_dir: str, paths: Sequence[str]) -> str:
    """Writes the variables of all members as one checkpoint; returns its path.

    Its global step is that of the first.

    Args:
      model_dir: the checkpoint is written to `model_dir/ensemble_<checksum of the paths>`.
      paths: the checkpoints.
    """
    values = {}
    for number, path in enumerate(paths):
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            if name != tf.compat.v1.GraphKeys.GLOBAL_STEP:
                values[f"{_SCOPE.format(number)}/{name}"] = reader.get_tensor(name)
            elif not number:
                values[name] = reader.get_tensor(name)
    folder = f"ensemble_{zlib.crc32(' '.join(paths).encode()):08x}"
    written = os.path.join(model_dir, folder, os.path.basename(paths[0]))
    writer.write(written, values)
    print(f"ensemble of {', '.join(paths)}: {written}")
    return written


def model_of(model: Model, params: dict[str, Any], count: int) -> tuple[Model, dict[str, Any]]:
    """Returns the model whose inference is the mean of `count` networks, and its hyperparameters.

    Raises:
      UsageError: the model does not define the mean of its outputs.
    """
    if model.mean_outputs is None or model.decode is not None:
        raise UsageError(
            f"--checkpoint=ensemble: model '{model.name}' does not define the mean of predictions "
            "(mean_outputs). Use one checkpoint"
        )

    def inference(features, params, training):
        members = []
        for number in range(count):
            with tf.compat.v1.variable_scope(_SCOPE.format(number)):
                outputs = model.inference(features, params, training)
                members.append({k: tf.cast(v, tf.float32) for k, v in outputs.items()})
        stacked = {name: tf.stack([outputs[name] for outputs in members]) for name in members[0]}
        return model.mean_outputs(stacked, params)

    mean = dataclasses.replace(model, inference=inference, other_predictions={})
    # Frozen variables have no moving average. Flags of a pattern must stand at its start.
    of_pattern = re.match(r"(\(\?[a-zA-Z]+\))?", params["trainable"])[0]
    pattern = params["trainable"][len(of_pattern) :]
    member = _SCOPE.format(r"\d+")
    return mean, {**params, "trainable": f"{of_pattern}{member}/(?:{pattern})"}
