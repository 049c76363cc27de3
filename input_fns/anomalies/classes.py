"""Splits, classes and labels of data of any kind."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from common.names import counted
from input_fns.anomalies.sample import MANY, Anomaly, Sample, listed, without
from input_fns.core.target import FEATURE
from input_fns.dataset_info import DatasetInfo

# With fewer classes, a data set may be a small trial.
_MANY_CLASSES = 10
# A name is rather a typing error than a class below this share of the examples of the other one.
_RARE, _MOST_NAMES = 0.03, 1000
# Letters of a name that may be misspelled, and of one in which letters may be swapped: "RCB". Many
# shorter words differ in a letter: "boat" and "coat".
_SHORTEST_NEAR, _SHORTEST = 5, 3


def of_names(data: DatasetInfo) -> Iterator[Anomaly]:
    """Yields classes and tags that may be two spellings of one: "Cat" and "cat"."""
    first: dict[str, str] = {}
    tags = data.properties.get("tag_names") if "tag_ids" in data.features else None
    for name in (*data.all_class_names, *(tags or ())):
        key = " ".join(unicodedata.normalize("NFKC", str(name)).casefold().split())
        key = key.replace("\N{MINUS SIGN}", "-")
        other = first.setdefault(key, name)
        if other != name and len(key) > 1:  # letters are classes of their own in EMNIST
            yield Anomaly(f"the classes '{other}' and '{name}' may be one class")


def of_rare_names(data: DatasetInfo) -> Iterator[Anomaly]:
    """Yields classes of few examples whose names are nearly those of frequent ones: "postive"."""
    if "train" not in data.splits or len(data.all_class_names) > _MOST_NAMES:
        return
    counts = data.kind.class_counts(data, "train")
    most = max(counts.values(), default=0)
    frequent = [name for name, count in counts.items() if count > _RARE * most]
    # Names that differ in a number are two classes.
    letters = {_letters(other): other for other in frequent if len(other) >= _SHORTEST}
    long = [found for found in letters if len(found) >= _SHORTEST_NEAR]
    for name in (name for name, count in counts.items() if count <= _RARE * most):
        own = _letters(name)
        if own in letters:
            continue
        near = [found for found in long if _differ_in_a_letter(found, own)]
        swapped = [found for found in letters if sorted(found) == sorted(own)]
        for found in (swapped or near)[:1]:
            other = letters[found]
            if counts[name] <= _RARE * counts[other]:
                yield Anomaly(
                    f"the class '{name}' occurs {counted(counts[name], 'time')} and '{other}' "
                    f"{counts[other]}: they may be one class"
                )


def _letters(name):
    return re.sub(r"[\W\d_]+", "", name.casefold())


def _differ_in_a_letter(name, other):
    """Returns whether one letter is missing, added or another one; not a prefix: "atypical"."""
    if name.endswith(other) or other.endswith(name):
        return False
    pairs = enumerate(zip(name, other))
    first = next((i for i, (a, b) in pairs if a != b), min(len(name), len(other)))
    rest, of_other = name[first:], other[first:]
    return rest[1:] == of_other[1:] or rest[1:] == of_other or rest == of_other[1:]


def of_splits(data: DatasetInfo) -> Iterator[Anomaly]:
    """Yields a missing "train", and classes without an example in it."""
    if "train" not in data.splits:
        if any(split.has_labels for split in data.splits.values()):
            splits = ", ".join(data.splits)
            yield Anomaly(f"there is no split 'train', only {splits}: not for training")
        return
    counts = data.splits["train"].label_histogram
    missing = [name for name, count in zip(data.class_names, counts) if not count]
    num_present = len(data.class_names) - len(missing)
    if num_present == 1:
        (only,) = (name for name in data.class_names if name not in missing)
        others = f"and none {listed(missing)}" if missing else "the only one"
        yield Anomaly(f"all examples of 'train' have the class '{only}', {others}", is_error=True)
    elif missing and any(counts):
        yield without(missing, "example")
    if num_present >= _MANY_CLASSES and num_present > sum(counts) / 2:
        yield Anomaly(
            f"the {sum(counts)} examples of 'train' have {num_present} classes, most of them one "
            "example: the labels may be names or numbers of another kind",
        )


def of_skipped(data: DatasetInfo) -> Iterator[Anomaly]:
    """Yields splits of which many examples could not be stored."""
    noun = "images" if "image" in data.features else data.kind.noun
    for name, split in data.splits.items():
        num_skipped, total = len(split.broken), len(split.broken) + split.num_examples
        if num_skipped > MANY * total:
            first, reason = split.broken[0]
            yield Anomaly(
                f"{num_skipped} of {total} {noun} of '{name}' are skipped; the first is "
                f"{first}: {reason}",
            )


def of_tags(sample: Sample) -> Iterator[Anomaly]:
    """Yields words without any tag."""
    if "tag_ids" not in sample.data.features or not sample.info.has_labels:
        return
    if not (sample.values("tag_ids") >= 0).any():
        yield Anomaly(f"no word of {sample.where} has a tag", is_error=sample.is_train)


def of_target(sample: Sample) -> Iterator[Anomaly]:
    """Yields numbers that are all equal, and classes that no example or all examples have."""
    target = sample.data.target
    if not target or not sample.info.has_labels or len(sample.examples) < 2:
        return
    values = sample.values(FEATURE)
    constant = {
        name: column[0]
        for name, column in zip(target.names, values.T)
        if (column == column[0]).all()
    }
    is_error = sample.is_train and len(constant) == len(target.names)
    is_error = is_error and len(sample.examples) == sample.info.num_examples
    if target.kind == "multilabel":
        for label, which in ((0, "no"), (1, "every")):
            labels = [name for name, value in constant.items() if value == label]
            if labels:
                yield Anomaly(
                    f"labels that {which} example of {sample.where} has: {listed(labels)}", is_error
                )
    elif constant:
        numbers = [f"{name} ({value:g})" for name, value in constant.items()]
        yield Anomaly(f"equal in all examples of {sample.where}: {listed(numbers)}", is_error)


def of_scores(sample: Sample) -> Iterator[Anomaly]:
    """Yields scores that are all equal."""
    if "score" not in sample.data.features or not sample.info.has_labels:
        return
    scores = sample.values("score")
    if len(scores) > 1 and (scores == scores[0]).all():
        yield Anomaly(f"all scores of {sample.where} are {scores[0]:g}")
