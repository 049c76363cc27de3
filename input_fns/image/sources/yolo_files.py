"""Finds the images of each split of a YOLO data set, their text files and the class names.

See https://docs.ultralytics.com/datasets/detect.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping

from common import folders
from common.names import normalized, printable
from input_fns import DataError
from input_fns.convert import inventory
from input_fns.convert.files import read_bytes, read_lines
from input_fns.convert.find_files import Finder
from input_fns.convert.options import Options
from input_fns.convert.split_folders import split_of_paths
from input_fns.convert.split_names import split_of
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import decoded_images

_YAML = (".yaml", ".yml")
# Lines of class names: Label Studio and LabelImg, CVAT, Roboflow.
_NAMES = ("classes.txt", "obj.names", "_darknet.labels")
_SPLITS = {"train": "train", "val": "validation", "test": "test"}  # keys of the YAML
NO_IMAGE, NOT_THERE = "text files without an image", "images that a list names and that are missing"
OTHER_IMAGE = "images that no split has"


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a folder holds.

    Attributes:
      images: `{split: paths of its images}`.
      label_of: `{path of an image: path of its text file}`; images without one are not in it.
      names: `{number in the text files: class name}`; empty if no file has them.
      names_path: the file that has them.
      has_keypoints: whether lines have keypoints after the box.
      unused: `{path: reason}` of images and text files that are not used.
    """

    images: Mapping[str, list[str]]
    label_of: Mapping[str, str]
    names: Mapping[int, str]
    names_path: str
    has_keypoints: bool
    unused: Mapping[str, str]


def find(options: Options, left_out: LeftOut) -> Layout:
    """Returns what `options.source` holds.

    Args:
      options: `source` and `skip` are used.
      left_out: gets the names in lists that are of no image.

    Raises:
      DataError: there is no text file, the YAML is invalid, or splits are not clear.
    """
    source = options.source
    if not folders.is_folder(source):
        raise DataError(f"--source={source} is not a folder. Unpack an archive first")
    paths = list(inventory.files(source, options))
    texts = {path for path in paths if path.lower().endswith(".txt")}
    images = [path for path in paths if path.lower().endswith(decoded_images.EXTENSIONS)]
    label_of = _label_paths(images, texts)
    if not label_of:
        hint = inventory.hint_of_folder(options, lambda path: path.endswith("data.yaml"))
        raise DataError(
            f"--source={source} has no text file of YOLO for any of its {len(images)} images: "
            f"labels/SPLIT/*.txt for images/SPLIT/*, SPLIT/labels/*.txt or a.txt beside a.jpg{hint}"
        )
    yaml_path, content = _yaml(paths)
    names, names_path = _names(yaml_path, content, paths)
    entries = _entries(yaml_path, content)
    folder = os.path.dirname(names_path) or source
    splits = _splits_of_yaml(yaml_path, entries, images, options, left_out) or _splits_of_lists(
        folder, texts - {*label_of.values()}, options, left_out
    )
    if not splits:
        splits = _splits_of_folders(images, options)
        if len(entries) > len(splits):
            first = next(iter(entries.values()))[0]
            raise DataError(
                f"{printable(yaml_path)}: its folders and lists of {', '.join(entries)} are not in "
                f"{source}, such as {printable(first)}. Correct them, or leave the file out "
                f"with --skip={os.path.basename(yaml_path)} and set --class_names"
            )
    used = {path for found in splits.values() for path in found}
    unused = dict.fromkeys((path for path in images if path not in used), OTHER_IMAGE)
    labels = {label_of[path] for path in used if path in label_of}
    is_text = (path for path in texts - labels if "readme" not in os.path.basename(path).lower())
    unused.update(dict.fromkeys(is_text, NO_IMAGE))
    return Layout(splits, label_of, names, names_path, "kpt_shape" in content, unused)


def _label_paths(images, texts):
    """Returns `{image: its text file}`, which is in "labels" instead of "images", or beside it.

    A text file whose name differs in letter case is that of an image if no other has it.
    """
    tried = {image: _possible_label_paths(image) for image in images}
    found = {
        image: path
        for image, paths in tried.items()
        if (path := next((path for path in paths if path in texts), ""))
    }
    rest = {path.lower(): path for path in sorted(texts - {*found.values()})}
    for image in images:
        if image not in found:
            paths = [rest[path.lower()] for path in tried[image] if path.lower() in rest]
            found.update((image, path) for path in paths[:1])
    return found


def _possible_label_paths(image):
    stem = os.path.splitext(image)[0]
    parts = stem.split("/")
    for i in range(len(parts) - 2, -1, -1):
        if parts[i].lower() == "images":
            other = "/".join([*parts[:i], "labels", *parts[i + 1 :]])
            return [f"{other}.txt", f"{stem}.txt"]
    return [f"{stem}.txt"]


def _yaml(paths):
    """Returns the path and the content of the YAML with class names; "", {} without one."""
    found = []
    for path in paths:
        if path.lower().endswith(_YAML):
            content = _load(path)
            if isinstance(content, dict) and "names" in content:
                found.append((path, content))
    if len(found) > 1:
        listed = " and ".join(printable(path) for path, _ in found[:2])
        raise DataError(f"{listed} both have 'names'. Leave one out with --skip=NAME")
    return found[0] if found else ("", {})


def _load(path):
    try:
        import yaml  # an optional dependency
    except ImportError as error:
        raise DataError(
            f"{printable(path)} needs PyYAML: pip install '.[detection]', or leave it out with "
            "--skip and set --class_names"
        ) from error
    try:
        return yaml.safe_load(read_bytes(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = " ".join(str(error).split())
        raise DataError(f"{printable(path)} is not YAML: {line}") from error


def _names(yaml_path, content, paths):
    """Returns `{number: name}` and the file that has them; {} and "" without one."""
    if yaml_path:
        found = content["names"]
        pairs = enumerate(found) if isinstance(found, list) else getattr(found, "items", list)()
        names = dict(pairs)
        if not names or not all(
            type(n) is int and n >= 0 and isinstance(name, (str, int, float))
            for n, name in names.items()
        ):
            raise DataError(f"{printable(yaml_path)}: names is neither a list nor NUMBER: NAME")
        if any(isinstance(name, bool) for name in names.values()):
            raise DataError(
                f"{printable(yaml_path)}: names has words that YAML reads as true or false, such "
                "as yes, no, on and off. Put them into quotes"
            )
        if content.get("nc", len(names)) != len(names):
            raise DataError(
                f"{printable(yaml_path)}: nc is {content['nc']!a}, but names has {len(names)}"
            )
        return _require_different({n: str(names[n]) for n in sorted(names)}, yaml_path)
    known = [path for path in paths if os.path.basename(path).lower() in _NAMES]
    lines = {path: [line.decode().strip() for line in read_lines(path)] for path in known}
    if not lines:
        return {}, ""
    first, *others = lines
    for other in others:
        if lines[other] != lines[first]:
            raise DataError(f"{printable(first)} and {printable(other)} have different class names")
    while lines[first] and not lines[first][-1]:
        lines[first].pop()
    return _require_different(dict(enumerate(lines[first])), first)


def _require_different(names, path):
    """Returns the arguments; checks that names differ and none is empty."""
    seen: dict[str, int] = {}
    for number, name in names.items():
        if not name or seen.setdefault(name, number) != number:
            problem = f"has the name of {seen[name]}, {name!a}" if name else "has no name"
            raise DataError(f"{printable(path)}: class {number} {problem}")
    return names, path


def _entries(yaml_path, content):
    """Returns `{split: paths of folders and lists}` as a YAML has them, below its 'path'."""
    above = content.get("path") or ""
    found = {}
    for key, split in _SPLITS.items():
        entries = content.get(key) or []
        entries = [entries] if isinstance(entries, str) else entries
        if not isinstance(entries, list) or not all(isinstance(e, str) for e in (above, *entries)):
            raise DataError(f"{printable(yaml_path)}: {key} is not a path or a list of paths")
        if entries:
            found[split] = [f"{above}/{entry}".lstrip("/") for entry in entries]
    return found


def _splits_of_yaml(yaml_path, entries, images, options, left_out):
    """Returns `{split: images}` of the folders and lists that a YAML names; {} if none is there."""
    found: dict[str, list[str]] = {}
    for split, paths in entries.items():
        for entry in paths:
            path = _below(os.path.dirname(yaml_path), entry) or _below(options.source, entry)
            if path is None:
                left_out.add("folders and lists that the YAML names and that are missing", entry)
            elif folders.is_folder(path):
                inside = f"{path.rstrip('/')}/"
                found.setdefault(split, []).extend(p for p in images if p.startswith(inside))
            else:
                found.setdefault(split, []).extend(_listed(path, options, left_out))
    if found and "train" not in found:
        raise DataError(
            f"{printable(yaml_path)}: train={entries.get('train')!a} is not in {options.source}"
        )
    return {split: list(dict.fromkeys(paths)) for split, paths in found.items() if paths}


def _below(source, entry):
    """Returns the path of the longest end of a path that is below the source; None without one."""
    parts = [p for p in normalized(entry).replace("\\", "/").split("/") if p not in ("", ".", "..")]
    for start in range(len(parts)):
        path = os.path.join(source, *parts[start:])
        if folders.is_folder(path) or folders.is_file(path):
            return path
    return None


def _splits_of_lists(folder, texts, options, left_out):
    """Returns `{split: images}` of train.txt, valid.txt and the like in a folder; {} without."""
    lists: dict[str, str] = {}
    for path in sorted(texts):
        above, name = os.path.split(path)
        split = split_of(os.path.splitext(name)[0])
        if not split or os.path.normpath(above) != os.path.normpath(folder):
            continue
        if split in lists:
            raise DataError(
                f"{printable(lists[split])} and {printable(path)} are both of the split '{split}'. "
                f"Leave one out with --skip={name}"
            )
        lists[split] = path
    found = {split: _listed(path, options, left_out) for split, path in lists.items()}
    return found if found.get("train") else {}


def _listed(path, options, left_out) -> list[str]:
    """Returns the images that a list names, one per line."""
    finder = Finder(options.source, (), lambda folder: inventory.names(folder, options))
    found: dict[str, None] = {}
    for line in read_lines(path):
        name = line.decode().strip()
        # Names start at the folder that the training ran in: data/obj_train_data/a.jpg.
        image = finder.find(f"/{name.removeprefix('./')}") if name else None
        if image:
            found[image] = None
        elif name:
            left_out.add(NOT_THERE, printable(name))
    return list(found)


def _splits_of_folders(images: Iterable[str], options) -> dict[str, list[str]]:
    """Returns `{split: images}` by the names of folders; all are "train" without such names."""
    folder_of = {path: path[len(options.source) :].strip("/").rpartition("/")[0] for path in images}
    split_of_path = split_of_paths(folder_of.values())
    found: dict[str, list[str]] = {}
    for path, folder in folder_of.items():
        found.setdefault(split_of_path[folder], []).append(path)
    others = found.pop("", [])
    if found and others:
        raise DataError(
            f"{printable(others[0])} is in no folder of a split, while others are of "
            f"{', '.join(map(repr, found))}. Leave its folder out with --skip"
        )
    return found or {"train": others}
