"""Writes a `DatasetInfo` as JSON, and reads it with a check of every field."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from common import names
from common.constants import (
    ANNOTATION_TASKS,
    DROPOUT_SEED,
    EXAMPLE_WEIGHT,
    IGNORED_CLASS,
    TRUNCATE,
    WORDPIECE_TASKS,
)
from input_fns import DataError
from input_fns.core import dataset_checks
from input_fns.core.dataset_parts import (
    Annotations,
    AnnotationsSplit,
    Audio,
    Clicks,
    Feature,
    LeftOut,
    Ratings,
    ShardInfo,
    SplitInfo,
    Text,
    TextSplit,
    WordPiece,
    WordPieceSplit,
)
from input_fns.core.json_fields import Fields, boolean, integer, loads, mapping, strings

if TYPE_CHECKING:
    from input_fns.dataset_info import DatasetInfo

FORMAT = 2
_ENCODINGS = ("raw", "jpeg", "png", "image")
DTYPES = (
    *("uint8", "uint16", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "bool"),
)
_MAX_RANK = 8
# Keys of a stored example, and features that the input pipeline adds.
_RESERVED = ("label", "name", EXAMPLE_WEIGHT, DROPOUT_SEED)
_TASK_LABELS = {
    "classification": (),
    "regression": ("score",),
    "token_classification": ("tag_ids",),
    "squad": ("start_positions", "end_positions"),
    "pretraining": ("masked_lm_ids", "masked_lm_weights", "next_sentence_labels"),
}
# Labels of object detection: dtype, and shape after the number of boxes.
_BOX_LABELS = {
    "boxes": ("float32", (4,)),
    "classes": ("int32", ()),
    "is_crowd": ("uint8", ()),
    "areas": ("float32", ()),
}
# Features that a task needs besides those of all tasks; features and labels of each token.
_TASK_FEATURES = {
    "squad": ("question_index", "token_starts", "token_ends", "is_max_context"),
    "pretraining": ("masked_lm_positions",),
}
_ROWS = ("tag_ids", "token_starts", "token_ends", "is_max_context")
_MAX_EXAMPLE_BYTES = 2**31 - 1  # limit of a tf.train.Example
_RECORD_BYTES = 16  # framing of a record
_OFFSETS = re.compile(r'"offsets": \[[\d,\s]+\]')


def to_json(dataset: DatasetInfo) -> str:
    """Returns the text of `dataset.json`."""
    fields = {"format": FORMAT, **dataclasses.asdict(dataset)}
    del fields["data_dir"]
    for name in (
        *("labels", "properties", "wordpiece", "annotations", "ratings", "clicks", "audio"),
        "left_out",
    ):
        if not getattr(dataset, name):
            del fields[name]
    for name, split in dataset.splits.items():
        for shard in fields["splits"][name]["shards"]:
            del shard["path"]
            if not shard["offsets"]:
                del shard["offsets"]
        fields["splits"][name] = {"num_examples": split.num_examples, **fields["splits"][name]}
        if split.has_labels:
            del fields["splits"][name]["has_labels"]
    text = json.dumps(fields, indent=1)
    # An index, of up to 64 numbers, on one line.
    return _OFFSETS.sub(lambda found: "".join(found[0].split()).replace(":", ": "), text) + "\n"


def parse(content: str) -> dict[str, Any]:
    """Returns the fields of a `DatasetInfo` from the text of a dataset.json.

    Raises:
      DataError: a field is missing, has the wrong type or is out of range; the message names it.
    """
    fields = Fields(loads(content), "")
    version = fields.integer("format")
    if version != FORMAT:
        raise DataError(
            f"it has format {version}, this version reads {FORMAT}: prepare the data set again "
            "with prepare_data.py"
        )
    class_names = fields.texts("class_names")
    wrong = names.find_class_name_problem(class_names)
    if wrong:
        raise DataError(f"class_names: {wrong}")
    features = fields.named("features", _feature, "/")
    if not features:
        raise DataError("features is empty")
    problem = find_name_problem(features)
    if problem:
        raise DataError(f"features: {problem}")
    labels = fields.optional("labels", strings) or ()
    wrong = [name for name in labels if name not in features] or names.repeated(labels)
    if wrong:
        raise DataError(f"labels: {wrong[0]!a} is not a feature, or is repeated")
    properties = fields.optional("properties", check_properties) or {}
    annotations = fields.optional(
        "annotations", lambda value, where: _annotations(value, where, features, labels)
    )
    if annotations and class_names:
        raise DataError("class_names must be empty: the class names are those of annotations")
    splits = fields.named("splits", _split)
    if not splits:
        raise DataError("splits is empty")
    shards = [shard.name for split in splits.values() for shard in split.shards]
    if names.repeated(shards):
        raise DataError(f"the shard {names.repeated(shards)[0]} is repeated")
    found = {
        "name": fields.text("name"),
        "features": features,
        "class_names": class_names,
        "splits": splits,
        "text": fields.optional("text", lambda value, where: _text(value, where, features)),
        "wordpiece": fields.optional(
            "wordpiece",
            lambda value, where: _wordpiece(value, where, features, labels, properties),
        ),
        "annotations": annotations,
        "ratings": fields.optional(
            "ratings", lambda value, where: _ratings(value, where, features, splits)
        ),
        "clicks": fields.optional(
            "clicks", lambda value, where: _clicks(value, where, features, class_names)
        ),
        "audio": fields.optional(
            "audio", lambda value, where: _audio(value, where, features, labels, class_names)
        ),
        "prepared_with": fields.optional("prepared_with", mapping) or {},
        "labels": labels,
        "properties": properties,
        "left_out": fields.optional("left_out", _left_out) or LeftOut(),
    }
    dataset_checks.check(found, fields.named("splits", _num_examples))
    _check_num_classes(properties, annotations.class_names if annotations else class_names)
    return found


def _num_examples(value, where):
    """Returns the number of examples that a split states; that of its shards if it does not."""
    fields = Fields(value, where)
    if "num_examples" in fields:
        return fields.integer("num_examples")
    return sum(shard["num_examples"] for shard in value["shards"])


def find_name_problem(features: Iterable[str]) -> str | None:
    """Returns what is wrong with the names of features, which may be nested: "a/b"."""
    flat = list(features)
    parents = {name[:place] for name in flat for place, c in enumerate(name) if c == "/"}
    for name in flat:
        if not all(names.is_plain_name(part) for part in name.split("/")):
            return f"{name!a} is not a plain name"
        if name.partition("/")[0] in _RESERVED:
            return f"'{name}' is a reserved name; use another one than {', '.join(_RESERVED)}"
        if name in parents:
            return f"'{name}' is both a feature and a prefix of others"
    return None


def check_properties(value: Any, where: str) -> dict[str, Any]:
    """Returns free-form properties: an object of JSON scalars or lists of scalars.

    Raises:
      DataError: a name or a value is invalid; the message names it.
    """
    for name, found in mapping(value, where).items():
        if not names.is_plain_name(name):
            raise DataError(f"{where}: {name!a} is not a plain name")
        for scalar in found if isinstance(found, (list, tuple)) else [found]:
            is_number = isinstance(scalar, (int, float)) and math.isfinite(scalar)
            is_text = isinstance(scalar, str) and names.is_line(scalar)
            if not (is_number or is_text or scalar is None):
                raise DataError(
                    f"{where}.{name} is {type(scalar).__name__} {str(scalar)[:60]!a}, and must be "
                    "a number, a line of text, true, false, null or a list of these"
                )
    return value


def _check_num_classes(properties, class_names):
    if class_names and properties.get("num_classes", len(class_names)) != len(class_names):
        raise DataError(
            f"properties.num_classes is {properties['num_classes']}, and class_names has "
            f"{len(class_names)}"
        )


def _feature(value: Any, where: str) -> Feature:
    fields = Fields(value, where)
    encoding = fields.one_of("encoding", _ENCODINGS)

    def size(value, where):
        if value is None and encoding != "raw":
            return None
        return integer(value, where, 1, _MAX_EXAMPLE_BYTES)

    shape = fields.items("shape", size)
    feature = Feature(encoding, fields.one_of("dtype", DTYPES), shape)
    if feature.is_image_file and (
        feature.dtype != "uint8" or len(shape) != 3 or shape[-1] not in (1, 3)
    ):
        raise DataError(f"{where} is not uint8 [height, width, 1 or 3], as a {encoding} file is")
    if len(shape) > _MAX_RANK or (feature.is_static and feature.num_bytes > _MAX_EXAMPLE_BYTES):
        raise DataError(f"{where}.shape is too large")
    return feature


def _text(value: Any, where: str, features: Mapping[str, Feature]) -> Text:
    fields = Fields(value, where)
    text = Text(
        languages=fields.texts("languages"),
        vocabulary=fields.file_name("vocabulary"),
        vocab_size=fields.integer("vocab_size", low=1, high=2**31 - 1),
        max_length=fields.integer("max_length", low=1, high=_MAX_EXAMPLE_BYTES),
        splits=fields.named("splits", _text_split),
    )
    _check_tokens(features, ("source", "target"), text.max_length)
    return text


def _wordpiece(
    value: Any,
    where: str,
    features: Mapping[str, Feature],
    labels: tuple[str, ...],
    properties: Mapping[str, Any],
) -> WordPiece:
    fields = Fields(value, where)
    wordpiece = WordPiece(
        task=fields.one_of("task", WORDPIECE_TASKS),
        vocabulary=fields.file_name("vocabulary"),
        vocab_size=fields.integer("vocab_size", low=1, high=2**31 - 1),
        max_length=fields.integer("max_length", low=1, high=_MAX_EXAMPLE_BYTES),
        lower_case=fields.boolean("lower_case"),
        has_pairs=fields.boolean("has_pairs"),
        splits=fields.named("splits", _wordpiece_split),
        # Data sets of earlier versions have no such field.
        truncate=fields.one_of("truncate", TRUNCATE) if "truncate" in fields else TRUNCATE[0],
    )
    _check_tokens(features, ("input_ids", "input_mask", "segment_ids"), wordpiece.max_length)
    needed = _TASK_LABELS[wordpiece.task]
    if set(labels) != set(needed):
        raise DataError(
            f"labels are {', '.join(labels) or 'missing'}, and must be "
            f"{', '.join(needed) or 'classes'} for {where}.task {wordpiece.task}"
        )
    more = _TASK_FEATURES.get(wordpiece.task, ())
    for name in (*needed, *more):
        shape = features[name].shape if name in features else None
        num_predictions = features["masked_lm_ids"].shape if "masked_lm_ids" in features else None
        valid = num_predictions if name.startswith("masked_lm") else ()
        if name in _ROWS:
            valid = (wordpiece.max_length,)
        if shape is None or shape != valid or features[name].encoding != "raw":
            raise DataError(f"features.{name} must be raw {list(valid or ())} for {where}.task")
    _check_task_properties(wordpiece, properties)
    return wordpiece


def _check_task_properties(wordpiece, properties):
    fields = Fields(properties, "properties")
    if wordpiece.task == "token_classification":
        num_tags = fields.integer("num_tags", 1)
        if len(fields.texts("tag_names")) != num_tags:
            raise DataError(f"properties.tag_names are not num_tags={num_tags} names")
    if wordpiece.task == "squad":
        fields.boolean("has_impossible")
        fields.integer("doc_stride", 1, _MAX_EXAMPLE_BYTES)
        fields.integer("max_query_length", 1, max(1, wordpiece.max_length - 4))


def _wordpiece_split(value: Any, where: str) -> WordPieceSplit:
    fields = Fields(value, where)
    numbers = (fields.integer(name) for name in ("num_texts", "num_tokens", "num_truncated"))
    left_out = fields.named("left_out", lambda value, where: integer(value, where))
    side_file = fields.text("side_file")
    if side_file:
        fields.file_name("side_file")
    return WordPieceSplit(*numbers, left_out, side_file)


def _check_tokens(features, names, max_length):
    for name in names:
        feature = features.get(name)
        if feature is None or feature.encoding != "raw" or feature.shape != (max_length,):
            raise DataError(f"features.{name} is not raw [{max_length}], as text is")
        if np.dtype(feature.dtype).kind not in "iu":
            raise DataError(f"features.{name}.dtype is {feature.dtype}, and must be of integers")


def _annotations(
    value: Any, where: str, features: Mapping[str, Feature], labels: tuple[str, ...]
) -> Annotations:
    fields = Fields(value, where)
    class_names = fields.texts("class_names")
    wrong = names.find_class_name_problem(class_names)
    if wrong or not class_names:
        raise DataError(f"{where}.class_names: {wrong or 'there is none'}")
    annotations = Annotations(
        task=fields.one_of("task", ANNOTATION_TASKS),
        class_names=class_names,
        max_boxes=fields.integer("max_boxes", high=2**20),
        splits=fields.named(
            "splits", lambda value, where: _annotations_split(value, where, len(class_names))
        ),
    )
    image = features.get("image")
    if image is None or len(image.shape) != 3 or image.dtype != "uint8":
        raise DataError(f"features.image is not uint8 [height, width, channels], as {where} needs")
    if annotations.task == "segmentation":
        _check_mask(annotations, features, labels, where)
    else:
        _check_boxes(annotations, features, labels, where)
    return annotations


def _check_mask(annotations, features, labels, where):
    mask = features.get("mask")
    if labels != ("mask",) or mask is None or mask.shape[2:] != (1,) or mask.dtype != "uint8":
        raise DataError(
            f"the labels of {where}.task segmentation must be mask, uint8 [height, width, 1]"
        )
    if mask.encoding not in ("raw", "png") or mask.shape[:2] != features["image"].shape[:2]:
        raise DataError("features.mask is not raw or png, or has another size than the image")
    if annotations.num_classes > IGNORED_CLASS:
        raise DataError(
            f"{where}.class_names has {annotations.num_classes}, and masks hold up to "
            f"{IGNORED_CLASS}"
        )


def _check_boxes(annotations, features, labels, where):
    found = {name: features[name] for name in labels}
    needed = {
        name: Feature("raw", dtype, (annotations.max_boxes, *shape))
        for name, (dtype, shape) in _BOX_LABELS.items()
    }
    needed["image_id"] = Feature("raw", "int64", ())
    if not annotations.max_boxes or found != needed:
        raise DataError(
            f"the labels of {where}.task detection must be {', '.join(needed)}, raw, with "
            f"{where}.max_boxes rows of boxes"
        )


def _annotations_split(value: Any, where: str, num_classes: int) -> AnnotationsSplit:
    fields = Fields(value, where)
    counts = fields.integers("counts")
    if len(counts) != num_classes:
        raise DataError(f"{where}.counts has {len(counts)} numbers for {num_classes} classes")
    reasons = (
        fields.named(name, lambda value, where: integer(value, where))
        for name in ("corrected", "left_out")
    )
    return AnnotationsSplit(fields.integer("num_images"), counts, *reasons)


def _ratings(
    value: Any, where: str, features: Mapping[str, Feature], splits: Mapping[str, SplitInfo]
) -> Ratings:
    fields = Fields(value, where)

    def file_name(value, where):
        return Fields({"name": value}, where).file_name("name")

    ratings = Ratings(
        num_users=fields.integer("num_users", low=1, high=2**31 - 1),
        num_items=fields.integer("num_items", low=1, high=2**31 - 1),
        num_negatives=fields.integer("num_negatives", low=1, high=2**16),
        users=fields.file_name("users"),
        items=fields.file_name("items"),
        negatives=fields.named("negatives", file_name),
        left_out=fields.named("left_out", lambda value, where: integer(value, where)),
    )
    if features != dict.fromkeys(("user", "item"), Feature("raw", "int32", ())):
        raise DataError(f"features must be user and item, raw int32 scalars, as {where} needs")
    unknown = [name for name in ratings.negatives if name not in splits]
    if unknown:
        raise DataError(f"{where}.negatives has {unknown[0]!a}, which is not a split")
    return ratings


def _clicks(
    value: Any, where: str, features: Mapping[str, Feature], class_names: tuple[str, ...]
) -> Clicks:
    fields = Fields(value, where)
    table_rows, vocabulary_rows = (
        fields.items(name, lambda value, where: integer(value, where, 1, 2**31 - 1))
        for name in ("table_rows", "vocabulary_rows")
    )
    clicks = Clicks(
        table_rows=table_rows,
        vocabulary_rows=vocabulary_rows,
        vocabulary=fields.file_name("vocabulary"),
        missing=fields.named("missing", lambda value, where: integer(value, where)),
    )
    numbers = features.get("numbers")
    needed = {"numbers": numbers, "categories": Feature("raw", "int32", (len(table_rows),))}
    is_valid = numbers == Feature("raw", "float32", numbers.shape[:1] if numbers else ())
    if features != needed or not is_valid or not numbers.shape:
        raise DataError(
            f"features must be numbers, raw float32 [n], and categories, raw int32 "
            f"[{len(table_rows)}], as {where} needs"
        )
    if len(class_names) != 2:
        raise DataError(f"class_names must be 2, as {where} needs")
    if len(vocabulary_rows) != len(table_rows) or not all(
        known < rows for known, rows in zip(vocabulary_rows, table_rows)
    ):
        raise DataError(f"{where}.vocabulary_rows must be below {where}.table_rows, one for each")
    return clicks


def _audio(
    value: Any,
    where: str,
    features: Mapping[str, Feature],
    labels: tuple[str, ...],
    class_names: tuple[str, ...],
) -> Audio:
    fields = Fields(value, where)
    has_text = bool(fields.text("vocabulary"))
    audio = Audio(
        sample_rate=fields.integer("sample_rate", low=1, high=2**20),
        max_samples=fields.integer("max_samples", low=1, high=_MAX_EXAMPLE_BYTES),
        vocabulary=fields.file_name("vocabulary") if has_text else "",
        vocab_size=fields.integer("vocab_size", low=2 * has_text, high=2**21 * has_text),
        max_tokens=fields.integer("max_tokens", low=has_text, high=2**20 * has_text),
    )
    needed = {
        "waveform": Feature("raw", "int16", (audio.max_samples,)),
        "num_samples": Feature("raw", "int32", ()),
    }
    if has_text:
        needed["tokens"] = Feature("raw", "int32", (audio.max_tokens,))
    if features != needed or labels != ("tokens",) * has_text:
        raise DataError(
            f"features must be {', '.join(needed)}, raw, as {where} needs, and tokens a label"
        )
    if bool(class_names) == has_text:
        raise DataError(f"{where} needs either class_names or a vocabulary")
    return audio


def _text_split(value: Any, where: str) -> TextSplit:
    fields = Fields(value, where)
    numbers = (fields.integer(name) for name in ("pairs", "source_tokens", "target_tokens"))
    left_out = fields.named("left_out", lambda value, where: integer(value, where))
    return TextSplit(*numbers, left_out)


def _split(value: Any, where: str) -> SplitInfo:
    fields = Fields(value, where)
    return SplitInfo(
        label_histogram=fields.integers("label_histogram"),
        shards=fields.items("shards", _shard),
        broken=fields.items("broken", _broken),
        has_labels=fields.optional("has_labels", boolean) is not False,
    )


def _shard(value: Any, where: str) -> ShardInfo:
    fields = Fields(value, where)
    shard = ShardInfo(
        name=fields.file_name("name"),
        num_bytes=fields.integer("num_bytes"),
        num_examples=fields.integer("num_examples"),
        crc32=fields.optional("crc32", _crc32) or 0,
        offsets=fields.optional("offsets", _offsets) or (),
    )
    if shard.num_examples * _RECORD_BYTES > shard.num_bytes:
        raise DataError(
            f"{where} has {shard.num_examples} examples in {shard.num_bytes} bytes, which have no "
            "room for so many"
        )
    _check_offsets(shard, where)
    return shard


def _left_out(value: Any, where: str) -> LeftOut:
    fields = Fields(value, where)
    counts = fields.required("counts", mapping)
    found = LeftOut({reason: integer(n, f"{where}.counts") for reason, n in counts.items()})
    for reason, shown in fields.required("names", mapping).items():
        found.names[reason] = list(strings(shown, f"{where}.names"))
    lines = (line for values in found.names.values() for line in (*counts, *values))
    if found.names.keys() != counts.keys() or not all(map(names.is_line, lines)):
        raise DataError(f"{where} must have the counts and the first names of each reason")
    return found


def _offsets(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(offset) is int for offset in value):
        raise DataError(f"{where} must be a list of integers")
    return tuple(value)


def _check_offsets(shard, where):
    """Raises DataError if the index of a shard cannot be that of its records."""
    if not shard.offsets:
        return
    stride, bounds = shard.stride, (*shard.offsets, shard.num_bytes)
    problem = ""
    if -(-shard.num_examples // stride) != len(shard.offsets):
        problem = f"cannot divide {shard.num_examples} examples"
    elif bounds[0]:
        problem = f"begins with {bounds[0]} instead of 0"
    for i, (offset, following) in enumerate(zip(bounds, bounds[1:])):
        num_records = min(stride, shard.num_examples - i * stride)
        if not problem and following - offset < num_records * _RECORD_BYTES:
            problem = f"has {num_records} examples from byte {offset} to {following}"
    if problem:
        raise DataError(
            f"{where}.offsets, with {len(shard.offsets)} numbers, {problem}. Without this field "
            "the shard is read from its first byte"
        )


def _crc32(value: Any, where: str) -> int:
    return integer(value, where, high=2**32 - 1)


def _broken(value: Any, where: str) -> tuple[str, str]:
    name_and_reason = strings(value, where)
    if len(name_and_reason) != 2:
        raise DataError(f"{where} must be a name and a reason")
    return name_and_reason
