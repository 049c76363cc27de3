"""Classes of the values or colors of masks: from flags, from a file in --source, or from a sample.

SOURCE/classes.txt         a class name on each line, of the values 0, 1, ...
SOURCE/class_dict.csv      name,r,g,b                     CamVid of Kaggle
SOURCE/label_colors.txt    r g b name                     CamVid
SOURCE/labelmap.txt        name:r,g,b:parts:actions       CVAT
"""

from __future__ import annotations

import os
import re

from common import folders
from common.constants import IGNORED_CLASS
from common.names import find_class_name_problem, normalized, printable
from input_fns import DataError
from input_fns.convert.files import read_lines
from input_fns.convert.options import Options
from input_fns.image.sources import mask_files
from input_fns.image.sources.mask_files import Rules

CLASSES_FILE = "classes.txt"
_COLOR = r"(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})"
# Name of a file of colors in lower case -> a line of it.
_COLOR_FILES = {
    "class_dict.csv": re.compile(rf"(?P<name>[^,]+),\s*{_COLOR}\s*"),
    "label_colors.txt": re.compile(rf"{_COLOR}[\s,]+(?P<name>\S.*)"),
    "labelmap.txt": re.compile(rf"(?P<name>[^:]+):{_COLOR}:.*"),
}
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_BLACK = 0
_BACKGROUNDS = ("background", "bg", "_background_")
# Masks to look at before anything is written, and values of them to show.
_SAMPLE, _SHOWN = 20, 12
# Values between 0 and 255 with a larger share are not soft edges.
_MAX_SOFT = 0.25


def find(options: Options, images: dict[str, list[mask_files.Item]]) -> Rules:
    """Returns what the values of the masks mean.

    Args:
      options: `class_names`, `mask_values`, `ignored` and `source` are used.
      images: `{split: items}`; a sample of the masks is read.

    Raises:
      DataError: the classes are unknown, or do not fit the masks.
    """
    sample = [
        item.mask for items in images.values() for item in items[:: max(1, len(items) // _SAMPLE)]
    ]
    counts, has_colors = mask_files.count_values(sample)
    given = [parse_value("mask_values", value) for value in options.mask_values]
    if given and all(is_color for _, is_color in given):
        counts, has_colors = mask_files.count_values(sample, True)
    elif given and any(is_color for _, is_color in given):
        raise DataError("--mask_values has both numbers and colors")
    elif given and has_colors:
        raise DataError(
            f"the masks have colors instead of numbers: {_listed(counts, has_colors)}. Name the "
            "color of each class, such as --mask_values=#000000,#804080"
        )
    colors = {} if given or has_colors else _colors_of_palettes(sample)
    table = _color_table(options) if has_colors else {}
    names = list(options.class_names or table or _names_in_file(options))
    value_of = [value for value, _ in given] or _values(names, table, counts, has_colors, options)
    if not names:
        raise DataError(
            f"the masks need --class_names or {os.path.join(options.source, CLASSES_FILE)}; "
            f"{len(sample)} of them have the values {_listed(counts, has_colors)}"
        )
    if len(value_of) != len(names):
        raise DataError(f"--mask_values has {len(value_of)} values for {len(names)} class names")
    ignored = _ignored(options, {**table, **dict(zip(names, value_of))}, has_colors)
    if not given and not has_colors:
        _check_black_and_white(counts, names, ignored, len(sample))
    kept = [i for i, value in enumerate(value_of) if value not in ignored]
    if not 2 <= len(kept) <= IGNORED_CLASS:
        raise DataError(f"masks have 2 to {IGNORED_CLASS} classes, and {len(kept)} are named")
    class_of = {value_of[i]: label for label, i in enumerate(kept)}
    ends = tuple(sorted(class_of)) if len(kept) == 2 and not has_colors else ()
    if ends and any(ends[0] < value < ends[1] for value in ignored):
        ends = ()  # soft edges may be of the ignored area
    class_of.update(dict.fromkeys(ignored, IGNORED_CLASS))
    return Rules(tuple(names[i] for i in kept), class_of, has_colors, ends, colors)


def _values(names, table, counts, has_colors, options):
    """Returns the value of each class without --mask_values."""
    if not has_colors:
        return list(range(len(names)))
    if table:
        unknown = [name for name in names if name not in table]
        if unknown:
            raise DataError(
                f"--class_names: {unknown[0]!a} has no color in --source={options.source}; there "
                f"are {', '.join(table)}"
            )
        return [table[name] for name in names]
    colors = set(counts) - {_BLACK}
    if len(names) == len(counts) == 2 and names[0].lower() in _BACKGROUNDS and len(colors) == 1:
        return [_BLACK, *colors]
    raise DataError(
        f"the masks have colors instead of numbers: {_listed(counts, has_colors)}. Name the color "
        f"of each class with --mask_values={','.join(_shown(v) for v in _frequent(counts))}, or "
        f"write {' or '.join(_COLOR_FILES)} into --source"
    )


def _colors_of_palettes(paths):
    """Returns `{number: color}`, one color in all palettes: programs may renumber each file."""
    first: dict[int, tuple[int, str]] = {}
    for path in paths:
        for number, color in mask_files.colors_of_numbers(path).items():
            other, name = first.setdefault(number, (color, path))
            if other != color:
                raise DataError(
                    f"the number {number} has the color {_shown(color)} in {printable(path)}, and "
                    f"{_shown(other)} in {printable(name)}. Name the color of each class, such as "
                    "--mask_values=#000000,#804080; or the numbers, such as --mask_values=0,1, if "
                    "they are right and the colors are not"
                )
    return {number: color for number, (color, _) in first.items()}


def _check_black_and_white(counts, names, ignored, num_masks):
    """Checks that 255 is not ignored if the masks are black and white, with soft edges or not."""
    between = sum(n for value, n in counts.items() if value not in (0, 255))
    is_there = counts.keys() >= {0, 255} and 255 in ignored
    if not is_there or between > (_MAX_SOFT * sum(counts.values()) if len(names) == 2 else 0):
        return
    if between and counts.keys() <= {0, 1, 255}:  # 255 around the objects of class 1
        return
    only = "only" if not between else f"and soft edges ({between / sum(counts.values()):.1%})"
    raise DataError(
        f"{num_masks} masks have the values 0 and 255 {only}, and 255 is ignored. If 255 is a "
        "class, set --mask_values=0,255; else name the value of each class with --mask_values"
    )


def _names_in_file(options):
    """Returns the names in classes.txt, [] without it."""
    path = os.path.join(options.source, CLASSES_FILE)
    if not folders.is_file(path):
        return []
    names = [normalized(line.decode()) for line in read_lines(path) if line.strip()]
    wrong = find_class_name_problem(names)
    if wrong:
        raise DataError(f"{path}: {wrong}")
    return names


def _color_table(options):
    """Returns `{class name: color}` of the first file of colors in --source, {} without one."""
    there = {name.lower(): name for name in folders.names(options.source)}
    for name, expected in _COLOR_FILES.items():
        if name not in there:
            continue
        path = os.path.join(options.source, there[name])
        lines = [line.decode().strip() for line in read_lines(path)]
        found = []
        for number, line in enumerate(lines, start=1):
            match = expected.fullmatch(line)
            is_header = number == 1 and line.lower().startswith("name,")
            if not line or line.startswith("#") or is_header:
                continue
            if not match or max(map(int, match.group(*_channels(match)))) > 255:
                raise DataError(
                    f"{path}, line {number}: {printable(line[:60])!a} has no name and color"
                )
            red, green, blue = map(int, match.group(*_channels(match)))
            found.append((normalized(match["name"]), red << 16 | green << 8 | blue))
        wrong = find_class_name_problem([name for name, _ in found])
        if wrong or len({color for _, color in found}) < len(found):
            raise DataError(f"{path}: {wrong or 'two classes have the same color'}")
        return dict(found)
    return {}


def _channels(match):
    """Returns the numbers of the groups of red, green and blue."""
    name = match.re.groupindex["name"]
    return [group for group in range(1, 5) if group != name]


def _ignored(options, value_by_name, has_colors):
    """Returns the set of values without a class: 255 unless it is one, or those of --ignored."""
    if not options.ignored:
        return set() if has_colors else {IGNORED_CLASS} - set(value_by_name.values())
    found = set()
    for entry in options.ignored:
        if entry in value_by_name:
            found.add(value_by_name[entry])
        elif entry.isdigit() or _HEX.fullmatch(entry):
            found.add(parse_value("ignored", entry)[0])
        else:
            raise DataError(
                f"--ignored: {entry!a} is neither a class nor a value; the classes are "
                f"{', '.join(value_by_name)}"
            )
    return found


def parse_value(flag: str, value: str) -> tuple[int, bool]:
    """Returns a value of a flag, and whether it is a color.

    Raises:
      DataError: it is neither a number nor a color.
    """
    if _HEX.fullmatch(value):
        return int(value[1:], 16), True
    if not (value.isascii() and value.isdigit() and len(value) <= 5 and int(value) < 2**16):
        raise DataError(
            f"--{flag}: {value!a} is not an integer from 0 to 65535, or a color #rrggbb"
        )
    return int(value), False


def _listed(counts, has_colors):
    if not has_colors:
        shown = ", ".join(map(str, sorted(counts)[:20]))
        return f"{shown}{', ...' if len(counts) > 20 else ''}"
    total = max(1, sum(counts.values()))
    shown = ", ".join(f"{_shown(v)} ({counts[v] / total:.1%})" for v in _frequent(counts))
    return f"{shown}{', ...' if len(counts) > _SHOWN else ''}"


def _frequent(counts):
    return [value for value, _ in counts.most_common(_SHOWN)]


def _shown(color):
    return f"#{color:06x}"
