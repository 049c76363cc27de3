"""Texts with labels in tables, one file for each split: SOURCE/train.tsv, SOURCE/dev.jsonl.gz, ...

`tables` says which formats, `split_names` which names. A split other than "train" may have no
labels: it can be predicted. Also the parts that other sources of text share.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from common import strict_flags
from common.names import first_of, is_line, normalized
from input_fns import DataError, dataset_info
from input_fns.convert import columns, table_parts, tables, target_columns
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedTexts
from input_fns.convert.source import RawDataset, chosen
from input_fns.convert.split_names import split_in
from input_fns.convert.table_parts import LargeTable
from input_fns.core.target import FEATURE
from input_fns.dataset_info import LeftOut
from input_fns.text.sources import bert_vocabulary
from input_fns.text.sources.token_rows import RawTexts

_LARGEST_SCORE = float(np.finfo(np.float32).max)
CLASSIFICATION, REGRESSION = TASKS = ("classification", "regression")
_NO_CLASS = "-1"  # class of examples without one, in tables of Hugging Face's datasets


@dataclasses.dataclass(frozen=True)
class LabelledTable:
    """Texts and labels of a split, as text.

    Attributes:
      places: place of each text, for errors.
      texts: the texts, and the second texts of pairs.
      labels: label of each text, or None if the file has none; of several columns a tuple, or "" if
        all are empty.
      groups: values that are equal for texts that must stay in one split, or None.
      left_out: number of rows that the source does not yield, by reason.
      columns: names of the columns of the file, for errors.
    """

    places: Sequence[str]
    texts: tuple[Sequence[str], ...]
    labels: list[str] | list[tuple[str, ...] | str] | None
    groups: np.ndarray | None = None
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
    columns: Sequence[str] = ()

    def take(self, indices: Sequence[int], left_out: Mapping[str, int]) -> LabelledTable:
        """Returns these rows."""
        names = ("places", "texts", "labels", "groups")
        rows = {name: chosen(getattr(self, name), indices) for name in names}
        return dataclasses.replace(self, **rows, left_out=left_out)


def read(options: Options, runner: Runner) -> RawDataset:
    """Returns one split per file, or the splits of `split_column`.

    Args:
      runner: reads parts of large files.
      options: `source` is a folder or a file; `columns` names the columns of files without a header
        line; `text_columns`, `label_columns`, `split_column`, `group_column`, `class_names`;
        `task`; `label_separator`.

    Raises:
      DataError: a file, a column or a value is missing or invalid.
    """
    if len(options.text_columns) > 2:
        raise DataError(
            f"--text_columns={','.join(options.text_columns)}: an example has one or two texts"
        )
    if len(options.label_columns) > 1 and options.task == CLASSIFICATION:
        raise DataError(
            f"--label_columns={','.join(options.label_columns)}: a text has one label with "
            f"--task={options.task}. Use --task=multilabel for any number of labels, "
            "--task=soft_labels for probabilities, or --task=regression for numbers"
        )
    options = dataclasses.replace(
        options, class_names=tuple(normalized(name) for name in options.class_names)
    )
    left_out = LeftOut()
    found = {}
    labels = *options.label_columns, options.group_column, options.split_column
    read_table = functools.partial(
        table_parts.read, texts=options.text_columns, labels=labels, runner=runner
    )
    tables_of = columns.split_tables(options, read_table)
    _check_columns(options, tables_of)
    for split, rows in tables_of.items():
        table = _labelled(rows, options, left_out)
        stem, _ = tables.split_name(os.path.basename(rows.path))
        is_named = options.split_column or options.split_files or split_in(stem)
        if table.labels is None and split == "train" and not is_named:
            split = "test"  # texts to predict, alone
        found[split] = table
    if _has_target(options):
        raw = _with_target(options, found)
    else:
        raw = to_dataset(options, found, options.task, options.class_names)
    raw.left_out.update(left_out)
    return raw


def _has_target(options):
    """Whether a text has several labels, probabilities or numbers, not one class or score."""
    return options.task not in TASKS or len(options.label_columns) > 1


def _check_columns(options, tables_of):
    """Checks that "train", or without it any split, has a label column: a typo has no labels.

    Splits to predict have none. Alone they may repeat those of the data set in --vocabulary.

    Raises:
      DataError: a text column is missing, or the label columns are.
    """
    for table in tables_of.values():
        for name in options.text_columns:
            table.known(name)
    names = tuple(map(normalized, options.label_columns))
    lacking = {split: table for split, table in tables_of.items() if not _has_any(table, names)}
    is_needed = "train" in lacking or len(lacking) == len(tables_of)
    if not names or not is_needed or names == _known_targets(options):
        return
    table = lacking.get("train") or next(iter(lacking.values()))
    raise DataError(
        f"{table.path} has no column '{names[0]}'; {tables.describe(table.columns)}. To predict "
        "texts without labels, leave out --label_columns"
    )


def _has_any(table, names):
    return any(name in table.columns for name in names)


def _known_targets(options):
    """Returns the names of the target of the data set that `options.vocabulary` names, or None."""
    target = _of_vocabulary(options, "target")
    return tuple(target.names) if target else None


def _of_vocabulary(options, attribute):
    """Returns an attribute of the data set that `options.vocabulary` names; None without one."""
    if not options.vocabulary or not dataset_info.exists(options.vocabulary):
        return None
    return getattr(dataset_info.read(options.vocabulary), attribute)


def _label_advice(options, names):
    """Returns advice for a table with columns of no flag, one of which may have the labels."""
    used = {*options.text_columns, options.group_column, options.split_column}
    others = set(names) - set(map(normalized, filter(None, used)))
    if not others or not options.text_columns or options.label_columns:
        return ""
    if _of_vocabulary(options, "all_class_names"):  # of the texts of a prediction
        return ""
    return ". If a column has the labels, name it with --label_columns"


def _labelled(table, options, left_out):
    """Returns texts and labels of a table; rows without a text are left out and counted.

    Of a pair one text may be empty.

    Raises:
      DataError: a row of a table without labels has no text, or all rows.
    """
    texts = tuple(table.column(name) for name in options.text_columns)
    names, labels = tuple(map(normalized, options.label_columns)), None
    if names and not _has_target(options) and names[0] in table.columns:
        labels = table.cleaned(names[0])
    elif _has_target(options) and _has_any(table, names):
        rows = zip(*map(table.cleaned, names))
        labels = [row if any(row) else "" for row in rows]
    groups = None
    if isinstance(table, LargeTable):
        groups = table.groups
    if options.group_column:
        groups = np.array(table.cleaned(options.group_column), object)
    empty_rows = tuple(map(_empty_rows, texts))
    texts = tuple(map(_with_empty, texts, empty_rows))
    whole = LabelledTable(table.places, texts, labels, groups, columns=table.columns)
    empty = sorted(set.intersection(*map(set, empty_rows)))
    # Of a file to predict no row is left out: predictions belong to its rows by their number.
    no_label = {"", _NO_CLASS} if options.task == CLASSIFICATION else {""}
    if empty and (set(labels or ()) <= no_label or len(empty) == len(table.rows)):
        names = " and ".join(f"'{name}'" for name in options.text_columns)
        is_one = len(empty) == 1
        raise DataError(
            f"{table.where(empty[0])}: no text in column{'s'[: len(texts) - 1]} {names}"
            f"{first_of(len(empty))}. Remove "
            f"{'the row' if is_one else 'them'}, or add text"
            f"{_label_advice(options, table.columns)}"
        )
    for row in empty:
        left_out.add("rows without a text", table.where(row))
    return without_rows(whole, dict.fromkeys(empty, "rows without a text")) if empty else whole


def _empty_rows(texts):
    if isinstance(texts, SharedTexts):
        return np.flatnonzero(texts.rows.lengths == 0).tolist()
    return [row for row, text in enumerate(texts) if text is None or not text.strip()]


def _with_empty(texts, empty_rows):
    """Returns the texts with "" for white space, and for values that are no text in JSON."""
    if isinstance(texts, SharedTexts) or not empty_rows:
        return texts
    texts = list(texts)
    for row in empty_rows:
        texts[row] = ""
    return texts


def _missing(options, table):
    """Returns the label columns that a table without labels lacks."""
    if table.labels is not None:
        return ()
    return tuple(map(normalized, options.label_columns))


def to_dataset(
    options: Options,
    tables_of: Mapping[str, LabelledTable],
    task: str,
    class_names: Sequence[str] = (),
    shown_as: Sequence[str] = (),
) -> RawDataset:
    """Returns the data set of texts; splits other than "train" may have no labels.

    Args:
      options: `dataset`; `vocabulary`, which may be a data set, if no split has labels.
      tables_of: `{split: LabelledTable}`.
      task: "classification" or "regression".
      class_names: labels in the order of the classes; () for those of "train", sorted.
      shown_as: names of the classes, if they are not the labels.

    Raises:
      DataError: a label is unknown or not a number, "train" has no labels, or the classes are
        unknown.
    """
    train = _checked_train(options, tables_of)
    known = class_names or (train.labels if train else ())
    no_label = {None, ""} if task == REGRESSION or _NO_CLASS in known else {None, "", _NO_CLASS}
    labelled = {
        name: table
        for name, table in tables_of.items()
        if name == "train" or not set(table.labels or ()) <= no_label
    }
    if task == CLASSIFICATION and not class_names:
        class_names = (
            _class_names(options, labelled)
            if labelled
            else _known(options, tables_of, "class_names")
        )
    splits = {}
    for name, table in tables_of.items():
        classes, scores = None, None
        if task == REGRESSION:
            scores = np.full(len(table.places), np.nan, np.float32)
        if name in labelled and task == REGRESSION:
            scores = _scores(table)
        elif name in labelled:
            classes = _classes(table, class_names)
        splits[name] = RawTexts(
            table.texts,
            classes,
            scores,
            table.groups,
            name in labelled,
            missing=_missing(options, table),
        )
    has_pairs = len(next(iter(tables_of.values())).texts) == 2
    left_out = {name: dict(table.left_out) for name, table in tables_of.items()}
    return RawDataset(
        options.dataset,
        tuple(shown_as or class_names) if task == CLASSIFICATION else (),
        splits,
        labels=("score",) if task == REGRESSION else (),
        kind=bert_vocabulary.draft(task, has_pairs, left_out),
        encoder="text.sources.token_rows",
    )


def _checked_train(options, tables_of):
    """Returns the table of "train", or None; raises DataError if it has no labels."""
    for name, table in tables_of.items():
        if not table.places:
            raise DataError(f"split '{name}' of --source={options.source} has no texts")
    train = tables_of.get("train")
    if train and train.labels is None:
        given = "".join(f" in '{name}' (--label_columns)" for name in options.label_columns)
        raise DataError(
            f"--source={options.source}: split 'train' has no labels{given}; its columns are "
            f"{tables.listed(train.columns)}. Name that of the labels with --label_columns"
        )
    return train


def _with_target(options, tables_of):
    """Returns the data set of texts with several labels, probabilities of classes or numbers."""
    _checked_train(options, tables_of)
    labelled = {n: t for n, t in tables_of.items() if n == "train" or any(t.labels or ())}
    if labelled:
        rows = [row for table in labelled.values() for row in table.labels]
        where = [place for table in labelled.values() for place in table.places]
        names = tuple(map(normalized, options.label_columns))
        values = {name: [row and row[i] for row in rows] for i, name in enumerate(names)}
        target, found = target_columns.read(options, values, where, range(len(rows)))
    else:
        target = _known(options, tables_of, "target")
        found = np.zeros([0, len(target.names)], np.float32)
    splits, place = {}, 0
    for name, table in tables_of.items():
        targets = np.full([len(table.places), len(target.names)], np.nan, np.float32)
        if name in labelled:
            targets = found[place : place + len(targets)]
            place += len(targets)
        splits[name] = RawTexts(
            table.texts,
            None,
            None,
            table.groups,
            name in labelled,
            targets=targets,
            missing=_missing(options, table),
        )
    has_pairs = len(next(iter(tables_of.values())).texts) == 2
    left_out = {name: dict(table.left_out) for name, table in tables_of.items()}
    return RawDataset(
        options.dataset,
        (),
        splits,
        labels=(FEATURE,),
        target=target,
        kind=bert_vocabulary.draft(CLASSIFICATION, has_pairs, left_out),
        encoder="text.sources.token_rows",
    )


def _known(options, tables_of, attribute):
    """Returns `class_names` or `target` of the data set that `options.vocabulary` names.

    They are those of texts to predict.
    """
    found = _of_vocabulary(options, attribute)
    if not found:
        name, table = next(iter(tables_of.items()))
        raise DataError(
            f"--source={options.source}: split '{name}' has no labels; its columns are "
            f"{tables.listed(table.columns)}{_label_advice(options, table.columns)}. To predict "
            "its classes, set --vocabulary to the folder of the data set that the model was "
            f"trained on{', or --class_names' * (attribute == 'class_names')}"
        )
    return found


def _class_names(options, labelled):
    """Returns the labels of "train", sorted as numbers if all are."""
    split = "train" if "train" in labelled else next(iter(labelled))
    table = labelled[split]
    found = columns.class_names(table.labels, table.places, f"split '{split}'")
    where = f"split '{split}', column '{', '.join(options.label_columns)}'"
    columns.note_other_tasks(found, sum(map(bool, table.labels)), where)
    if len(found) == 1 and all(table.labels):
        raise DataError(
            f"all texts of '{split}' have the label '{found[0][:60]}': a classifier needs two "
            "classes at least, which --class_names may name"
        )
    return found


def _classes(table, class_names):
    numbers = {name: number for number, name in enumerate(class_names)}
    first: dict[str, int] = {}
    for row, label in enumerate(table.labels):
        first.setdefault(label, row)
    for label, row in first.items():
        place = table.places[row]
        if not label:
            count = sum(not other for other in table.labels)
            raise DataError(
                f"{place}: no label{first_of(count)}. Remove "
                f"{'the row, or add its label' if count == 1 else 'them, or add their labels'}. "
                "Only a file without any labels can be prepared for --mode=predict"
            )
        if not is_line(label):
            raise DataError(f"{place}: the label {label[:60]!a} has control characters")
        if label not in numbers:
            count = sum(bool(other) and other not in numbers for other in table.labels)
            shown = ", ".join([*class_names[:10], *(["..."] if class_names[10:] else [])])
            raise DataError(
                f"{place}: unknown label '{label[:60]}'{first_of(count)}; the {len(class_names)} "
                f"classes are {shown}"
            )
    return np.fromiter(map(numbers.__getitem__, table.labels), np.int64, len(table.labels))


def _scores(table):
    scores = np.array([_score(label) for label in table.labels], np.float64)
    wrong = np.flatnonzero(~(np.abs(scores) <= _LARGEST_SCORE))  # with NaN
    if wrong.size:
        place, label = table.places[wrong[0]], table.labels[wrong[0]]
        problem = f"the score {label[:60]!a} is not a number of float32" if label else "no score"
        raise DataError(
            f"{place}: {problem}{first_of(wrong.size)}. Write a number, or remove "
            f"{'the row' if wrong.size == 1 else 'them'}"
        )
    return scores.astype(np.float32)


def _score(label):
    try:
        return strict_flags.to_float(label or "")
    except ValueError:
        return math.nan


def without_rows(table: LabelledTable, reasons: Mapping[int, str]) -> LabelledTable:
    """Returns a table without the rows of `{row: reason}`, which are counted by reason."""
    kept = [row for row in range(len(table.places)) if row not in reasons]
    return table.take(kept, dict(Counter(reasons.values())))
