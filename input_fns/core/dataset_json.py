"""Reads a dataset.json with a check of every field, and of fields that must agree."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Mapping
from typing import Any

from common import names
from common.constants import DROPOUT_SEED, EXAMPLE_WEIGHT
from input_fns import DataError, kinds
from input_fns.core.dataset_parts import Feature, LeftOut, SplitInfo
from input_fns.core.json_fields import Fields, line, loads, mapping, named, nested, strings
from input_fns.core.target import Target

FORMAT = 2
_MAX_CLASSES = 2**31 - 1  # labels are int32
# Keys of a stored example, and features that the input pipeline adds.
_RESERVED = ("label", "name", EXAMPLE_WEIGHT, DROPOUT_SEED)


def parse(content: str) -> dict[str, Any]:
    """Returns the fields of a `DatasetInfo` from the text of a dataset.json.

    Each is valid alone; `Kind.check` compares those of its kind with the others.

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
    class_names = fields.required("class_names", strings)
    wrong = names.find_class_name_problem(class_names)
    if wrong:
        raise DataError(f"class_names: {wrong}")
    features = fields.required("features", named(nested(Feature), "/"))
    if not features:
        raise DataError("features is empty")
    problem = find_name_problem(features)
    if problem:
        raise DataError(f"features: {problem}")
    labels = fields.optional("labels", strings) or ()
    wrong = [name for name in labels if name not in features] or names.repeated(labels)
    if wrong:
        raise DataError(f"labels: {wrong[0]!a} is not a feature, or is repeated")
    target = fields.optional("target", nested(Target))
    if target:
        target.check(features, labels, class_names)
    properties = fields.optional("properties", check_properties) or {}
    if "num_classes" in properties:
        Fields(properties, "properties").integer("num_classes", 1, _MAX_CLASSES)
    splits = fields.required("splits", named(nested(SplitInfo)))
    if not splits:
        raise DataError("splits is empty")
    shards = [shard.name for split in splits.values() for shard in split.shards]
    if names.repeated(shards):
        raise DataError(f"the shard {names.repeated(shards)[0]} is repeated")
    num_examples = fields.required("splits", named(_num_examples))
    for name, split in splits.items():
        _check_split(f"splits.{name}", split, num_examples[name], len(class_names))
    name = fields.required("name", line)
    if not name:
        raise DataError("name is empty")
    of_kinds = {
        key: fields.optional(key, nested(kinds.find(key))) for key in kinds.KINDS if key in fields
    }
    found = [key for key, kind in of_kinds.items() if kind]
    if len(found) > 1:
        raise DataError(f"it has {' and '.join(found)}: a data set is of one kind")
    kind = of_kinds[found[0]] if found else None
    unknown = [split for split in getattr(kind, "splits", ()) if split not in splits]
    if unknown:
        raise DataError(f"{kind.name}.splits has {unknown[0]!a}, which is not a split")
    return {
        "name": name,
        "features": features,
        "class_names": class_names,
        "splits": splits,
        "prepared_with": fields.optional("prepared_with", mapping) or {},
        "labels": labels,
        "properties": properties,
        "target": target,
        "kind": kind,
        "left_out": fields.optional("left_out", nested(LeftOut)) or LeftOut(),
    }


def _num_examples(value, where):
    """Returns the number of examples that a split states; that of its shards if it does not."""
    fields = Fields(value, where)
    if "num_examples" in fields:
        return fields.integer("num_examples")
    return sum(shard["num_examples"] for shard in value["shards"])


def _check_split(where, split, count, num_classes):
    actual, histogram = split.num_examples, split.label_histogram
    if count != actual:
        raise DataError(f"{where}.num_examples is {count}, and its shards have {actual}")
    if len(histogram) not in (0, num_classes):
        raise DataError(f"{where}.label_histogram has {len(histogram)} of {num_classes} classes")
    if histogram and sum(histogram) != actual:
        raise DataError(f"{where}.label_histogram has {sum(histogram)} of {actual} examples")


def find_name_problem(features: Iterable[str]) -> str | None:
    """Returns what is wrong with the names of features, which may be nested: "a/b"."""
    flat = list(features)
    parents = {name[:place] for name in flat for place, c in enumerate(name) if c == "/"}
    for name in flat:
        if not all(names.is_plain_name(part) for part in name.split("/")):
            return f"{name!a} is not a plain name"
        if name.partition("/")[0] in _RESERVED:
            return f"'{name}' is a reserved name; use another one than {', '.join(_RESERVED)}"
        if keyword.iskeyword(name):
            return f"'{name}' is a keyword of Python: tf.saved_model.load refuses such an input"
        if name in parents:
            return f"'{name}' is both a feature and a prefix of others"
    return None


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
