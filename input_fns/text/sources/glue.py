"""The tasks of GLUE (Wang et al. 2018, arXiv:1804.07461), from the files of their archives.

SOURCE is the folder of one task: train.tsv, dev.tsv (MNLI: dev_matched.tsv, dev_mismatched.tsv) and
test.tsv, also with .gz or .xz. A file without labels is a split to predict.
"""

from __future__ import annotations

import dataclasses
import os

from input_fns import DataError
from input_fns.convert import inventory, tables
from input_fns.convert.files import PACKED, iterate_lines, split_packed
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.text.sources import text_files
from input_fns.text.sources.text_files import CLASSIFICATION, REGRESSION, LabelledTable


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of GLUE.

    Attributes:
      texts: columns of the text, or of both texts.
      label: column of the label.
      classes: `{label in the file: name}` in the order of the classes; {} for a score.
      without_header: columns of files without a header line; more than one kind may occur.
      skips_short_rows: whether rows with too few columns, which the official files have, are left
        out.
      no_label: label of rows without a label, which are left out; "" if all have one.
    """

    texts: tuple[str, ...]
    label: str
    classes: dict[str, str]
    without_header: tuple[tuple[str, ...], ...] = ()
    skips_short_rows: bool = False
    no_label: str = ""


_ENTAILMENT = {"entailment": "entailment", "not_entailment": "not_entailment"}
TASKS = {
    "cola": Task(
        ("sentence",),
        "label",
        {"0": "unacceptable", "1": "acceptable"},
        without_header=(("source", "label", "mark", "sentence"),),
    ),
    "sst2": Task(
        ("sentence",),
        "label",
        {"0": "negative", "1": "positive"},
        without_header=(("sentence", "label"),),
    ),
    "mrpc": Task(("#1 String", "#2 String"), "Quality", {"0": "not_equivalent", "1": "equivalent"}),
    "stsb": Task(("sentence1", "sentence2"), "score", {}),
    "qqp": Task(
        ("question1", "question2"),
        "is_duplicate",
        {"0": "not_duplicate", "1": "duplicate"},
        skips_short_rows=True,
    ),
    "mnli": Task(
        ("sentence1", "sentence2"),
        "gold_label",
        {name: name for name in ("contradiction", "entailment", "neutral")},
        no_label="-",
    ),
    "qnli": Task(("question", "sentence"), "label", _ENTAILMENT),
    "rte": Task(("sentence1", "sentence2"), "label", _ENTAILMENT),
    "wnli": Task(("sentence1", "sentence2"), "label", {"0": "not_entailment", "1": "entailment"}),
}
# File name without .tsv -> split.
_SPLITS = {
    "train": "train",
    "dev": "validation",
    "dev_matched": "validation",
    "dev_mismatched": "validation_mismatched",
    "test": "test",
    "test_matched": "test",
    "test_mismatched": "test_mismatched",
}
# Files of the archives of CoLA and MRPC before GLUE, which are not read beside those of GLUE: its
# script leaves them in the folder of MRPC, and its dev.tsv of CoLA holds both parts.
_SPLITS_BEFORE_GLUE = {
    "in_domain_train": "train",
    "in_domain_dev": "validation",
    "out_of_domain_dev": "validation_out_of_domain",
    "msr_paraphrase_train": "train",
    "msr_paraphrase_test": "test",
}


def read(options: Options) -> RawDataset:
    """Returns the splits of the task `options.dataset` in the folder `options.source`.

    Raises:
      DataError: a file is missing or not as the task's, or has an unknown label.
    """
    task = TASKS[options.dataset]
    found = _files(options, _SPLITS) or _files(options, _SPLITS_BEFORE_GLUE)
    if not found:
        raise DataError(
            f"--source={options.source} has no train.tsv, dev.tsv or test.tsv, plain or with "
            f"{' or '.join(PACKED)}"
        )
    splits = {
        split: _read_file(os.path.join(options.source, name), task) for split, name in found.items()
    }
    kind = CLASSIFICATION if task.classes else REGRESSION
    shown_as = tuple(task.classes.values())
    return text_files.to_dataset(options, splits, kind, tuple(task.classes), shown_as)


def _files(options, split_of):
    """Returns `{split: file name}`."""
    found: dict[str, str] = {}
    for name in inventory.names(options.source, options):
        stem, extension = os.path.splitext(split_packed(name)[0])
        split = split_of.get(stem) if extension in (".tsv", ".txt") else None
        if split in found:
            raise DataError(
                f"{options.source} has both {found[split]} and {name}. Leave one out with --skip"
            )
        if split:
            found[split] = name
    return found


def _read_file(path, task):
    columns = _columns(path, task)
    table = tables.read(path, columns, is_strict=not task.skips_short_rows, extension=".tsv")
    width = len(table.columns)
    reasons = {
        row: "rows with too few or too many columns"
        for row, values in enumerate(table.rows)
        if len(values) != width
    }
    rows = [values if len(values) == width else [""] * width for values in table.rows]
    table = dataclasses.replace(table, rows=rows)
    labels = None
    if task.label in table.columns:
        labels = table.column(task.label)
        for row, label in enumerate(labels):
            if task.no_label and label == task.no_label:
                reasons[row] = "texts without a gold label"
    elif reasons:
        row, reason = next(iter(reasons.items()))
        raise DataError(
            f"{table.where(row)}: {reason}, so predictions would not belong to the lines of the "
            "file. Complete the row, or remove it"
        )
    texts = tuple(table.column(name) for name in task.texts)
    places = [table.where(row) for row in range(len(rows))]
    labelled = LabelledTable(places, texts, labels, columns=table.columns)
    return text_files.without_rows(labelled, reasons)


def _columns(path, task):
    """Returns the columns of a file without a header line, () if it has one."""
    first = next(iterate_lines(path), "").split("\t")
    if set(task.texts) <= set(first):
        return ()
    for columns in task.without_header:
        if len(columns) == len(first) and first[columns.index(task.label)] in task.classes:
            return columns
    raise DataError(
        f"{path}, line 1: {len(first)} columns without {' or '.join(task.texts)}, which the header "
        "line of this task has"
    )
