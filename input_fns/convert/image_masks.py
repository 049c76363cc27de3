"""Images and masks of the same names in two folders; the value of a pixel is its class.

    SOURCE/images/SPLIT/a.jpg   SOURCE/masks/SPLIT/a.png
    SOURCE/SPLIT/images/a.jpg   SOURCE/SPLIT/masks/a.png
    SOURCE/SPLIT/a.png          SOURCE/SPLITannot/a.png                          CamVid
    SOURCE/images/a.jpg         SOURCE/masks/a.png                               one split

--image_folder and --mask_folder name other folders, --image_suffix and --mask_suffix what differs
in the names. Class names are in --class_names or, one on each line, in SOURCE/classes.txt.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from common import folders
from common.constants import IGNORED_CLASS
from common.names import find_class_name_problem, printable
from input_fns import DataError
from input_fns.convert import annotated_images, decoded_images, mask_files
from input_fns.convert.files import read_lines
from input_fns.convert.mask_files import Item, Rules
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import SPLITS, split_names

CLASSES_FILE = "classes.txt"
NO_MASK, NO_IMAGE = "images without a mask", "masks without an image"
_MASK_FOLDERS = ("masks", "annotations", "labels")
_PATTERNS = (
    *(("images/{split}", f"{name}/{{split}}") for name in _MASK_FOLDERS),
    *(("{split}/images", f"{{split}}/{name}") for name in _MASK_FOLDERS),
    ("{split}", "{split}annot"),
    ("{split}", "{split}_labels"),
    ("leftImg8bit/{split}", "gtFine/{split}"),
    *(("images", name) for name in _MASK_FOLDERS),
)
_SPLIT = "{split}"
# Masks to look at before anything is written.
_SAMPLE = 20


def read(options: Options) -> RawDataset:
    """Returns the splits of the first layout of folders that is there.

    Raises:
      DataError: a folder or the class names are missing, or no image has a mask.
    """
    images, left_out = {}, {}
    paired, alone = _find_folders(options)
    for split, (image_folder, mask_folder) in paired.items():
        images[split], left_out[split] = pair(image_folder, mask_folder, options)
    first = next(iter(images))
    for reason, folder, extensions in alone:
        count = len(_by_stem(folder, "", extensions))
        if count:
            left_out[first][reason] = left_out[first].get(reason, 0) + count
    return to_dataset(options, images, left_out)


def to_dataset(options, images, left_out) -> RawDataset:
    """Returns the data set of `{split: [Item]}`; see `annotated_images.with_masks`."""
    rules = _rules(options, images)
    return annotated_images.with_masks(options, rules, images, left_out)


def pair(
    image_folder: str, mask_folder: str, options: Options, stems: Collection[str] | None = None
) -> tuple[list[Item], dict[str, int]]:
    """Returns images with their masks, sorted by name, and counts of those that are left out.

    Args:
      image_folder: folder of images, with subfolders.
      mask_folder: folder of masks, with the same subfolders.
      options: `image_suffix` and `mask_suffix` are used.
      stems: names without extensions to take; None for all.

    Raises:
      DataError: no image has a mask, or two files have the same name.
    """
    images = _by_stem(image_folder, options.image_suffix, decoded_images.EXTENSIONS)
    masks = _by_stem(mask_folder, options.mask_suffix, mask_files.EXTENSIONS)
    if stems is not None:
        images = {stem: path for stem, path in images.items() if stem in stems}
        masks = {stem: path for stem, path in masks.items() if stem in stems}
    both = sorted(images.keys() & masks.keys())
    if not both:
        raise DataError(
            f"no mask in {mask_folder} ({_first(masks)}) has the name of an image in "
            f"{image_folder} ({_first(images)}). Use --image_suffix and --mask_suffix for what "
            "differs in their names"
        )
    counts = {NO_MASK: len(images) - len(both), NO_IMAGE: len(masks) - len(both)}
    return (
        [Item(images[stem], masks[stem]) for stem in both],
        {reason: count for reason, count in counts.items() if count},
    )


def _first(paths):
    return f"{len(paths)} files" + (f", the first {printable(min(paths))}" if paths else "")


def _by_stem(folder, suffix, extensions):
    """Returns `{path below the folder without suffix and extension: path}` of its files."""
    found: dict[str, str] = {}
    for path in folders.files(folder, {folders.identity(folder)}):
        stem, extension = os.path.splitext(os.path.relpath(path, folder))
        if extension.lower() not in extensions or not stem.endswith(suffix):
            continue
        stem = stem[: len(stem) - len(suffix)]
        if found.setdefault(stem, path) != path:
            raise DataError(f"{printable(path)} and {printable(found[stem])} have the same name")
    return found


def _find_folders(options):
    """Returns `{split: (folder of images, folder of masks)}`, and folders without a partner.

    Those are `(reason, folder, extensions of its files)`.
    """
    source = options.source
    if not folders.is_folder(source):
        raise DataError(f"--source={source} is not a folder")
    patterns = _PATTERNS
    if options.image_folder or options.mask_folder:
        if not (options.image_folder and options.mask_folder):
            raise DataError("--image_folder and --mask_folder need each other. Set both or neither")
        patterns = ((options.image_folder, options.mask_folder),)
        if (_SPLIT in options.image_folder) != (_SPLIT in options.mask_folder):
            raise DataError(
                "one of --image_folder and --mask_folder has {split}, and not the other"
            )
    for pattern in patterns:
        names = SPLITS if _SPLIT in pattern[0] else ("train",)
        folders_of = {
            name: tuple(os.path.join(source, p.replace(_SPLIT, name)) for p in pattern)
            for name in names
        }
        are_there = {name: tuple(map(folders.is_folder, pair)) for name, pair in folders_of.items()}
        found = {name: folders_of[name] for name, there in are_there.items() if all(there)}
        if found:
            alone = [
                (NO_MASK, folders_of[name][0], decoded_images.EXTENSIONS)
                if there[0]
                else (NO_IMAGE, folders_of[name][1], mask_files.EXTENSIONS)
                for name, there in are_there.items()
                if any(there) and not all(there)
            ]
            names = split_names(found, f"--source={source}")
            return {ours: found[name] for ours, name in names.items()}, alone
    raise DataError(
        f"--source={source} has no folders of images and masks such as "
        f"{', '.join(f'{image} and {mask}' for image, mask in patterns[:: len(_MASK_FOLDERS)])}. "
        "Name them with --image_folder and --mask_folder, with {split} for the name of a split"
    )


def _rules(options, images):
    """Returns what the values of the masks mean."""
    path = os.path.join(options.source, CLASSES_FILE)
    names = list(options.class_names)
    if not names and folders.is_file(path):
        names = [line.decode().strip() for line in read_lines(path) if line.strip()]
        wrong = find_class_name_problem(names)
        if wrong:
            raise DataError(f"{path}: {wrong}")
    sample = [item.mask for items in images.values() for item in _spread(items)]
    values = mask_files.count_values(sample)
    if not names:
        raise DataError(
            f"the masks need --class_names or {path}; {len(sample)} of them have the values "
            f"{_listed(values)}"
        )
    value_of = [_integer("mask_values", value) for value in options.mask_values] or list(
        range(len(names))
    )
    if len(value_of) != len(names):
        raise DataError(f"--mask_values has {len(value_of)} values for {len(names)} class names")
    ignored = _ignored(options, names, value_of)
    if not options.mask_values and values.keys() == {0, 255} and 255 in ignored:
        raise DataError(
            f"{len(sample)} masks have the values 0 and 255 only, and 255 is ignored. If 255 is a "
            "class, set --mask_values=0,255; else name the value of each class with --mask_values"
        )
    kept = [i for i, value in enumerate(value_of) if value not in ignored]
    if not 2 <= len(kept) <= IGNORED_CLASS:
        raise DataError(f"masks have 2 to {IGNORED_CLASS} classes, and {len(kept)} are named")
    class_of = {value_of[i]: label for label, i in enumerate(kept)}
    class_of.update(dict.fromkeys(ignored, IGNORED_CLASS))
    return Rules(tuple(names[i] for i in kept), class_of)


def _ignored(options, names, value_of):
    """Returns the set of values without a class: 255 unless it is one, or those of --ignored."""
    if not options.ignored:
        return {IGNORED_CLASS} - set(value_of)
    found = set()
    for entry in options.ignored:
        if entry in names:
            found.add(value_of[names.index(entry)])
        elif entry.isdigit():
            found.add(_integer("ignored", entry))
        else:
            raise DataError(
                f"--ignored: {entry!a} is neither a class nor a value; the classes are "
                f"{', '.join(names)}"
            )
    return found


def _integer(flag, value):
    if not (value.isascii() and value.isdigit() and len(value) <= 5 and int(value) < 2**16):
        raise DataError(f"--{flag}: {value!a} is not an integer from 0 to 65535")
    return int(value)


def _spread(items):
    return list(items)[:: max(1, len(items) // _SAMPLE)]


def _listed(values):
    shown = ", ".join(map(str, sorted(values)[:20]))
    return f"{shown}{', ...' if len(values) > 20 else ''}"
