"""From a `Dataset` to the text of its dataset.json, and back, with a check of every field."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from common import names
from input_fns import DataError
from input_fns.dataset_parts import Feature, Shard, Split, Text, TextSplit
from input_fns.json_fields import Fields, integer, loads, mapping, strings

if TYPE_CHECKING:
    from input_fns.dataset_info import Dataset

FORMAT = 2
_ENCODINGS = ("raw", "jpeg", "png", "image")
_DTYPES = (
    *("uint8", "uint16", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "bool"),
)
_MAX_RANK = 8
_MAX_EXAMPLE_BYTES = 2**31 - 1  # of a tf.train.Example
_RECORD_BYTES = 16  # around each record of a shard


def to_json(dataset: Dataset) -> str:
    """Returns the text of `dataset.json`."""
    fields = {"format": FORMAT, **dataclasses.asdict(dataset)}
    del fields["data_dir"]
    for name, split in dataset.splits.items():
        for shard in fields["splits"][name]["shards"]:
            del shard["path"]
        fields["splits"][name] = {"num_examples": split.num_examples, **fields["splits"][name]}
    return json.dumps(fields, indent=1) + "\n"


def fields_of(content: str) -> dict[str, Any]:
    """Returns the fields of a `Dataset` from what a dataset.json holds.

    Raises:
      DataError: a field is missing, of another type or out of range; the message names it.
    """
    fields = Fields(loads(content), "")
    version = fields.integer("format")
    if version != FORMAT:
        raise DataError(
            f"it has format {version}, this version reads {FORMAT}: make it anew with "
            "prepare_data.py"
        )
    class_names = fields.texts("class_names")
    wrong = names.problem_of_class_names(class_names)
    if wrong:
        raise DataError(f"class_names: {wrong}")
    features = fields.named("features", _feature)
    if not features:
        raise DataError("features is empty")
    splits = fields.named("splits", _split)
    if not splits:
        raise DataError("splits is empty")
    shards = [shard.name for split in splits.values() for shard in split.shards]
    if names.repeated(shards):
        raise DataError(f"the shard {names.repeated(shards)[0]} is there more than once")
    return {
        "name": fields.text("name"),
        "features": features,
        "class_names": class_names,
        "splits": splits,
        "text": fields.optional("text", lambda value, where: _text(value, where, features)),
        "prepared_with": fields.optional("prepared_with", mapping) or {},
    }


def _feature(value: Any, where: str) -> Feature:
    fields = Fields(value, where)
    encoding = fields.one_of("encoding", _ENCODINGS)

    def size(value, where):
        if value is None and encoding != "raw":
            return None
        return integer(value, where, 1, _MAX_EXAMPLE_BYTES)

    shape = fields.items("shape", size)
    feature = Feature(encoding, fields.one_of("dtype", _DTYPES), shape)
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
    for side in ("source", "target"):
        feature = features.get(side)
        if feature is None or feature.encoding != "raw" or feature.shape != (text.max_length,):
            raise DataError(f"features.{side} is not raw [{text.max_length}], as text is")
        if np.dtype(feature.dtype).kind not in "iu":
            raise DataError(f"features.{side}.dtype is {feature.dtype}, and must be of integers")
    return text


def _text_split(value: Any, where: str) -> TextSplit:
    fields = Fields(value, where)
    numbers = (fields.integer(name) for name in ("pairs", "source_tokens", "target_tokens"))
    left_out = fields.named("left_out", lambda value, where: integer(value, where))
    return TextSplit(*numbers, left_out)


def _split(value: Any, where: str) -> Split:
    fields = Fields(value, where)
    return Split(
        label_histogram=fields.integers("label_histogram"),
        shards=fields.items("shards", _shard),
        broken=fields.items("broken", _broken),
    )


def _shard(value: Any, where: str) -> Shard:
    fields = Fields(value, where)
    shard = Shard(
        name=fields.file_name("name"),
        num_bytes=fields.integer("num_bytes"),
        num_examples=fields.integer("num_examples"),
        crc32=fields.optional("crc32", _crc32) or 0,
    )
    if shard.num_examples * _RECORD_BYTES > shard.num_bytes:
        raise DataError(
            f"{where} has {shard.num_examples} examples in {shard.num_bytes} bytes, which have no "
            "room for so many"
        )
    return shard


def _crc32(value: Any, where: str) -> int:
    return integer(value, where, high=2**32 - 1)


def _broken(value: Any, where: str) -> tuple[str, str]:
    name_and_reason = strings(value, where)
    if len(name_and_reason) != 2:
        raise DataError(f"{where} must be a name and a reason")
    return name_and_reason
