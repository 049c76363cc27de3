"""Names of splits in folders, files and columns, and the files of each split of a source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from common import folders
from common.names import is_plain_name, normalized, printable
from input_fns import DataError
from input_fns.convert import inventory
from input_fns.convert.files import PACKED, split_packed
from input_fns.convert.options import Options

# Names of a split in lower case -> name in this package.
SPLITS = {
    **dict.fromkeys(("train", "training", "trn", "trainset"), "train"),
    **dict.fromkeys(("validation", "validate", "valid", "val", "dev", "devel"), "validation"),
    **dict.fromkeys(("development", "valset", "devset", "newsdev"), "validation"),
    **dict.fromkeys(("test", "testing", "tst", "testset", "newstest"), "test"),
}
_WORD = re.compile(r"[^\W\d_]+")
# Files that come with data and hold none.
_DOCUMENT = re.compile(r"(readme|licen[sc]e|copying|copyright|notice|changelog)\b.*", re.IGNORECASE)
_CAPITAL_INSIDE = re.compile(r"(?<=[a-z])(?=[A-Z])")


def split_of(name: str) -> str:
    """Returns the split that a name such as "Training" or "val" means, "" if none."""
    return SPLITS.get(normalized(name).lower(), "")


def split_in(name: str) -> str:
    """Returns the split that a word of a name means, such as "reviews_train" or "val2017".

    "" if no word means a split, or if two words mean different ones.
    """
    words = _WORD.findall(_CAPITAL_INSIDE.sub("_", normalized(name)))
    found = {split_of(word) for word in words} - {""}
    return found.pop() if len(found) == 1 else ""


def is_split(name: str) -> bool:
    """Whether `name` is a common name of a split."""
    return bool(split_of(name))


def split_names(found: Iterable[str], where: str) -> dict[str, str]:
    """Returns `{name of a split in this package: name in the source}`.

    "Training" is "train". "reviews_test" is "test", unless another name has the same split: then
    "test_2016" and "test_2017" keep their names.

    Args:
      found: names in the source.
      where: the place where they were found, for errors.

    Raises:
      DataError: two names mean the same split, or one is empty or invalid in a file name.
    """
    names: dict[str, str] = {}
    inexact: dict[str, list[str]] = {}
    for name in found:
        clean = normalized(name)
        if not clean:
            raise DataError(f"{where}: an example has no split")
        if not is_plain_name(clean):
            raise DataError(f"{where}: {name!a} cannot be a split: it must be valid in file names")
        if split_in(clean) and not is_split(clean):
            inexact.setdefault(split_in(clean), []).append(name)
            continue
        _add(names, split_of(clean) or clean, name, where)
    for split, several in inexact.items():
        is_alone = len(several) == 1 and split not in names
        of_train = [*filter(None, [names.get("train")]), *several] if split == "train" else []
        if len(of_train) > 1:
            raise DataError(
                f"{where}: {' and '.join(map(repr, of_train[:3]))} are all of the split 'train'. "
                "Join them, or choose one"
            )
        for name in several:
            _add(names, split if is_alone else normalized(name), name, where)
    return names


def _add(names, split, name, where):
    if split in names:
        raise DataError(f"{where}: '{names[split]}' and '{name}' both mean the split '{split}'")
    names[split] = name


def rows_of_splits(values: Sequence[str], where: str) -> dict[str, np.ndarray]:
    """Returns `{split: indices}` of the values of a column; "Train" and "train " are one split.

    Raises:
      DataError: see `split_names`.
    """
    clean = (normalized(value) for value in values)
    names = np.array([name.lower() if is_split(name) else name for name in clean], object)
    found = split_names(dict.fromkeys(names.tolist()), where)
    return {split: np.flatnonzero(names == name) for split, name in found.items()}


def given_files(options: Options) -> dict[str, str]:
    """Returns `{split: path}` of --split_files, whose paths are below --source; {} without it.

    Raises:
      DataError: an entry has no split, a file is missing, or two entries have one split.
    """
    found: dict[str, str] = {}
    for entry in options.split_files:
        split, equals, name = entry.partition("=")
        if not (split and equals and name):
            raise DataError(f"--split_files={entry}: write SPLIT=FILE, such as train={entry}")
        (ours,) = split_names([split], f"--split_files={entry}")
        if ours in found:
            raise DataError(f"--split_files has two files of the split '{ours}'")
        found[ours] = os.path.join(options.source, name)
    return found


def find_files(
    options: Options,
    extensions: tuple[str, ...],
    split_extensions: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Returns `{split: path}` of the files of --source, a folder or one file.

    A name without its extension, plain or packed, is a split, or has one in it; a file alone is
    "train" otherwise. --split_files names them instead.

    Args:
      options: `source`, `split_files` and `skip` are used.
      extensions: ends of the names of files, in lower case.
      split_extensions: `{end of a name: name of a split}`, as of CoNLL's "eng.testa".

    Raises:
      DataError: there is no such file, two are of one split, or one of several has no split.
    """
    if options.split_files:
        found = given_files(options)
        for path in found.values():
            if not folders.is_file(path):
                raise DataError(f"--split_files: {path} is not a file")
        return found
    return by_split(named_files(options, extensions, split_extensions), options)


def named_files(
    options: Options,
    extensions: tuple[str, ...],
    split_extensions: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Returns `{name without extension: path}` of the files of --source, a folder or one file.

    Args:
      options: `source` and `skip` are used.
      extensions: ends of the names of files, in lower case.
      split_extensions: see `find_files`; the name of "eng.testa" is "eng.dev" then.

    Raises:
      DataError: there is no such file, or two have one name.
    """
    kinds = f"{', '.join((*extensions, *split_extensions))}, plain or with {' or '.join(PACKED)}"
    if folders.is_file(options.source):
        name = os.path.basename(options.source)
        stem, extension = stem_of(name, extensions, split_extensions)
        if not extension:
            raise DataError(f"--source={options.source} ends in none of {kinds}")
        return {stem: options.source}
    found = {}
    for name in inventory.names(options.source, options):
        stem, extension = stem_of(name, extensions, split_extensions)
        path = os.path.join(options.source, name)
        if not extension or is_document(name) or folders.is_folder(path):
            continue
        if stem in found:
            raise DataError(
                f"{options.source} has both {os.path.basename(found[stem])} and {name}. Leave one "
                "out with --skip"
            )
        found[stem] = path
    if not found:
        hint = inventory.hint_of_folder(
            options,
            lambda path: (
                stem_of(os.path.basename(path), extensions, split_extensions)[1]
                and not is_document(os.path.basename(path))
            ),
        )
        there = list(map(printable, inventory.names(options.source, options)))
        if there and not hint:
            hint = f". It has {', '.join([*there[:10], *(['...'] if there[10:] else [])])}"
        raise DataError(f"--source={options.source} has no file that ends in {kinds}{hint}")
    return found


def is_document(name: str) -> bool:
    """Whether a file such as README.txt or LICENSE describes the data."""
    return bool(_DOCUMENT.fullmatch(name))


def stem_of(
    name: str,
    extensions: tuple[str, ...],
    split_extensions: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, str]:
    """Returns a file name without its extension, and that in lower case; "" for other files."""
    unpacked, _ = split_packed(name)
    lower = unpacked.lower()
    # The longest first: ".tar.txt" before ".txt".
    for extension in sorted((*extensions, *split_extensions), key=len, reverse=True):
        if lower.endswith(extension) and len(unpacked) > len(extension):
            stem = unpacked[: len(unpacked) - len(extension)]
            if extension in split_extensions:
                stem = f"{stem}.{split_extensions[extension]}"
            return stem, extension
    return unpacked, ""


def by_split(found: Mapping[str, str], options: Options) -> dict[str, str]:
    """Returns `{split: path}` from `{name without extension: path}`.

    Raises:
      DataError: two files are of one split, or one of several has no split in its name.
    """
    where = f"--source={options.source}"
    if len(found) == 1:
        ((stem, path),) = found.items()
        return {split_of(stem) or split_in(stem) or "train": path}
    unknown = [path for stem, path in found.items() if not (is_split(stem) or split_in(stem))]
    if unknown:
        known = [stem for stem, path in found.items() if path not in unknown]
        understood = {
            os.path.basename(found[stem]): split
            for split, stem in split_names(known, where).items()
        }
        others = ", ".join(f"{name} is '{split}'" for name, split in understood.items())
        example = ",".join(f"{split}={name}" for name, split in understood.items())
        raise DataError(
            f"{where}: the name of {os.path.basename(unknown[0])} has no split"
            f"{f', while {others}' if others else ''}. Name the files of the splits, such as with "
            f"--split_files={example or f'train={os.path.basename(unknown[0])},...'}, or leave "
            "others out with --skip"
        )
    return {ours: found[stem] for ours, stem in split_names(found, where).items()}
