"""Label columns of rows with any number of classes, probabilities of classes, or numbers.

By --task: multilabel, one 0/1 column per class, or one column of labels with --label_separator;
soft_labels, a column of probabilities per class; regression, a column per number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from common import names, strict_flags
from common.names import normalized
from input_fns import DataError
from input_fns.convert import columns, files
from input_fns.convert.options import Options
from input_fns.core.target import FEATURE, Target

_LIST = re.compile(r"\[.*\]|\{.*\}", re.DOTALL)  # of Python or JSON
_LARGEST = float(np.finfo(np.float32).max)


def read(
    options: Options,
    values: Mapping[str, Sequence[str | None]],
    where: Sequence[str],
    rows: Sequence[int],
) -> tuple[Target, np.ndarray]:
    """Returns the target and its values, float32 `[len(where), n]`, NaN in other rows than `rows`.

    Args:
      options: `task`, `label_separator` and `class_names` are used.
      values: `{label column: values of all rows}`, without surrounding white space.
      where: place of each row, for errors.
      rows: numbers of the rows with labels.

    Raises:
      DataError: a value is missing or invalid, or no row has a class.
    """
    is_list = bool(options.label_separator)
    if is_list != (len(values) == 1) and options.task == "multilabel":
        raise DataError(
            f"--task=multilabel with the label columns {', '.join(values)}: it needs one 0/1 "
            "column per class, or one column and --label_separator, the character between its "
            "labels. --label_columns says which columns are labels"
        )
    if options.task == "soft_labels" and len(values) == 1:
        raise DataError(
            f"--task=soft_labels needs a column of probabilities per class, not only "
            f"{', '.join(values)}. --label_columns says which columns are labels"
        )
    class_names = tuple(map(normalized, options.class_names))
    if is_list:
        class_names, found = _listed(options, next(iter(values.values())), where, rows)
    else:
        if class_names and class_names != tuple(values):
            raise DataError(
                f"--class_names={','.join(class_names)} are not the label columns "
                f"{','.join(values)}: order and choose them with --label_columns"
            )
        class_names = tuple(values)
        read_value = _zero_or_one if options.task == "multilabel" else _number
        found = np.full([len(where), len(values)], np.nan, np.float32)
        for column, (name, of_column) in enumerate(values.items()):
            noun = {"multilabel": "0 or 1", "regression": "number"}.get(options.task, "probability")
            columns.require_values(noun, name, of_column, where, rows)
            for row in rows:
                found[row, column] = read_value(f"{where[row]}: {name}", of_column[row])
    target = Target(options.task, class_names)
    target.validate(FEATURE)
    for row in rows:
        problem = target.find_problem(found[row])
        if problem:
            raise DataError(f"{where[row]}: {problem}")
    if options.task == "soft_labels":
        found /= found.sum(axis=1, keepdims=True)
    if options.task != "regression" and len(rows):
        unused = [n for n, column in zip(class_names, found[rows].T) if not column.any()]
        if unused:
            raise DataError(f"no row has the label {', '.join(unused)}")
    return target, found


def _listed(options, cells, where, rows):
    """Returns class names and values of a column that lists the labels of each row."""
    separator = options.label_separator
    labels = {
        row: [label for label in map(normalized, (cells[row] or "").split(separator)) if label]
        for row in rows
    }
    lists = [row for row in rows if _LIST.fullmatch(cells[row] or "")]
    if lists:
        raise DataError(
            f"{where[lists[0]]}: the labels {cells[lists[0]][:60]!a} are written as a list of "
            f"Python or JSON. Write them with {separator!a} between them and without brackets"
        )
    class_names = tuple(map(normalized, options.class_names))
    if not class_names:
        every = [label for of_row in labels.values() for label in of_row]
        if not every:
            raise DataError(f"{where[rows[0]] if len(rows) else 'the table'}: no row has a label")
        places = [where[row] for row, of_row in labels.items() for _ in of_row]
        class_names = columns.class_names(every, places, "the label column")
    number_of = {name: number for number, name in enumerate(class_names)}
    found = np.full([len(where), len(class_names)], np.nan, np.float32)
    found[rows] = 0
    for row, of_row in labels.items():
        twice = names.repeated(of_row)
        if twice:
            raise DataError(f"{where[row]}: the label '{twice[0]}' is repeated")
        for label in of_row:
            if label not in number_of:
                raise DataError(
                    f"{where[row]}: unknown label '{label[:60]}'; the classes are "
                    f"{', '.join(class_names)}"
                )
            found[row, number_of[label]] = 1
    num_empty = sum(not of_row for of_row in labels.values())
    if num_empty:
        files.note(f"{num_empty} rows have no label: they are examples of none of the classes")
    return class_names, found


def _zero_or_one(where, text):
    number = columns.zero_or_one(text)
    if number is None:
        raise DataError(f"{where} is {text[:60]!a}, and must be 0 or 1 for --task=multilabel")
    return number


def _number(where, text):
    try:
        number = strict_flags.to_float(text)
    except ValueError:
        number = np.inf
    if not abs(number) <= _LARGEST:
        raise DataError(f"{where} is {text[:60]!a}, and must be a number of float32")
    return number
