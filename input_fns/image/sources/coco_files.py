"""Finds the JSON of each split of COCO, and the folder of its images, also in archives."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from common import folders
from common.names import normalized, printable
from input_fns import DataError
from input_fns.convert import inventory, split_folders
from input_fns.convert.archives import SourceTree
from input_fns.convert.find_files import Finder
from input_fns.convert.options import Options
from input_fns.convert.split_folders import SPLIT, split_of_folder
from input_fns.convert.split_names import split_in, split_names, split_of
from input_fns.image.sources import coco_json, decoded_images

_JSON = re.compile(r".+\.json(\.gz|\.xz)?", re.IGNORECASE)
# Images whose files are looked for to find the folder.
_PROBED = 50
# So many files of one split are rather one for each image.
_MANY_FILES = 3


def annotation_files(options: Options, tree: SourceTree) -> dict[str, str]:
    """Returns `{split: path of its JSON}`: those of --annotations, or in the usual places.

    Args:
      options: `annotations` and `source` are used.
      tree: files below `source`.

    Raises:
      DataError: there is none, two are of one split, or one of several has no split.
    """
    if options.annotations:
        given = dict(_given_file(entry, len(options.annotations)) for entry in options.annotations)
        if len(given) < len(options.annotations):
            raise DataError("--annotations has two files of one split. Write SPLIT=FILE")
        return {split: tree.path(path) for split, path in given.items()}
    source = options.source
    if not tree.is_folder(source):
        raise DataError(f"--source={source} is not a folder and not an archive")
    found = _found(source, tree)
    if not found:
        hint = (
            inventory.hint_of_folder(options, _JSON.fullmatch) if folders.is_folder(source) else ""
        )
        raise DataError(
            f"--source={source} has no JSON of COCO: annotations/*.json, SPLIT/*.json or *.json. "
            f"Name it with --annotations{hint}"
        )
    split_by_path = {path: _split_of_path(path, source) for path in found}
    if len(found) == 1 and not split_by_path[found[0]]:
        split_by_path = {found[0]: "train"}
    nameless = [path for path, split in split_by_path.items() if not split]
    if nameless:
        understood = [f"{os.path.basename(p)} is '{s}'" for p, s in split_by_path.items() if s]
        shown = f", while {', '.join(understood[:3])}" if understood else ""
        raise DataError(
            f"{nameless[0]}: the name has no split, such as train{shown}. Name the files with "
            f"--annotations=train=FILE,validation=FILE{_hint(len(nameless))}"
        )
    by_split: dict[str, list[str]] = {}
    for path, split in split_by_path.items():
        by_split.setdefault(split, []).append(path)
    for split, paths in by_split.items():
        if len(paths) > 1:
            raise DataError(
                f"{paths[0]} and {paths[1]} are both of the split '{split}'. Choose one with "
                f"--annotations{_hint(len(paths))}"
            )
    return {split: tree.path(paths[0]) for split, paths in by_split.items()}


def _hint(num_files):
    if num_files < _MANY_FILES:
        return ""
    return ". JSON of one image each (LabelMe) must be joined first, such as with labelme2coco"


def _found(source, tree):
    """Returns the paths of the JSON in the first usual place that has one."""
    inside = tree.names(source)
    nested = [os.path.join(source, name) for name in inside if name.lower() == "annotations"]
    of_splits = [os.path.join(source, name) for name in inside if split_of_folder(name)]
    of_splits += [tree.child(path, "annotations") for path in of_splits]
    groups = [
        [p for path in nested for p in tree.files(path) if _JSON.fullmatch(p)],
        [p for path in filter(None, of_splits) for p in _json_files(path, tree)],
        _json_files(source, tree),
    ]
    found = next(filter(None, groups), [])
    return [p for p in found if os.path.basename(p).startswith("instances_")] or found


def _given_file(entry, count):
    split, equals, path = entry.partition("=")
    if not equals:
        split, path = _split_of_path(entry, ""), entry
        split = split or ("train" if count == 1 else "")
    if not split:
        raise DataError(f"--annotations={entry} has no split in its name. Write SPLIT={entry}")
    (ours,) = split_names([split], f"--annotations={entry}")
    return ours, path


def _json_files(folder, tree):
    names = [name for name in tree.names(folder) if _JSON.fullmatch(name)]
    return [os.path.join(folder, name) for name in names]


def _split_of_path(path, source):
    """Returns the split in the name of a file or of a folder of it below `source`, or ""."""
    stem = os.path.basename(path).partition(".")[0]
    folder = os.path.dirname(path)
    is_below = source and folder.startswith(source)
    parents = folder[len(source) :] if is_below else os.path.basename(folder)
    for part in (stem, *reversed(parents.split("/"))):
        split = split_of(part) or split_in(part)
        if split:
            return split
    return ""


def finders_of_images(
    options: Options, tree: SourceTree, split: str, instances: coco_json.Instances
) -> list[Finder]:
    """Returns `Finder`s of the folders of the images of a split, that of most images first.

    An export may name some images below its folder and others by paths on another machine.

    Raises:
      DataError: no folder has an image, from a sample.
    """
    every = max(1, len(instances.images) // _PROBED)
    sample = [image.file_name for image in instances.images[::every]]
    candidates = list(_usual_folders(options, tree, split, instances.path))
    found = _with_most(candidates, tree, sample)
    if not found and not options.image_folder:
        found = _with_most(_other_folders(options, tree, split), tree, sample)[:1]
    if not found:
        raise DataError(
            f"{instances.path}: {printable(sample[0])} and the next images are in none of "
            f"{', '.join(candidates)}. Name the folder with --image_folder"
        )
    return found


def _with_most(candidates, tree, sample):
    """Returns `Finder`s of the folders that have images of a sample, that of most first."""
    finders = [Finder(folder, decoded_images.EXTENSIONS, tree.names) for folder in candidates]
    counts = [sum(finder.find(name) is not None for name in sample) for finder in finders]
    found = [number for number, count in enumerate(counts) if count]
    return [finders[number] for number in sorted(found, key=lambda number: -counts[number])]


def _usual_folders(options, tree, split, path) -> Iterator[str]:
    """Yields folders that may have the images of a split, without repetitions."""
    source = options.source
    if options.image_folder:
        named = options.image_folder.replace(SPLIT, split)
        found = [os.path.join(source, named)]
        if SPLIT in options.image_folder:
            of_split = split_folders.find(options.image_folder, options).of_split
            found += filter(None, [of_split.get(split)])
        yield from dict.fromkeys(found)
        return
    stem = normalized(os.path.basename(path)).partition(".")[0].lower()
    suffix = stem.rpartition("_")[2]  # train2017 of COCO, default of CVAT
    images = tree.child(source, "images")
    found = [os.path.dirname(path)]
    for parent in filter(None, (source, images)):
        names = tree.names(parent)
        exact = [name for name in names if name.lower() in (stem, suffix)]
        of_split = [name for name in names if split_of_folder(name) == split]
        found += [os.path.join(parent, name) for name in (*exact, *of_split)]
    inside = [tree.child(folder, "images") for folder in found]
    found += [*filter(None, inside), images or os.path.join(source, "images"), source]
    yield from dict.fromkeys(found)


def _other_folders(options, tree, split):
    """Returns all folders of images below --source, but those that are of another split."""
    found: dict[str, None] = {}
    for path in tree.files(options.source):
        folder = os.path.dirname(path)
        parents = folder[len(options.source) :].split("/")
        splits = {split_of_folder(parent) for parent in parents} - {"", split}
        if not splits and path.lower().endswith(decoded_images.EXTENSIONS):
            found[folder] = None
    return list(found)
