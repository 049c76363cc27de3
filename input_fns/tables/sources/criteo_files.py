"""Files of click logs in the format of Criteo, and the rows of each split; see `criteo`."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
from collections.abc import Collection, Mapping, Sequence

from common import folders
from input_fns import DataError
from input_fns.convert import inventory, split_names
from input_fns.convert.files import PACKED, iterate_lines
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.dataset_info import LeftOut
from input_fns.tables.sources import criteo_archive
from input_fns.tables.sources.criteo_rows import WIDTH

_FRACTION = 1 / 14
_EXTENSIONS = (".txt", ".tsv")
_DAY = re.compile(r"day_([0-9]{1,4})(\.txt|\.tsv)?(\.gz|\.xz)?")


def find_unlabelled(paths: Mapping[str, Sequence[str]]) -> set[str]:
    """Returns the splits whose files have rows without labels; those of "train" need them."""
    return {
        split
        for split, (path, *_) in paths.items()
        if split != "train" and _width(path) == WIDTH - 1
    }


def _width(path):
    """Returns the number of values in the first line of a file."""
    return next(iterate_lines(path), "").count("\t") + 1


def find_ranges(
    paths: Mapping[str, Sequence[str]],
    sizes: Mapping[str, Sequence[int]],
    unlabelled: Collection[str],
    options: Options,
) -> dict[str, tuple[str, range]]:
    """Returns `{split: (split whose files have its rows, its rows)}`.

    Args:
      paths: `{split: paths}`, for "train" those of consecutive days. Of several, the first half of
        the last one is "test" and the second half "validation", unless the options say otherwise.
      sizes: `{split: numbers of rows}`, of these files.
      unlabelled: splits whose rows have no labels.
      options: `validation_fraction` and `test_fraction` of the last rows of "train" are held out.

    Raises:
      DataError: a file has no rows, or too few, or a split to hold out is there.
    """
    for split, of_split in paths.items():
        for path, size in zip(of_split, sizes[split]):
            if not size:
                raise DataError(f"{path} has no rows")
    fractions = {"validation": options.validation_fraction, "test": options.test_fraction}
    given = [name for name in fractions if name in paths and fractions[name]]
    if given:
        raise DataError(f"--{given[0]}_fraction: {options.source} already has a '{given[0]}' file")
    if len(paths["train"]) > 1 and set(fractions.values()) == {None}:
        return _split_last_day(paths["train"], sizes["train"])
    default = _FRACTION if len(paths) - len(unlabelled) == 1 else 0
    size = sum(sizes["train"])
    counts = {
        name: round(size * (default if fraction is None else fraction))
        for name, fraction in fractions.items()
        if name not in paths
    }
    wanted = [name for name in counts if fractions[name] or (fractions[name] is None and default)]
    empty = [name for name in wanted if not counts[name]]
    if empty or sum(counts.values()) >= size:
        raise DataError(
            f"{paths['train'][0]} has {size} rows, too few for the splits 'train' and "
            f"{' and '.join(repr(name) for name in wanted)}. Set --validation_fraction and "
            "--test_fraction, to 0 to hold nothing out"
        )
    ends = {"train": size - sum(counts.values())}
    ends["validation"] = ends["train"] + counts.get("validation", 0)
    ranges = {split: (split, range(sum(sizes[split]))) for split in paths}
    ranges["train"] = "train", range(ends["train"])
    for name, begin in (("validation", ends["train"]), ("test", ends["validation"])):
        if counts.get(name):
            ranges[name] = "train", range(begin, begin + counts[name])
    return ranges


def _split_last_day(paths, sizes):
    """Returns the splits of MLPerf Training and of Naumov et al. 2019: "test" is the first half."""
    size, of_last = sum(sizes), sizes[-1]
    if of_last < 2:
        raise DataError(f"{paths[-1]} has one row, too few for 'validation' and 'test'")
    begin, middle = size - of_last, size - of_last // 2
    splits = {"train": (0, begin), "test": (begin, middle), "validation": (middle, size)}
    return {split: ("train", range(*ends)) for split, ends in splits.items()}


def find_paths(options: Options, left_out: LeftOut, runner: Runner) -> dict[str, list[str]]:
    """Returns `{split: paths}` of --source, with "train", which may have a file for each day.

    Args:
      options: `source`, `split_files` and `skip` are used.
      left_out: gets the texts that are no click logs.
      runner: see `criteo_archive`.

    Raises:
      DataError: see `split_names.find_files` and `criteo_archive`, there is no "train", or a day is
        missing.
    """
    is_folder = folders.is_folder(options.source)
    days = _find_days(options) if is_folder and not options.split_files else {}
    if days:
        return {"train": [days[day] for day in sorted(days)]}
    names = inventory.names(options.source, options) if is_folder else [options.source]
    archives = [name for name in names if name.endswith((*criteo_archive.ENDINGS, ".zip"))]
    if archives and not any(_is_split(name) for name in names):
        if options.split_files:
            raise DataError(f"--split_files names no files in an archive. Unpack {archives[0]}")
        if len(archives) > 1 or archives[0].endswith(".zip"):
            raise DataError(
                f"--source={options.source}: of archives only one is read, a .tar, .tar.gz or .tgz."
                f" Unpack {' and '.join(map(os.path.basename, archives))}, and use the folder of "
                "train.txt"
            )
        archive = os.path.join(options.source, *archives) if is_folder else options.source
        return criteo_archive.find_paths(archive, options, _EXTENSIONS, left_out, runner)
    if not is_folder:
        return {"train": [options.source]}
    others = list(_other_texts(options))
    for name in others:
        left_out.add(f"files whose rows do not have {WIDTH} values", name)
    skip = (*options.skip, *map(glob.escape, others))
    found = split_names.find_files(dataclasses.replace(options, skip=skip), _EXTENSIONS)
    if "train" not in found:
        raise DataError(
            f"--source={options.source} has no train.txt or train.tsv, plain or with "
            f"{' or '.join(PACKED)}, only {', '.join(map(os.path.basename, found.values()))}. Name "
            "the files with --split_files=train=FILE,test=FILE"
        )
    return {split: [path] for split, path in found.items()}


def _find_days(options):
    """Returns `{day: path}` of day_0.gz, day_1.gz, ...; {} if a name has another split."""
    found: dict[int, str] = {}
    for name in inventory.names(options.source, options):
        match = _DAY.fullmatch(name)
        stem, extension = split_names.stem_of(name, _EXTENSIONS)
        if not match and extension and split_names.split_in(stem):
            return {}
        path = os.path.join(options.source, name)
        if match and folders.is_file(path):
            other = found.setdefault(int(match[1]), path)
            if other != path:
                raise DataError(
                    f"{options.source} has both {os.path.basename(other)} and {name}. Leave one "
                    "out with --skip"
                )
    missing = sorted({*range(min(found, default=0), max(found, default=0))} - found.keys())
    if missing:
        raise DataError(
            f"{options.source} has the days {min(found)} to {max(found)} without day "
            f"{', '.join(map(str, missing[:10]))}. Download it, or leave out the days before or "
            "after it with --skip"
        )
    return found


def _is_split(name):
    """Whether a name is that of a text of a split."""
    stem, extension = split_names.stem_of(name, _EXTENSIONS)
    return bool(extension and (split_names.split_of(stem) or split_names.split_in(stem)))


def _other_texts(options):
    """Yields the names of texts such as readme.txt, without a split in their names."""
    for name in inventory.names(options.source, options):
        path = os.path.join(options.source, name)
        extension = split_names.stem_of(name, _EXTENSIONS)[1]
        if not extension or _is_split(name) or not folders.is_file(path):
            continue
        if _width(path) not in (WIDTH, WIDTH - 1):
            yield name
