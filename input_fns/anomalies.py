"""Finds data that can be stored but hardly learned from, whatever its source.

`prepare_data.py` runs these checks before it replaces a data set, `--mode=inspect` on any data set.
Counts of classes are exact; other checks read a sample of the records of each split.
"""

from __future__ import annotations

import dataclasses
import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from PIL import Image

from common.constants import CLIPPED, IGNORED_CLASS
from input_fns import DataError, records, sample_anomalies, token_shares
from input_fns.dataset_info import DatasetInfo

# Records to read of a split, spread over the shards if these are small.
_SAMPLE = 512
_SPREAD_BYTES = 2**28
_IMAGES = 128
# An image with fewer different levels is nearly of one color.
_LEVELS = 8
# Shares of a sample from which on a finding is an error, or a warning.
_MOST, _MANY, _SOME = 0.9, 0.2, 0.05
_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """A finding: an error if nothing can be learned from the data, else a warning."""

    is_error: bool
    text: str

    def __str__(self) -> str:
        return f"{'error' if self.is_error else 'warning'}: {self.text}"


def require_none(data: DatasetInfo, files: Mapping[str, bytes]) -> list[str]:
    """Returns the warnings about a data set.

    Args:
      data: the data set; see `find`.
      files: see `find`.

    Raises:
      DataError: nothing can be learned from the data.
    """
    found = find(data, files)
    errors = [anomaly.text for anomaly in found if anomaly.is_error]
    if errors:
        raise DataError("; ".join(errors))
    return [anomaly.text for anomaly in found]


def find(data: DatasetInfo, files: Mapping[str, bytes] | None = None) -> list[Anomaly]:
    """Returns what is odd about a data set.

    Args:
      data: the data set.
      files: content of files that are not in its folder yet, such as the vocabulary.
    """
    found = list(_of_splits(data))
    for name, split in data.splits.items():
        if split.num_examples:
            found += _of_sample(data, name, files or {})
    return found


def _of_splits(data):
    """Yields anomalies of the counts in dataset.json."""
    if data.annotations:
        yield from _of_annotations(data)
    has_labels = any(split.has_labels for split in data.splits.values())
    if "train" not in data.splits:
        if has_labels:
            yield Anomaly(
                False, f"there is no split 'train', only {', '.join(data.splits)}: not for training"
            )
        return
    counts, names = data.splits["train"].label_histogram, data.class_names
    missing = [name for name, count in zip(names, counts) if not count]
    if len(names) > 1 and len(names) - len(missing) == 1:
        (only,) = (name for name in names if name not in missing)
        yield Anomaly(
            True,
            f"all examples of 'train' have the class '{only}', and none {_listed(missing)}",
        )
    elif missing and any(counts):
        yield _without(missing, "example")


def _without(missing, unit):
    return Anomaly(
        False, f"{len(missing)} class(es) without a {unit} in 'train': {_listed(missing)}"
    )


def _of_annotations(data):
    """Yields anomalies of the boxes or pixels of each split, which are counted exactly."""
    names, is_detection = data.annotations.class_names, data.annotations.task == "detection"
    stored = sum(sum(found.counts) for found in data.annotations.splits.values())
    for reason, count in data.left_out.counts.items():
        if is_detection and reason.startswith("annotations ") and count > _MANY * (stored + count):
            yield Anomaly(False, f"{count} {reason} are left out, {stored} boxes are stored")
    unit, units = ("box", "boxes") if is_detection else ("pixel", "pixels")
    for split, found in data.annotations.splits.items():
        is_train, counts = split == "train", found.counts
        reasons = "".join(f"; left out: {n} {reason}" for reason, n in found.left_out.items())
        missing = [name for name, count in zip(names, counts) if not count]
        if not any(counts):
            what = "no box" if is_detection else "no pixel of a class: all are ignored"
            yield Anomaly(is_train, f"'{split}' has {what}{reasons}")
            continue
        if not is_detection and len(names) - len(missing) == 1:
            (only,) = (name for name in names if name not in missing)
            yield Anomaly(
                is_train,
                f"all pixels of '{split}' have the class '{only}' or are ignored, and none "
                f"{_listed(missing)}{reasons}",
            )
        elif missing and is_train:
            yield _without(missing, unit)
        yield from _of_notes(split, found, sum(counts), units)
        broken = len(data.splits[split].broken) if split in data.splits else 0
        if broken > _MANY * (broken + found.num_images):
            name, reason = data.splits[split].broken[0]
            yield Anomaly(
                False,
                f"{broken} of {broken + found.num_images} images of '{split}' are skipped; the "
                f"first is {name}: {reason}",
            )


def _of_notes(split, found, total, units):
    """Yields anomalies of annotations that are left out or corrected."""
    if units != "boxes":
        return
    for reason, count in found.left_out.items():
        if count > _MANY * (total + count):
            yield Anomaly(
                False,
                f"{count} boxes of '{split}' are left out, {total} are stored: {reason}",
            )
    clipped = found.corrected.get(CLIPPED, 0)
    if clipped > _MANY * total:
        yield Anomaly(
            False,
            f"{clipped} of {total} boxes of '{split}' reached out of their image. They may be of "
            "another size of it, or corners instead of width and height",
        )


def _listed(names):
    return ", ".join([*names[:_SHOWN], *(["..."] if names[_SHOWN:] else [])])


def _of_sample(data, split, files) -> Iterator[Anomaly]:
    """Yields anomalies of the records of a split."""
    examples = _sample(data, split)
    is_train = split == "train"
    image = data.features.get("image")
    if image and image.dtype == "uint8" and (data.num_classes or data.annotations):
        yield from _of_images(data, split, _some(examples))
    if data.annotations and data.annotations.task == "detection":
        yield from _of_boxes(data, split, examples)
    if data.annotations and data.annotations.task == "segmentation":
        masks = [_pixels(e["mask"], data.features["mask"]) for e in _some(examples)]
        shares = [(mask == IGNORED_CLASS).mean() for mask in masks if mask is not None]
        if shares and _MOST < np.mean(shares) < 1:
            yield Anomaly(
                False,
                f"{np.mean(shares):.1%} of the pixels of '{split}'{_sampled(examples)} are ignored",
            )
    if data.wordpiece or data.text:
        yield from _of_tokens(data, split, examples, files)
    if data.audio:
        found = _of_recordings(data, split, examples[:_IMAGES])
        yield from (Anomaly(*values) for values in found)
    if data.ratings and split in data.ratings.negatives:
        content = _content(data, data.ratings.negatives[split], files)
        negatives = np.frombuffer(content, "<i4").reshape(-1, data.ratings.num_negatives)
        found = sample_anomalies.of_ratings(split, negatives, data.ratings)
        yield from (Anomaly(*values) for values in found)
    if "tag_ids" in data.features and data.splits[split].has_labels:
        tags = _values(data, examples, "tag_ids")
        if not (tags >= 0).any():
            yield Anomaly(is_train, f"no word of '{split}' has a tag")
    if "score" in data.features and data.splits[split].has_labels and len(examples) > 1:
        scores, where = _values(data, examples, "score"), _where(data, split, examples)
        if (scores == scores[0]).all():
            yield Anomaly(False, f"all scores of {where} are {scores[0]:g}")


def _some(examples):
    """Returns up to `_IMAGES` examples, evenly spread."""
    return examples[:: -(-len(examples) // _IMAGES)] if examples else examples


def _of_images(data, split, examples):
    feature, where = data.features["image"], _where(data, split, examples)
    flat = []
    for example in examples:
        pixels = _pixels(example["image"], feature)
        if pixels is not None and int(pixels.max()) - int(pixels.min()) < _LEVELS:
            name = example.get("name", b"one").decode()
            flat.append(f"{name} of {pixels.min()} to {pixels.max()}")
    if flat and len(flat) > _SOME * len(examples):
        yield Anomaly(
            False,
            f"{len(flat)} of {len(examples)} images of {where} have nearly one color, "
            f"such as {', '.join(flat[:3])}",
        )


def _of_boxes(data, split, examples):
    classes = np.stack([_array(e["classes"], data.features["classes"]) for e in examples])
    boxes = np.stack([_array(e["boxes"], data.features["boxes"]) for e in examples])
    crowd = np.stack([_array(e["is_crowd"], data.features["is_crowd"]) for e in examples])
    boxes, crowd = boxes[classes >= 0], crowd[classes >= 0]
    where = _where(data, split, examples)
    if not len(boxes):
        return
    if crowd.mean() > _MOST:
        share = f"all {len(boxes)}" if crowd.all() else f"{crowd.mean():.0%} of the"
        yield Anomaly(
            bool(crowd.all()) and split == "train",
            f"{share} boxes of '{split}'{_sampled(examples)} are a crowd (iscrowd=1) or difficult, "
            "which are neither trained on nor evaluated. If they are single objects, set iscrowd "
            "or <difficult> to 0: CVAT writes iscrowd=1 for masks",
        )
    # Fractions of the image are all in its first pixel.
    first = (boxes <= 1).all(axis=1)
    if first.mean() > _MANY:
        yield Anomaly(
            split == "train",
            f"{first.mean():.0%} of the boxes of '{split}'{_sampled(examples)} are inside of the "
            "first pixel of their image: their coordinates may be fractions. Write them in pixels",
        )
        return
    tiny = ((boxes[:, 2:] - boxes[:, :2]) < 1).all(axis=1)
    if tiny.mean() > _SOME:
        yield Anomaly(
            False,
            f"{tiny.mean():.0%} of the boxes of '{split}'{_sampled(examples)} are smaller than a "
            "pixel",
        )


def _of_tokens(data, split, examples, files):
    """Yields anomalies of tokens that the vocabulary does not know."""
    text = data.wordpiece or data.text
    where = _where(data, split, examples)
    pieces = token_shares.pieces_of(data, _content(data, text.vocabulary, files))
    for name in ["input_ids"] if data.wordpiece else ["source", "target"]:
        ids = _values(data, examples, name)
        if "masked_lm_ids" in data.features:
            is_masked = _values(data, examples, "masked_lm_weights") > 0
            masked = _values(data, examples, "masked_lm_ids")[is_masked]
            ids = np.concatenate([ids.ravel(), masked])
        share = pieces.unknown_share(ids)
        if share > _MANY:
            side = "" if data.wordpiece else f" of the {name}"
            yield Anomaly(
                share > _MOST,
                f"{share:.0%} of the words{side} of {where} are "
                f"{pieces.name}: the vocabulary is of text in another script or case. Choose "
                "another --vocabulary, or learn one",
            )


def _of_recordings(data, split, examples):
    sizes = [int(_array(e["num_samples"], data.features["num_samples"])) for e in examples]
    waveforms = [
        _array(e["waveform"], data.features["waveform"])[:size] for e, size in zip(examples, sizes)
    ]
    names = [e.get("name", b"").decode() or f"record {i}" for i, e in enumerate(examples)]
    lengths = None
    if data.audio.vocabulary:
        lengths = (_values(data, examples, "tokens") > 0).sum(axis=1)
    return sample_anomalies.of_recordings(split, waveforms, names, lengths, data.audio)


def _content(data, name, files):
    """Returns the content of another file of the data set, which may not be in its folder yet."""
    if name in files:
        return files[name]
    with tf.io.gfile.GFile(os.path.join(data.data_dir, name), "rb") as file:
        return file.read()


def _spread(examples):
    """Returns as many examples as are worth decoding."""
    return examples[:: -(-len(examples) // _IMAGES)]


def _where(data, split, examples):
    is_sample = len(examples) < data.splits[split].num_examples
    return f"'{split}'{' (a sample)' * is_sample}"


def _values(data, examples, name):
    return np.stack([_array(example[name], data.features[name]) for example in examples])


def _array(stored, feature):
    values = np.frombuffer(stored, np.dtype(feature.dtype).newbyteorder("<"))
    return values.reshape(feature.shape)


def _pixels(stored, feature):
    """Returns the pixels of an image, of a large JPEG at an eighth of its size; None if broken."""
    if feature.encoding == "raw":
        return _array(stored, feature)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(stored), formats=("JPEG", "PNG"))
            image.draft(image.mode, (64, 64))
            return np.asarray(image.convert("RGB" if image.mode == "P" else image.mode))
    except Exception:  # Pillow's decoders raise many types of errors; the inspection reports it
        return None


def _sample(data: DatasetInfo, split: str) -> Sequence[dict[str, bytes]]:
    """Returns the features of some records of a split, `{name: bytes}`."""
    info = data.splits[split]
    count = -(-_SAMPLE // len(info.shards))
    found = []
    for shard in info.shards[:: max(1, len(info.shards) // _SAMPLE)]:
        stride = max(1, -(-shard.num_examples // count)) if info.num_bytes < _SPREAD_BYTES else 1
        path = data.path(shard)

        def chosen(path=path, stride=stride):
            return tf.data.TFRecordDataset(path).shard(stride, 0).take(count).batch(64)

        for batch in records.iterate(chosen):
            for record in batch:
                stored = tf.train.Example.FromString(record).features.feature
                found.append(
                    {n: f.bytes_list.value[0] for n, f in stored.items() if f.bytes_list.value}
                )
    return found[:_SAMPLE]
