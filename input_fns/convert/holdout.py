"""Holds out examples of the training split for validation and test, stratified by class."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from common.names import printable
from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.source import RawSplit, has_labels

# Default if only the training split has labels; for text at most _MAX_DEFAULT_PAIRS pairs.
_DEFAULT_VALIDATION = 0.1
_MAX_DEFAULT_PAIRS = 2000


def hold_out(splits: Mapping[str, RawSplit], options: Options) -> dict[str, RawSplit]:
    """Returns the splits, with `validation` and `test` held out of `train` as in `options`.

    Stratified by class; examples of one group stay together and count for the class of the first.
    The choice is a function of `options.seed`.

    Raises:
      DataError: a split to hold out exists already, or would be empty.
    """
    fractions = {"validation": options.validation_fraction, "test": options.test_fraction}
    labelled = {name for name, split in splits.items() if has_labels(split)}
    is_default = fractions == {"validation": None, "test": None}
    if is_default and labelled == {"train"} and "validation" not in splits:
        fractions["validation"] = _DEFAULT_VALIDATION
        if splits["train"].labels is None and _targets(splits["train"]) is None:
            share = _MAX_DEFAULT_PAIRS / max(1, len(splits["train"]))
            smallest = _smallest(splits["train"]) / max(1, len(splits["train"]))
            fractions["validation"] = max(min(_DEFAULT_VALIDATION, share), smallest)
    fractions = {name: fraction for name, fraction in fractions.items() if fraction}
    if not fractions:
        return dict(splits)
    if "train" not in splits:
        raise DataError(f"there is no split 'train' to hold out of: {', '.join(splits)}")
    for name in fractions:
        if name in splits:
            raise DataError(f"--{name}_fraction: {options.source} already has a split '{name}'")
    train = splits["train"]
    indices = choose(_strata(train, options.task), train.groups, fractions, options.seed)
    held_out = {name: train.take(chosen) for name, chosen in indices.items()}
    for name, split in held_out.items():
        if len(split) < _smallest(train):
            raise DataError(
                f"split '{name}' would have {len(split) or 'no'} example"
                f"{'s' * (len(split) > 1)} of {len(train)}, and needs {_smallest(train)}; those of "
                f"one group, such as equal texts, stay together. Set --validation_fraction or "
                "--test_fraction, to 0 to hold nothing out, or add examples"
            )
    return {**splits, **held_out}


def check_groups(splits: Mapping[str, RawSplit], options: Options) -> None:
    """Checks that no group of --group_column is in "train" and in another split of the source.

    Other groups, such as those of equal texts, may be: the splits are given.

    Raises:
      DataError: a group is in both.
    """
    if not options.group_column or "train" not in splits:
        return
    trained = _names_of_groups(splits["train"])
    for name, split in splits.items():
        shared = sorted(trained & _names_of_groups(split)) if name != "train" else []
        if shared:
            raise DataError(
                f"the group '{printable(shared[0])}' of --group_column={options.group_column} is "
                f"in 'train' and in '{name}'"
                f"{f', as are {len(shared) - 1} others' if shared[1:] else ''}: an evaluation "
                "would use examples of groups that were trained on. Move each group to one split, "
                "or remove --group_column"
            )


def require_groups_matter(splits: Mapping[str, RawSplit], options: Options) -> None:
    """Checks that --group_column decides something of the final splits, if it is given.

    Raises:
      DataError: there is only "train", or everything else.
    """
    if options.group_column and ("train" not in splits or len(splits) == 1):
        reason = "nothing is held out of 'train'"
        if "train" not in splits:
            reason = f"there is no split 'train', only {', '.join(splits)}"
        raise DataError(f"--group_column={options.group_column} has no effect: {reason}. Remove it")


def _targets(split):
    return getattr(split, "targets", None)


def _strata(split, task):
    """Returns the class of each example, int64 `[size]`; of several the rarest one, or -1."""
    targets = _targets(split)
    if split.labels is not None:
        return split.labels
    if targets is None or task not in ("multilabel", "soft_labels"):
        return np.zeros(len(split), int)
    is_class = targets >= (1 if task == "multilabel" else targets.max(axis=1, keepdims=True))
    order = np.argsort(is_class.sum(axis=0), kind="stable")  # the rarest class first
    return np.where(is_class.any(axis=1), order[is_class[:, order].argmax(axis=1)], -1)


def _names_of_groups(split):
    return set() if split.groups is None else set(map(str, split.groups.tolist())) - {""}


def _smallest(split):
    """Returns the number of examples that a split needs."""
    return getattr(split, "smallest", 1)


def shuffled(split: RawSplit, seed: int) -> RawSplit:
    """Returns the split in a random order, a function of `seed`."""
    return split.take(np.random.default_rng(seed).permutation(len(split)))


def choose(
    labels: np.ndarray, groups: np.ndarray | None, fractions: Mapping[str, float], seed: int
) -> dict[str, np.ndarray]:
    """Returns the sorted indices of "train" and of each split of `fractions`.

    Args:
      labels: int64 `[size]`.
      groups: `[size]`, equal for examples that must stay together, or None.
      fractions: `{split: fraction of each class}`.
      seed: seed of the choice.
    """
    random = np.random.default_rng(seed)
    if groups is None:
        groups = np.arange(len(labels))
    _, first, group_of, sizes = np.unique(
        _numbered(groups) if groups.dtype == object else groups,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    names = ["train", *fractions]
    split_of_group = np.zeros(len(first), int)
    for label in np.unique(labels):
        of_class = random.permutation(np.flatnonzero(labels[first] == label))
        total, taken = sizes[of_class].sum(), np.cumsum(sizes[of_class])
        start = 0
        for number, fraction in enumerate(fractions.values(), start=1):
            # Groups whose middle is within the fraction: rounds to the nearest group.
            end = start + fraction * total
            middle = taken - sizes[of_class] / 2
            split_of_group[of_class[(middle > start) & (middle <= end)]] = number
            start = end
    split_of = split_of_group[group_of]
    return {name: np.flatnonzero(split_of == number) for number, name in enumerate(names)}


def _numbered(groups):
    """Returns the rank of each group: an array of text is as wide as its longest value."""
    names = list(map(str, groups.tolist()))
    rank = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.fromiter((rank[name] for name in names), np.int64, len(names))
