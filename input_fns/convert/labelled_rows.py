"""Files and their labels in a table, as on Kaggle: the part that images and recordings share.

A row has a file name, with or without extension, and its label: in one column, or one-hot in one
column per class. For other targets than one class see `target_columns`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from common import folders
from common.names import first_of, normalized, printable
from input_fns import DataError
from input_fns.convert import columns, files, split_names, tables, target_columns
from input_fns.convert.class_folders import Found, LabelledFiles
from input_fns.convert.find_files import FinderByName, is_another
from input_fns.convert.options import Options

# Names of a column that identifies a row, in lower case.
_ID = re.compile(r"id|index|idx|row|(.*[^a-z])?id|uid|uuid")
# Name of a column of numbers of rows that pandas wrote, and read and wrote again.
_INDEX = re.compile(r"(Unnamed: \d+(\.\d+)*)?")


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Rows of a table of files.

    Attributes:
      path: path of the table.
      where: place of each row, for errors.
      columns: `{name: values}`, all without surrounding white space; None of no text.
    """

    path: str
    where: Sequence[str]
    columns: dict[str, list[str | None]]

    def column(self, name: str) -> list[str]:
        """Returns the values of a column, all of which must be there."""
        values = self.columns[name]
        columns.require_values("value", name, values, self.where, range(len(values)))
        return values


@dataclasses.dataclass(frozen=True)
class Kind:
    """What the files of a table are.

    Attributes:
      noun: name of a file, for errors.
      flag: flag that names the column of the files; the default is the first column.
      usual: names of the column that come before the first; see `columns.find`.
      extensions: ends of the names of the files, in lower case.
      parts: names of columns of begins and ends, in lower case, of rows that are parts of a file.
      begin: name of another such column, which is empty or 0 for a whole file.
    """

    noun: str
    flag: str
    extensions: tuple[str, ...]
    usual: Sequence[str] = ()
    parts: Sequence[str] = ()
    begin: str = ""


def read(options: Options, kind: Kind) -> Found:
    """Returns the split "train", or the splits of `split_column`; without labels, to predict them.

    Args:
      options: `source` is the folder of the files, `csv` the table, whose columns are `columns` if
        it has no header line. `label_columns` defaults to all columns but those of other flags.
      kind: what the files are.

    Raises:
      DataError: a column or a file is missing, a row has no label or an unknown one, or a group is
        in two splits.
    """
    rows = _rows(options)
    names_of = list(rows.columns)
    chosen = {
        name: normalized(getattr(options, name))
        for name in (kind.flag, "group_column", "split_column")
    }
    file_column = columns.find(rows.path, names_of, kind.usual, kind.flag, chosen.pop(kind.flag))
    finder = FinderByName(options, kind.extensions)
    index = [name for name in names_of if _is_index(name, rows)]
    if not file_column and names_of:
        file_column = _first_column(names_of, index, rows, finder)
    kept = {*chosen.values(), file_column, "", *index}
    label_columns = tuple(map(normalized, options.label_columns)) or tuple(
        name for name in names_of if name not in kept
    )
    ids = [] if options.label_columns else [n for n in label_columns if _is_id(n, rows)]
    if ids and label_columns[1:]:
        others = ",".join(name for name in label_columns if name not in ids)
        raise DataError(
            f"{rows.path}: the column '{printable(ids[0])}' has another value in each row, as an "
            f"id has. Name the labels, such as --label_columns={printable(others)}"
        )
    for name in filter(None, (file_column, *chosen.values(), *label_columns)):
        if name not in rows.columns:
            raise DataError(f"{rows.path} has no column '{name}'; {tables.describe(names_of)}")
    if not rows.where or not label_columns:
        hint = ""
        if rows.where:
            hint = ". Without labels nothing is prepared: --mode=predict --input=FOLDER reads files"
        raise DataError(
            f"{rows.path} has {len(rows.where)} rows and {len(label_columns)} label columns; its "
            f"columns are: {tables.listed(names_of)}{hint}"
        )
    # A column may have the name of a file, such as "image", but not the extension or a label, too.
    is_row = not options.columns and (
        file_column.lower().endswith(kind.extensions)
        or any(name in rows.columns[name] for name in label_columns)
    )
    if is_row and finder.find(rows.path, file_column):
        raise DataError(
            f"{rows.path}: its first line names the {kind.noun} '{printable(file_column)}', so it "
            f"is not a header line. Name the columns, such as with --columns={kind.noun},label"
        )
    paths = _paths(options, rows, file_column, kind, finder)
    groups, split_of = (
        np.array(rows.column(chosen[name]), object) if chosen[name] else None
        for name in ("group_column", "split_column")
    )
    rows_of = {"train": np.arange(len(paths))}
    if split_of is not None:
        where = f"{rows.path}, column '{chosen['split_column']}'"
        rows_of = split_names.rows_of_splits(split_of, where)
    unlabelled = _unlabelled(rows, label_columns, rows_of)
    to_predict = {row for split in unlabelled for row in rows_of[split].tolist()}
    values = {name: rows.columns[name] for name in label_columns}
    target, targets, class_names = None, None, ()
    if options.task == "classification":
        class_names, texts = _classes(options, rows, values, to_predict)
    else:
        labelled = [row for row in range(len(rows.where)) if row not in to_predict]
        target, targets = target_columns.read(options, values, rows.where, labelled)
        texts = [", ".join(map(str, of_row)) for of_row in zip(*values.values())]
    number_of: dict[object, int] = {}  # {file identity: number}
    numbers = [number_of.setdefault(folders.identity(path), len(number_of)) for path in paths]
    _require_whole_files(rows, numbers, kind)
    for values in (texts, groups, split_of):
        _check_alike(rows, paths, numbers, values)
    if groups is not None and split_of is not None:
        _require_one_split(rows, chosen["group_column"], groups, split_of)
    num_repeated = len(paths) - len(number_of)
    if num_repeated:
        files.note(
            f"{rows.path}: {num_repeated} rows repeat a file, and each row is an example. Remove "
            "them if that is not intended"
        )
    if groups is None and num_repeated:
        groups = np.array(numbers)  # keep duplicates of a file in one split
    labels = None if target else _to_labels(rows, texts, class_names)
    splits = {
        split: LabelledFiles(
            paths[chosen_rows],
            None if target or split in unlabelled else labels[chosen_rows],
            None if groups is None else groups[chosen_rows],
            targets=None if targets is None else targets[chosen_rows],
        )
        for split, chosen_rows in rows_of.items()
    }
    return Found(class_names, splits, target=target)


def _classes(options, rows, values, to_predict):
    """Returns the class names, and the class of each row, "" to predict it."""
    labelled = [row for row in range(len(rows.where)) if row not in to_predict]
    for name, of_column in values.items() if len(values) == 1 else ():
        columns.require_values("label", name, of_column, rows.where, labelled)
    texts = [
        ""
        if row in to_predict
        else columns.label_of(where, {name: of_column[row] for name, of_column in values.items()})
        for row, where in enumerate(rows.where)
    ]
    class_names = tuple(map(normalized, options.class_names))
    if not class_names and len(values) > 1:
        class_names = tuple(values)
    elif not class_names:
        (column,) = values
        where = f"{rows.path}, column '{column}'"
        class_names = columns.class_names(texts, rows.where, where)
        columns.note_other_tasks(class_names, sum(map(bool, texts)), where)
    return class_names, texts


def _rows(options):
    table = tables.read_with(options, options.csv)
    found = {
        name: [None if row[i] is None else normalized(row[i]) for row in table.rows]
        for i, name in enumerate(table.columns)
    }
    kept = [row for row, values in enumerate(zip(*found.values())) if any(values)]
    if len(kept) == len(table.rows):
        return _Rows(table.path, table.places, found)
    # Excel writes them below the table.
    files.note(f"{table.path}: {len(table.rows) - len(kept)} rows without a value are left out")
    found = {name: [values[row] for row in kept] for name, values in found.items()}
    return _Rows(table.path, table.places[kept], found)


def _is_index(name, rows):
    """Whether a column numbers the rows, as that which pandas adds."""
    values = rows.columns[name]
    return bool(_INDEX.fullmatch(name)) and all(value and value.isdigit() for value in values)


def _is_id(name, rows):
    """Whether a column identifies the rows, and is no label."""
    values = rows.columns[name]
    return bool(_ID.fullmatch(name.lower())) and len(set(values)) == len(values) > 1


def _first_column(names_of, index, rows, finder):
    """Returns the first column, or that after the numbers of the rows if these are not files."""
    others = [name for name in names_of if name not in index]
    is_doubtful = names_of[0] in index and others and rows.where
    if is_doubtful and not finder.find(rows.where[0], rows.columns[names_of[0]][0]):
        return others[0]
    return names_of[0]


def _paths(options, rows, column, kind, finder):
    """Returns the path of the file of each row."""
    paths, missing = [], []
    seen: dict[str, tuple[str, str]] = {}
    for where, name in zip(rows.where, rows.columns[column]):
        path = finder.find(where, name or "")
        before, other = seen.setdefault(path, (where, name)) if path else (where, name)
        if path and is_another(name, other):
            raise DataError(
                f"{where}: '{printable(name)}' and '{printable(other)}' of {before} both end in "
                f"{printable(path)}. Write paths below {options.source}"
            )
        if path is None:
            missing.append(f"{where}: no {kind.noun} '{printable(name or '')}' in {options.source}")
        paths.append(path)
    if missing:
        more = f" (and {len(missing) - 1} more rows)" if missing[1:] else ""
        raise DataError(
            f"{missing[0]}{more}. --source is the folder of the {kind.noun}s, --{kind.flag} the "
            f"column of their names, here '{column}'"
        )
    return np.array(paths, object)


def _unlabelled(rows, label_columns, rows_of):
    """Returns the splits, other than "train", that have no labels."""
    is_labelled = np.zeros(len(rows.where), bool)
    for name in label_columns:
        is_labelled |= np.array([bool(value) for value in rows.columns[name]])
    return {
        split
        for split, chosen in rows_of.items()
        if split != "train" and not is_labelled[chosen].any()
    }


def _check_alike(rows, paths, numbers, values):
    """Checks that duplicates of a file have the same label, group and split."""
    first: dict[int, tuple[str, str]] = {}
    for where, path, number, value in zip(
        rows.where, paths, numbers, () if values is None else values
    ):
        before, other = first.setdefault(number, (where, value))
        if value != other:
            raise DataError(f"{where}: {path} is '{value}', and '{other}' at {before}")


def _require_whole_files(rows, numbers, kind):
    """Checks that no rows are different parts of a file: files are read whole."""
    for name, values in rows.columns.items():
        key = name.lower().replace("_", "").replace(" ", "")
        if not key or key not in (*kind.parts, kind.begin):
            continue
        for where, value in zip(rows.where, values):
            if key == kind.begin and (value or "").strip("0."):
                raise DataError(
                    f"{where}: column '{name}' is {value}. Parts of a {kind.noun} are not read: "
                    "write a file for each"
                )
        first: dict[int, tuple[str, str]] = {}
        for where, number, value in zip(rows.where, numbers, values):
            before, other = first.setdefault(number, (where, value))
            if value != other:
                raise DataError(
                    f"{where}: column '{name}' is {value}, and {other} at {before} of the same "
                    f"{kind.noun}. Parts of a {kind.noun} are not read: write a file for each"
                )


def _require_one_split(rows, column, groups, split_of):
    """Checks that no group is in two splits that are given."""
    first: dict[str, tuple[str, str]] = {}
    twice: dict[str, str] = {}
    for where, group, split in zip(rows.where, groups, split_of):
        before, other = first.setdefault(group, (where, split))
        if split != other:
            twice.setdefault(
                group,
                f"{where}: '{column}' is '{group}' in the split '{split}', and in '{other}' "
                f"at {before}",
            )
    if twice:
        more = f" ({len(twice)} groups are in two splits)" if len(twice) > 1 else ""
        raise DataError(
            f"{next(iter(twice.values()))}{more}. Put each group into one split, or remove "
            "--split_column to divide the groups, or --group_column to allow it"
        )


def _to_labels(rows, texts, class_names):
    numbers = {name: number for number, name in enumerate(class_names)}
    unknown = [row for row, text in enumerate(texts) if text and text not in numbers]
    if unknown:
        raise DataError(
            f"{rows.where[unknown[0]]}: unknown label '{texts[unknown[0]]}'"
            f"{first_of(len(unknown))}; the classes are {', '.join(class_names)}"
        )
    found = set(texts)
    empty = [name for name in class_names if name not in found]
    if empty:
        raise DataError(f"no row has the label {', '.join(empty)}")
    return np.array([numbers.get(text, -1) for text in texts], np.int64)
