"""Resumes a killed conversion: keeps its finished shards for the next run of the same command.

A finished shard has a temporary name until all shards are written. A JSON file beside it stores the
fingerprint of its task, the state of its source files, and its result. The next run uses the shard
if all of these match; it reads the records and compares them with their checksum.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from common import files, folders
from input_fns import DataError
from input_fns.convert import fingerprint
from input_fns.convert.fingerprint import FileState
from input_fns.core import framing, json_fields
from input_fns.core.dataset_parts import Feature, ShardInfo, SplitInfo, names_by_reason
from input_fns.core.json_fields import array, field, named, nested, utf8_text
from input_fns.image.annotated_kind import AnnotationsSplit

if TYPE_CHECKING:
    from input_fns.convert.shard_tasks import ShardResult, ShardTask

_MANIFEST = re.compile(r"(.+-\d{5})\.json\.partial-([0-9a-f]{8})")


def _range(value: Any, where: str) -> tuple[str, float, float]:
    if not (isinstance(value, list) and [type(each) for each in value] == [str, float, float]):
        raise DataError(f"{where} must be a path and two numbers")
    return tuple(value)


@dataclasses.dataclass(frozen=True)
class _Manifest:
    """What is stored beside a finished shard.

    Attributes:
      key: see `ShardTask`.
      sources: the files that were read.
      features: see `ShardResult`.
      split: the shard as the only one of a split.
      stated_ranges: see `ShardResult`.
      annotations: counts of boxes or pixels, or None.
      named: names of some examples, by reason; see `boxes.Counts`.
    """

    key: str = field(utf8_text)
    sources: tuple[FileState, ...] = field(array(nested(FileState)))
    features: dict[str, Feature] = field(named(nested(Feature), "/"))
    split: SplitInfo = field(nested(SplitInfo))
    stated_ranges: tuple[tuple[str, float, float], ...] = field(array(_range))
    annotations: AnnotationsSplit | None = field(
        nested(AnnotationsSplit), omitted=True, default=None
    )
    named: dict[str, list[str]] = field(names_by_reason, omitted=True, default_factory=dict)


def shard_name(stem: str, key: str) -> str:
    """Returns the temporary name of a shard, such as "train-00003", with a key."""
    return f"{stem}.tfrecord.partial-{key[:8]}"


def manifest_path(path: str) -> str:
    """Returns the path of the JSON file of a shard with a temporary name."""
    return re.sub(r"\.tfrecord(\.partial-\w+)$", r".json\1", path)


def of_earlier_run(data_dir: str) -> dict[str, str]:
    """Returns the start of the key of each finished shard that is there, such as "train-00003"."""
    found = filter(None, map(_MANIFEST.fullmatch, folders.names(data_dir)))
    return {match[1]: match[2] for match in found}


def fits(earlier: dict[str, str], path: str) -> bool:
    """Whether no shard of `of_earlier_run` has the number of this one but another key."""
    stem, key = os.path.basename(path).split(".tfrecord.partial-")
    return earlier.get(stem, key) == key


def save(task: ShardTask, result: ShardResult, paths: Iterable[str]) -> None:
    """Stores the result of a task beside its shard, which is complete; `paths` were read for it."""
    try:
        sources = tuple(fingerprint.state_of(path, task.root) for path in sorted(paths))
    except (OSError, *folders.errors(task.root)):  # an example of a missing file was left out
        return
    shard = ShardInfo(
        os.path.basename(task.path),
        result.num_bytes,
        result.num_examples,
        result.crc32,
        offsets=result.offsets,
    )
    split = SplitInfo(tuple(result.histogram.tolist()), (shard,), tuple(result.broken))
    counts = result.counts
    manifest = _Manifest(
        task.key,
        sources,
        result.features,
        split,
        tuple((path, float(low), float(high)) for path, low, high in result.stated_ranges),
        counts and counts.as_split(),
        counts.examples if counts else {},
    )
    with files.atomic_write(manifest_path(task.path)) as file:
        json.dump(json_fields.to_value(manifest), file)


def load(task: ShardTask, result: ShardResult) -> bool:
    """Fills the result of a task and returns True if a run before has finished its shard."""
    path = manifest_path(task.path)
    try:
        if not folders.exists(path):
            return False
        found = json_fields.parse(_Manifest, json_fields.loads(files.read_text(path)), path)
        (shard,) = found.split.shards
        if found.key != task.key or folders.num_bytes(task.path) != shard.num_bytes:
            return False
        num_examples, crc32, _ = framing.scan(task.path)
        if (num_examples, crc32) != (shard.num_examples, shard.crc32):
            return False
    except (DataError, ValueError, *folders.errors(path)):
        return False
    result.changed_path = fingerprint.find_change(found.sources, task.root)
    if result.changed_path:
        return False
    result.is_reused = True
    result.num_bytes, result.num_examples = shard.num_bytes, shard.num_examples
    result.crc32, result.offsets = shard.crc32, shard.offsets
    result.features, result.broken = found.features, list(found.split.broken)
    result.histogram = np.array(found.split.label_histogram, np.int64)
    result.stated_ranges = list(found.stated_ranges)
    if result.counts:
        result.counts.restore(found.annotations, found.named)
    return True
