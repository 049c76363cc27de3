"""Reads every record of a data set and says what is there and what is wrong, and where."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from input_fns import images
from input_fns.dataset import Dataset, Feature

_BATCH = 1024
# A shard that is broken is broken often; ten lines tell how.
_MAX_PROBLEMS = 10
# Around a record: length (8 bytes), its checksum (4), the data, their checksum (4).
_HEADER, _FOOTER = 12, 4


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
        path = os.path.join(data.data_dir, shard.name)
        if not tf.io.gfile.exists(path):
            problems.append(f"{shard.name} is missing")
            continue
        size = tf.io.gfile.stat(path).length
        if size != shard.num_bytes:
            problems.append(f"{shard.name} has {size} bytes instead of {shard.num_bytes}")
        found = problems_of_shard(data, path)
        problems += found
        if not found:
            number, histogram = _count(data, path)
            examples, counts = examples + number, counts + histogram
            if number != shard.num_examples:
                problems.append(
                    f"{shard.name} holds {number} examples instead of {shard.num_examples}"
                )
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
        yield from problems_of_shard(data, path)


def problems_of_shard(data: Dataset, path: str) -> list[str]:
    """Returns a line for each broken record of a shard, up to ten; quickly if there is none."""
    try:
        _count(data, path)
        return []
    except (tf.errors.OpError, ValueError):
        return _search(data, path)


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
        batches = batches.map(facts, num_parallel_calls=tf.data.AUTOTUNE)
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


def _search(data, path):
    """Reads a broken shard record by record."""
    problems, offset, number = [], 0, 0
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        encoded = tf.compat.v1.placeholder(tf.string, [])
        decode = tf.io.decode_image(encoded, expand_animations=False)

        def decodes(value):
            session.run(decode, {encoded: value})

        records = tf.compat.v1.io.tf_record_iterator(path)
        while len(problems) < _MAX_PROBLEMS:
            where = f"{os.path.basename(path)}, record {number} at byte {offset}"
            try:
                record = next(records)
            except StopIteration:
                break
            except tf.errors.DataLossError as error:
                # Where the next record begins is not known: the rest of the shard is lost too.
                problems.append(f"{where}: {_reason(error)}")
                break
            problem = _problem_of_record(data, record, decodes)
            if problem:
                problems.append(f"{where}: {problem}")
            offset += _HEADER + len(record) + _FOOTER
            number += 1
    return problems


def _reason(error):
    message = error.message.split(" [[")[0]
    return re.sub(r" at \d+", "", message) or "its checksum does not fit"


def _problem_of_record(data, record, decodes):
    try:
        stored = tf.train.Example.FromString(record).features.feature
    except Exception:  # protobuf's own, of which there are several implementations
        return "no tf.train.Example"
    for name, feature in data.features.items():
        values = stored[name].bytes_list.value if name in stored else []
        if len(values) != 1:
            return f"it has no feature '{name}'"
        if feature.encoding == "raw" and len(values[0]) != feature.num_bytes:
            return f"'{name}' has {len(values[0])} bytes instead of {feature.num_bytes}"
        if feature.is_image_file:
            try:
                decodes(values[0])
            except tf.errors.InvalidArgumentError:
                return f"'{name}' is no whole JPEG or PNG"
    if data.num_classes:
        labels = stored["label"].int64_list.value if "label" in stored else []
        if len(labels) != 1 or not 0 <= labels[0] < data.num_classes:
            return f"its label {list(labels)} is none of the {data.num_classes} classes"
    return None
