"""Finds data that can be stored but hardly learned from, whatever its source.

`prepare_data.py` runs these checks before it replaces a data set, `--mode=inspect` on any data set.
The checks of a kind of data are methods of its `kinds.Kind`. Counts of classes are exact; other
checks read a sample of the records of each split.
"""

from __future__ import annotations

from collections.abc import Mapping

from input_fns import DataError
from input_fns.anomalies import classes, sample
from input_fns.anomalies.sample import Anomaly
from input_fns.dataset_info import DatasetInfo

__all__ = ["Anomaly", "find", "require_none"]
_OF_COUNTS = (classes.of_splits, classes.of_names, classes.of_rare_names, classes.of_skipped)
_OF_SAMPLE = (classes.of_tags, classes.of_scores, classes.of_target)


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
    checks = (*_OF_COUNTS, data.kind.count_anomalies)
    found = [anomaly for check in checks for anomaly in check(data)]
    for name, split in data.splits.items():
        if split.num_examples:
            examples = sample.read(data, name, files or {})
            checks = (data.kind.anomalies, *_OF_SAMPLE)
            found += [anomaly for check in checks for anomaly in check(examples)]
    return found
