"""Checks that the fields of a dataset.json agree with each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from common import names
from input_fns import DataError
from input_fns.core.dataset_parts import Feature
from input_fns.core.json_fields import Fields, items

# Kinds of data; plain images and records of custom data are of none.
_KINDS = ("text", "wordpiece", "annotations", "ratings", "clicks", "audio")
_CLASSIFICATION = "classification"
_MAX_CLASSES = 2**31 - 1  # labels are int32


def check(found: Mapping[str, Any], num_examples: Mapping[str, int]) -> None:
    """Checks the fields of a `DatasetInfo`, each of which is valid alone.

    Args:
      found: `{name: value}`.
      num_examples: `{split: number of examples}` that the file states.

    Raises:
      DataError: two fields contradict each other; the message names them.
    """
    kinds = [name for name in _KINDS if found[name]]
    if len(kinds) > 1:
        raise DataError(f"it has {' and '.join(kinds)}: a data set is of one kind")
    if not found["name"]:
        raise DataError("name is empty")
    for name, count in num_examples.items():
        _check_split(name, found["splits"][name], count, len(found["class_names"]))
    _check_properties(found["properties"], found)
    kind = found[kinds[0]] if kinds else None
    if kinds and hasattr(kind, "splits"):
        unknown = [name for name in kind.splits if name not in found["splits"]]
        if unknown:
            raise DataError(f"{kinds[0]}.splits has {unknown[0]!a}, which is not a split")
    if kinds and kinds[0] in ("text", "ratings") and (found["labels"] or found["class_names"]):
        raise DataError(f"labels and class_names must be empty for {kinds[0]}")
    if found["text"]:
        _check_languages(found["text"].languages)
    if found["wordpiece"]:
        _check_wordpiece(found["wordpiece"], found)
    if found["annotations"]:
        _check_annotations(found["annotations"], found)
    if not kinds and found["class_names"] and not found["labels"]:
        problem = find_image_problem(found["features"])
        if problem:
            raise DataError(problem)


def find_image_problem(features: Mapping[str, Feature]) -> str | None:
    """Returns what is wrong with the features of examples with a class; None if nothing is.

    An example with no other feature than "image" is one of `image_pipeline`.
    """
    if set(features) != {"image"} or len(features["image"].shape) == 3:
        return None
    return (
        f"features.image has the shape {list(features['image'].shape)}, and must be [height, "
        "width, channels] in a data set of images with classes. Give other arrays another name"
    )


def _check_split(name, split, count, num_classes):
    where, actual = f"splits.{name}", split.num_examples
    if count != actual:
        raise DataError(f"{where}.num_examples is {count}, and its shards have {actual}")
    histogram = split.label_histogram
    if len(histogram) not in (0, num_classes):
        raise DataError(f"{where}.label_histogram has {len(histogram)} of {num_classes} classes")
    if histogram and sum(histogram) != actual:
        raise DataError(f"{where}.label_histogram has {sum(histogram)} of {actual} examples")


def _check_properties(properties, found):
    """Checks the properties that this program reads; others are free-form."""
    fields = Fields(properties, "properties")
    if "num_classes" in fields:
        fields.integer("num_classes", 1, _MAX_CLASSES)
    if "tag_names" in fields and found["wordpiece"]:
        wrong = names.find_class_name_problem(fields.texts("tag_names"))
        if wrong:
            raise DataError(f"properties.tag_names: {wrong}")


def _check_languages(languages):
    if len(languages) != 2 or names.find_class_name_problem(languages):
        raise DataError(f"text.languages are {list(languages)!a}, and must be two names")


def _check_wordpiece(wordpiece, found):
    has_classes = wordpiece.task == _CLASSIFICATION
    if bool(found["class_names"]) != has_classes:
        raise DataError(
            f"class_names must {'have names' if has_classes else 'be empty'} for wordpiece.task "
            f"{wordpiece.task}"
        )
    for name, feature in found["features"].items():
        kinds, what = ("f", "floats") if name == "score" else ("iu", "integers")
        if np.dtype(feature.dtype).kind not in kinds:
            raise DataError(f"features.{name}.dtype is {feature.dtype}, and must be of {what}")
    for name in found["splits"] if wordpiece.task == "squad" else ():
        if name not in wordpiece.splits or not wordpiece.splits[name].side_file:
            raise DataError(f"wordpiece.splits.{name}.side_file is missing, as squad needs it")


def _check_annotations(annotations, found):
    for name, split in annotations.splits.items():
        count = found["splits"][name].num_examples
        if split.num_images != count:
            raise DataError(
                f"annotations.splits.{name}.num_images is {split.num_images}, and the split has "
                f"{count} examples"
            )
    if annotations.task == "segmentation" and annotations.max_boxes:
        raise DataError(f"annotations.max_boxes is {annotations.max_boxes}; masks have no boxes")
    fields = Fields(found["properties"], "properties")
    if "category_ids" in fields:
        ids = fields.required("category_ids", read_ids)
        if len(ids) != annotations.num_classes:
            raise DataError(
                f"properties.category_ids has {len(ids)} ids for {annotations.num_classes} classes"
            )
    if "image_ids" in fields:
        fields.file_name("image_ids")


def read_ids(value: Any, where: str) -> tuple[int | str, ...]:
    """Returns a list of different ids, integers or text.

    Raises:
      DataError: it is not one; the message names the first wrong id.
    """
    found = items(value, where, _id)
    twice = names.repeated(found)
    if twice:
        raise DataError(f"{where}: the id {twice[0]!a} is repeated")
    return found


def _id(value, where):
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise DataError(f"{where} is not an id: an integer or text")
    return value
