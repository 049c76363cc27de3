"""Warm start: initializes a new model from the checkpoint of another, ours or a published one."""

from __future__ import annotations

import re
from collections.abc import Mapping

import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import ema, find, verify


def find_checkpoint(path: str) -> str:
    """Returns the checkpoint `path`, or the newest in the folder `path`, written by any program.

    Raises:
      UsageError: there is none, or none that can be read.
    """
    found = find.find_in(path, is_trained=False)
    if found is None:
        raise UsageError(f"--warm_start_from: no checkpoint in {path}")
    return found


def init_from_checkpoint(
    checkpoint: str,
    include: str,
    variables: list[tf.Variable],
    checkpoint_map: Mapping[str, str] | None = None,
) -> None:
    """Makes the initializers of `variables` restore their values from `checkpoint`.

    Call it when the default graph is complete; on a TPU in scaffold_fn. A variable is restored from
    its own name, or, if the checkpoint has no such name, from its name in `checkpoint_map`. Its EMA
    starts at the same value. Replica 0 prints which variables keep their initial values: those that
    are missing from the checkpoint, or have another shape under their own name. The global step
    starts at 0.

    Args:
      checkpoint: path.
      include: regular expression of the whole name of a variable in the graph; others keep their
        initial values.
      variables: of the model, without those of the optimizer: momentum is not restored.
      checkpoint_map: `{name of a variable in the graph: name in a published checkpoint}`.

    Raises:
      UsageError: no variable can be restored, or shapes of mapped variables differ.
    """
    stored = dict(tf.train.list_variables(checkpoint))
    checkpoint_map = checkpoint_map or {}
    sources, skipped, missing, mismatched = [], [], [], []
    for variable in variables:
        name, shape = ema.saved_name(variable), variable.shape.as_list()
        if name == tf.compat.v1.GraphKeys.GLOBAL_STEP or not re.fullmatch(include, name):
            continue
        source = name if name in stored else checkpoint_map.get(name, name)
        if source not in stored:
            missing.append(name)
        elif stored[source] == shape:
            sources.append((source, variable))
        elif source == name:
            skipped.append(f"{name} ({stored[name]} in the checkpoint, {shape} in this model)")
        else:
            mismatched.append(f"{name} has shape {shape}, {source} has {stored[source]}")
    if mismatched:
        raise UsageError(
            f"--warm_start_from={checkpoint} does not match this model: "
            f"{verify.shorten(mismatched)}. Set --params to the sizes of the checkpoint, or use "
            "--warm_start_include to exclude these variables"
        )
    if not sources:
        raise UsageError(
            f"--warm_start_from={checkpoint} --warm_start_include={include} matches no variable of "
            f"this model; the checkpoint holds {verify.shorten(sorted(stored))}"
        )
    averages = [(source, ema.find_average(variable)) for source, variable in sources]
    averages = [(source, average) for source, average in averages if average is not None]
    # Pairs, not a dict: two variables may have the same source.
    tf.compat.v1.train.init_from_checkpoint(checkpoint, sources + averages)
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    if tf.get_static_value(replica) != 0:
        return
    print(f"warm start: restored {len(sources)} variables from {checkpoint}")
    for reason, names in (("shape differs", skipped), ("missing from it", missing)):
        if names:
            print(f"warm start: initialized {len(names)}, {reason}: {verify.shorten(names)}")
