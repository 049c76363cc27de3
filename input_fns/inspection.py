"""Reads every record of a data set and says what is there and what is wrong, and where."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from input_fns import images, records, shards
from input_fns.dataset import Dataset, Feature, Shard, problem_of_file

_BATCH = 1024
# A shard that is broken is broken often; ten lines tell how.
_MAX_PROBLEMS = 10


@dataclasses.dataclass(frozen=True)
class Report:
    """What was found of one split.

    Attributes:
      lines: counts and sizes, for people.
      problems: a line each, with the shard and, where there is one, the offset in bytes.
    """

    lines: list[str]
    problems: list[str]


def describe_feature(feature: Feature) -> str:
    """Returns such as "uint8 32x32x3, raw"."""
    shape = "x".join("any" if size is None else str(size) for size in feature.shape)
    return ", ".join(filter(None, [f"{feature.dtype} {shape}".strip(), feature.encoding]))


def inspect(data: Dataset, split_name: str) -> Report:
    """Reads every record of a split: checksums, features, sizes, labels; decodes every image."""
    split = data.splits[split_name]
    counts = np.zeros(data.num_classes, int)
    problems, examples = [], 0
    for shard in split.shards:
        path = data.path(shard)
        of_file = problem_of_file(data, shard)
        if of_file:
            problems.append(of_file)
        if not tf.io.gfile.exists(path):
            continue
        found, number, histogram = _read(data, path)
        problems += found
        examples, counts = examples + number, counts + histogram
        if not found and number != shard.num_examples:
            problems.append(f"{shard.name} holds {number} examples instead of {shard.num_examples}")
    if not problems and counts.tolist() != list(split.label_histogram):
        problems.append(
            f"split '{split_name}' has the labels {counts.tolist()}, "
            f"not {list(split.label_histogram)} as dataset.json says"
        )
    return Report(_lines(data, split_name, examples, counts), problems)


def _lines(data, split_name, examples, counts):
    split = data.splits[split_name]
    sizes = sorted(shard.num_bytes / 1e6 for shard in split.shards)
    lines = [
        f"{split_name}: {examples} examples in {len(sizes)} shard(s) of {sizes[0]:.1f} to "
        f"{sizes[-1]:.1f} MB, {sum(sizes):.1f} MB in all"
    ]
    if data.text:
        described = data.text.splits[split_name].describe(examples, data.text.max_length)
        lines.append(f"  {described}")
    if split.broken:
        lines.append(f"  left out when it was made: {len(split.broken)}")
    width = max(map(len, data.class_names), default=0)
    for name, count in zip(data.class_names, counts):
        bar = "#" * round(40 * count / max(1, counts.max()))
        lines.append(f"  {name:{width}} {count:9,d} {bar}")
    return lines


def problems(data: Dataset, split_names: Iterable[str]) -> Iterator[str]:
    """Yields a line for each broken record of the splits, up to ten a shard."""
    if not data.data_dir:
        return  # synthetic
    for path in (path for name in split_names for path in data.files(name)):
        yield from _read(data, path)[0]


def is_whole(data: Dataset, shard: Shard) -> bool:
    """Whether a shard is as it was written, and every record in it can be used."""
    if problem_of_file(data, shard):
        return False
    try:
        return _count(data, data.path(shard))[0] == shard.num_examples
    except (tf.errors.OpError, ValueError):
        return False


def _read(data, path):
    """Returns a line for each broken record of a shard, up to ten; if there is none, its counts."""
    try:
        return [], *_count(data, path)
    except (tf.errors.OpError, ValueError) as error:
        found = (record.problem for record in shards.walk(data, path) if record.problem)
        lines = list(itertools.islice(found, _MAX_PROBLEMS))
        lines = lines or [f"{os.path.basename(path)} cannot be read: {error}"]
        return lines, 0, np.zeros(data.num_classes, int)


def _count(data, path):
    """Reads a shard in batches; raises an error, which one does not matter, if it is not well."""
    parse = images.stored_fn(data.features, bool(data.num_classes))

    def facts(serialized):
        stored, labels = parse(serialized)
        sizes = {name: tf.strings.length(value) for name, value in stored.items()}
        # Decoded, so that a broken image is found; what is fetched is a number.
        pixels = [
            tf.map_fn(
                functools.partial(_brightest, feature=feature),
                stored[name],
                fn_output_signature=tf.int32,
            )
            for name, feature in data.features.items()
            if feature.is_image_file
        ]
        return sizes, labels if labels is not None else tf.zeros([0], tf.int32), pixels

    examples, histogram = 0, np.zeros(data.num_classes, int)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        batches = tf.data.TFRecordDataset(path).batch(_BATCH if not _is_encoded(data) else 64)
        batches = records.untuned(batches.map(facts, num_parallel_calls=records.PARALLEL_CALLS))
        element = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
        while True:
            try:
                sizes, labels, _ = session.run(element)
            except tf.errors.OutOfRangeError:
                return examples, histogram
            for name, feature in data.features.items():
                if feature.encoding == "raw" and (sizes[name] != feature.num_bytes).any():
                    raise ValueError(name)
            if len(labels):
                histogram += np.bincount(labels, minlength=len(histogram))
            examples += len(next(iter(sizes.values())))


def _brightest(encoded, feature):
    # A number that depends on the pixels: their count alone would be known without decoding.
    return tf.cast(tf.reduce_max(images.decode(encoded, feature)), tf.int32)


def _is_encoded(data):
    return any(feature.is_image_file for feature in data.features.values())
