"""Warm start: initializes a new model from the checkpoint of another, ours or a published one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import ema, find, verify

# The numbered scope of a variable: ("bert/encoder/layer_", "11") of "bert/encoder/layer_11/bias".
_NUMBERED = re.compile(r"(.*?[^0-9])([0-9]+)(?=/|$)")


def find_checkpoint(path: str) -> str:
    """Returns the checkpoint `path`, or the newest in the folder `path`, written by any program.

    Raises:
      UsageError: there is none, or none that can be read.
    """
    try:
        found = find.find_in(path, is_trained=False)
    except UsageError as error:
        raise UsageError(f"--warm_start_from: {error}. Copy it again, or use another") from error
    if found is None:
        raise UsageError(f"--warm_start_from: no checkpoint in {path}")
    return found


def init_from_checkpoint(
    checkpoint: str,
    include: str,
    variables: list[tf.Variable],
    scope: str = "",
    dataset_variables: Sequence[str] = (),
) -> None:
    """Makes the initializers of `variables` restore their values from `checkpoint`.

    Call it when the default graph is complete; on a TPU in scaffold_fn. A variable is restored from
    its name; if the checkpoint has an EMA of it, from that, as evaluation does. Its EMA starts at
    the same value. Replica 0 prints which variables keep their initial values: those that are
    missing from the checkpoint, or have another shape. The global step starts at 0.

    Args:
      checkpoint: path.
      include: regular expression of the whole name of a variable in the graph; others keep their
        initial values.
      variables: of the model, without those of the optimizer: momentum is not restored.
      scope: regular expression of the whole names of variables that must all be restored, see
        `Model.warm_start_scope`; `include` narrows it.
      dataset_variables: regular expressions of the whole names of variables that keep the values of
        the data set, see `Model.dataset_variables`.

    Raises:
      UsageError: no variable can be restored, or the variables in `scope` are not those of the
        checkpoint.
    """
    stored = dict(tf.train.list_variables(checkpoint))
    if scope:
        _check_scope(checkpoint, stored, include, scope, variables)
    sources, kept, skipped, missing = [], [], [], []
    for variable in _join_partitions(variables):
        first = variable[0] if isinstance(variable, list) else variable
        name, shape = ema.saved_name(first), ema.saved_shape(first)
        if name == tf.compat.v1.GraphKeys.GLOBAL_STEP or not re.fullmatch(include, name):
            continue
        if any(re.fullmatch(pattern, name) for pattern in dataset_variables):
            kept.append(name)
        elif name not in stored:
            missing.append(name)
        elif stored[name] == shape:
            sources.append((name, variable))
        else:
            skipped.append(f"{name} ({stored[name]} in the checkpoint, {shape} in this model)")
    if not sources:
        raise UsageError(
            f"--warm_start_from={checkpoint} --warm_start_include={include} matches no variable of "
            f"this model; the checkpoint holds {verify.shorten(sorted(stored))}"
        )
    names = {name: ema.average_name(name) for name, _ in sources}
    num_averages = sum(names[name] in stored for name, _ in sources)
    sources = [
        (names[name] if names[name] in stored else name, variable) for name, variable in sources
    ]
    averages = [
        (source, ema.find_average(variable))
        for source, variable in sources
        if not isinstance(variable, list)  # lazy embeddings have no EMA
    ]
    averages = [(source, average) for source, average in averages if average is not None]
    # Pairs, not a dict: a variable, its average and its copies have the same source.
    tf.compat.v1.train.init_from_checkpoint(checkpoint, sources + averages)
    if not verify.is_first_replica():
        return
    which = f", {num_averages} of them from their moving average (EMA)" if num_averages else ""
    print(f"warm start: restored {len(sources)} variables from {checkpoint}{which}")
    for reason, names in (
        ("values of the data set", kept),
        ("shape differs", skipped),
        ("missing from it", missing),
    ):
        if names:
            print(f"warm start: initialized {len(names)}, {reason}: {verify.shorten(names)}")
    _print_skipped(stored, {ema.saved_name(variable) for variable in variables})


def _print_skipped(stored, names):
    """Prints the scopes of variables in the checkpoint, slots aside, that the model lacks."""
    unused = {
        name
        for name in stored.keys() - names - {tf.compat.v1.GraphKeys.GLOBAL_STEP}
        if name.rpartition("/")[0] not in stored
    }
    if unused:
        counts = Counter(re.sub("/.*", "/*", name) for name in unused)
        scopes = [f"{scope} ({count})" for scope, count in sorted(counts.items())]
        print(f"warm start: skipped {len(unused)} of the checkpoint: {verify.shorten(scopes)}")


def _join_partitions(variables):
    """Returns `variables` with the partitions of each partitioned variable as a list."""
    joined, partitions = [], {}
    for variable in variables:
        if not variable._get_save_slice_info():
            joined.append(variable)
            continue
        name = ema.saved_name(variable)
        if name not in partitions:
            joined.append(partitions.setdefault(name, []))
        partitions[name].append(variable)
    return joined


def _check_scope(checkpoint, stored, include, scope, variables):
    """Raises `UsageError` unless checkpoint and model have the same variables in `scope`.

    Slots and averages in the checkpoint, `<variable>/<slot>`, are not counted.
    """

    def in_scope(name):
        return re.fullmatch(scope, name) and re.fullmatch(include, name)

    names = {ema.saved_name(variable): ema.saved_shape(variable) for variable in variables}
    ours = {name: shape for name, shape in names.items() if in_scope(name)}
    theirs = {
        name: shape
        for name, shape in stored.items()
        if name in ours or (in_scope(name) and name.rpartition("/")[0] not in stored)
    }
    lines, counted = [], set()
    # One line for the layers that one side lacks, such as layer_6 to layer_11, not one for each
    # variable of them.
    found = {match[1] for match in map(_NUMBERED.match, {*ours, *theirs}) if match}
    for prefix in sorted(found):
        numbers = [
            {match[2] for match in map(_NUMBERED.match, side) if match and match[1] == prefix}
            for side in (theirs, ours)
        ]
        if numbers[0] != numbers[1]:
            lines.append(
                f"{len(numbers[0])} {prefix}* in the checkpoint, {len(numbers[1])} in this model"
            )
            counted |= {prefix + number for number in numbers[0] ^ numbers[1]}
    for name in sorted({*ours, *theirs}):
        match = _NUMBERED.match(name)
        if match and match[0] in counted:
            continue
        if name not in theirs:
            lines.append(f"{name} {ours[name]} is missing from the checkpoint")
        elif name not in ours:
            lines.append(f"{name} {theirs[name]} is missing from this model")
        elif theirs[name] != ours[name]:
            lines.append(f"{name} is {theirs[name]} in the checkpoint, {ours[name]} in this model")
    if lines:
        raise UsageError(
            f"--warm_start_from={checkpoint} does not match this model: {verify.shorten(lines)}. "
            "Set --model, --params and the vocabulary of the data set to those of the checkpoint, "
            "or use --warm_start_include to restore only some of the variables"
        )
