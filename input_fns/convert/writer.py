"""Writes a data set as TFRecord shards and finally its `dataset.json`, atomically.

Shards are named by the checksum of their records, so the shards of a new data set do not overwrite
those of the old one. Replacing `dataset.json` commits: a run that is killed at any time leaves the
old data set or the new one. The shards that it has finished are used by the next run, see
`finished_shards`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from common import files, folders, names, progress_line
from input_fns import DataError, dataset_info, kinds
from input_fns.convert import finished_shards
from input_fns.convert.fingerprint import Fingerprints
from input_fns.convert.runners import InProcess, LostWorkerError, Runner
from input_fns.convert.shard_tasks import merged_features
from input_fns.convert.source import RawDataset
from input_fns.convert.split_shards import SplitShards

_CHECKSUM = "-[0-9a-f]{8}"
# Shards, and their temporary files (old and new names).
_SHARD = rf".+-\d{{5}}-of-\d{{5}}{_CHECKSUM}\.tfrecord|.+-\d{{5}}\.tfrecord\.partial({_CHECKSUM})?"


def write(
    raw: RawDataset,
    data_dir: str,
    num_shards: int = 0,
    progress: Callable[[str], None] = lambda line: None,
    prepared_with: dict[str, Any] | None = None,
    before_commit: Callable[[dataset_info.DatasetInfo], None] = lambda complete: None,
    runner: Runner | None = None,
) -> dataset_info.DatasetInfo:
    """Writes `raw` into `data_dir`, local or gs://, replacing what is there.

    Writes all shards under temporary names, renames them, replaces `dataset.json`, then removes the
    files of the old data set and of killed runs. After an error that is not one of the data, as of
    a full disk, the finished shards stay for the next run.

    Args:
      raw: the data set.
      data_dir: folder; created if missing.
      num_shards: shards per split; 0 chooses from the size.
      progress: function that prints a line.
      prepared_with: see `DatasetInfo`.
      before_commit: called with the data set before the commit, when its shards have temporary
        names; may raise to abort.
      runner: runs the tasks that write shards if worker processes can read the examples and there
        are enough of them; else, and by default, this process runs them.

    Raises:
      DataError: a split has no valid examples, a label is outside of the classes, features differ
        between examples, or a name is invalid.
    """
    _check_names(raw)
    for name, split in raw.splits.items():
        _check(raw, name, split)
    tf.io.gfile.makedirs(data_dir)
    fingerprints = Fingerprints(raw.path)
    splits = {
        name: SplitShards(raw, name, data_dir, num_shards, fingerprints) for name in raw.splits
    }
    made: list[str] = []
    try:
        _run(data_dir, list(splits.values()), runner, made, progress)
        complete = dataset_info.DatasetInfo(
            name=raw.name,
            data_dir=data_dir,
            features=merged_features([split.features for split in splits.values()]),
            class_names=raw.class_names,
            splits={name: split.as_split() for name, split in splits.items()},
            prepared_with=prepared_with or {},
            labels=_label_names(raw, next(iter(splits.values())).features),
            properties=raw.properties,
            target=raw.target,
            kind=_kind(raw, splits),
            left_out=raw.left_out,
        )
        if raw.target:
            raw.target.check(complete.features, complete.labels, complete.class_names)
        before_commit(_with_partials(complete, splits))
        _commit(complete, splits, raw.files)
    except BaseException as error:
        # Of processes that were killed in `shard_tasks.run`.
        unfinished = [
            os.path.join(data_dir, name)
            for name in folders.names(data_dir)
            if os.path.join(data_dir, name.rpartition(".partial-")[0]) in made
        ]
        if not isinstance(error, DataError) or isinstance(error, LostWorkerError):
            finished = [path for path in made if _is_finished(path)]
            made = [path for path in made if path not in finished]
            if finished:
                progress(f"{len(finished)} finished shards are kept for the same command")
        _remove([*made, *unfinished])
        raise
    _remove(made)
    return complete


def _is_finished(path):
    return tf.io.gfile.exists(finished_shards.manifest_path(path))


def _remove(paths):
    for path in paths:
        for each in filter(tf.io.gfile.exists, (finished_shards.manifest_path(path), path)):
            tf.io.gfile.remove(each)


def _choose_runner(runner, splits, progress):
    """Returns `runner`, or `InProcess` if it is not worth it or the source has one reader."""
    num_examples = sum(split.size for split in splits)
    is_small = num_examples < runner.min_examples or sum(split.num_shards for split in splits) == 1
    if runner.min_examples and is_small:
        return InProcess()
    if all(split.in_workers for split in splits):
        return runner
    if runner.replaced_note:
        progress(runner.replaced_note)
    return InProcess()


def _run(data_dir, splits, runner, made, progress):
    """Writes all shards under temporary names, and adds their paths to `made`."""
    earlier = finished_shards.of_earlier_run(data_dir)
    runner = _choose_runner(runner or InProcess(), splits, progress)

    def tasks():
        for split in splits:
            for task in split.tasks():
                made.append(task.path)
                if not finished_shards.fits(earlier, task.path):
                    earlier.clear()  # one line for all
                    progress(
                        "shards of an earlier run are written again: the examples or the options "
                        "of that run were others"
                    )
                yield task

    with contextlib.closing(runner.map(tasks())) as results:
        for split in splits:
            line = progress_line.ProgressLine(progress)
            for result in itertools.islice(results, split.num_shards):
                split.add(result)
                if result.changed_path:
                    progress(f"{result.changed_path} has changed: its shard is written again")
                if runner.yields_early or split.num_done == split.num_shards:
                    line.show(split.progress())
            split.finish()
            for count in split.counts.lines() if split.counts else ():
                progress(f"{split.name}: {count}")


def _with_partials(complete, splits):
    """Returns the data set with the paths of its shards before they are renamed."""
    with_paths = {
        name: dataclasses.replace(
            complete.splits[name],
            shards=tuple(
                dataclasses.replace(info, path=shard.path)
                for info, shard in zip(complete.splits[name].shards, split.shards)
            ),
        )
        for name, split in splits.items()
    }
    return dataclasses.replace(complete, splits=with_paths)


def _kind(raw, splits):
    """Returns the kind, with the counts of boxes or pixels of all splits."""
    counts = {name: split.counts.as_split() for name, split in splits.items() if split.counts}
    return dataclasses.replace(raw.kind, splits=counts) if counts else raw.kind


def _check_names(raw):
    wrong = names.find_class_name_problem(raw.class_names)
    if wrong:
        raise DataError(f"the classes of {raw.name}: {wrong}")
    for name in (*raw.splits, *raw.files):
        if not names.is_plain_name(name):
            raise DataError(f"{name!a} of {raw.name} cannot be a part of the name of a file")
    if not raw.name or not names.is_line(raw.name):
        raise DataError(f"{raw.name!a} cannot be the name of a data set: it is not a line of text")


def _check(raw, name, split):
    if not len(split):
        raise DataError(f"split '{name}' of {raw.name} has no examples")
    if split.labels is None:
        return
    outside = np.flatnonzero((split.labels < 0) | (split.labels >= len(raw.class_names)))
    if len(outside):
        raise DataError(
            f"split '{name}' of {raw.name}: example {outside[0]} has label "
            f"{split.labels[outside[0]]}, outside the {len(raw.class_names)} classes "
            f"({len(outside)} such labels)"
        )


def _label_names(raw, features):
    """Returns the features that `raw.labels` names, "a" for all of "a/..."."""
    found = []
    for label in raw.labels:
        names_of_label = [name for name in features if f"{name}/".startswith(f"{label}/")]
        if not names_of_label:
            raise DataError(
                f"the label '{label}' of {raw.name} is not a feature; there are "
                f"{', '.join(features)}"
            )
        found += names_of_label
    if len(found) == len(features):
        raise DataError(f"all features of {raw.name} are labels: a model needs one to predict from")
    return tuple(found)


def _commit(written: dataset_info.DatasetInfo, splits, others):
    """Renames the shards, replaces dataset.json and removes old files."""
    data_dir = written.data_dir
    for split in splits.values():
        for name, shard in zip(split.names, split.shards):
            tf.io.gfile.rename(shard.path, os.path.join(data_dir, name), overwrite=True)
            _remove([shard.path])
    for name, content in others.items():
        with files.atomic_write(os.path.join(data_dir, name), "wb") as file:
            file.write(content)
    replaced = _replaced_names(data_dir)
    with files.atomic_write(os.path.join(data_dir, dataset_info.FILE_NAME)) as file:
        file.write(dataset_info.to_json(written))
    kept = {dataset_info.FILE_NAME, *others, *_file_names(written)}
    present = set(folders.names(data_dir))
    ours = set(filter(_our_names().fullmatch, present))
    for name in (replaced & present | ours) - kept:
        tf.io.gfile.remove(os.path.join(data_dir, name))
    files.remove_leftovers(data_dir)


def _our_names():
    """Returns the pattern of the names of shards and of the other files of all kinds of data."""
    sides = [side for key in kinds.KINDS for side in kinds.find(key).side_names]
    others = (
        re.escape(stem).replace(r"\*", ".+") + _CHECKSUM + re.escape(extension)
        for stem, extension in map(os.path.splitext, sides)
    )
    return re.compile("|".join([_SHARD, *others]))


def _replaced_names(data_dir):
    """Returns the file names of the existing data set; none if it is invalid."""
    try:
        return _file_names(dataset_info.read(data_dir))
    except DataError:
        return set()


def _file_names(data):
    found = {shard.name for split in data.splits.values() for shard in split.shards}
    found.update(filter(None, data.kind.side_files(data, data.splits)))
    # dataset.json is untrusted: remove no other files.
    return {name for name in found if name.endswith((".tfrecord", ".model"))}
