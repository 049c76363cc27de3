"""Finds the XML and the images of each split of Pascal VOC, and the lists in ImageSets."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from common import folders
from common.constants import INSTANCES
from common.names import normalized
from input_fns import DataError
from input_fns.convert import inventory, split_folders
from input_fns.convert.files import read_lines
from input_fns.convert.options import Options
from input_fns.convert.split_folders import SPLIT
from input_fns.convert.split_names import split_names, split_of
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import decoded_images

_XML_FOLDERS = ("annotations", "xml", "xmls", "labels")
_IMAGE_FOLDERS = ("jpegimages", "images")
_BESIDE = ""  # the images are in the folder of the XML
# Folders of the XML and of the images of a split; the images may be in one folder for all.
_PATTERNS = (
    *((f"{x}/{SPLIT}", f"{i}/{SPLIT}") for x in _XML_FOLDERS for i in _IMAGE_FOLDERS),
    *((f"{SPLIT}/{x}", f"{SPLIT}/{i}") for x in _XML_FOLDERS for i in _IMAGE_FOLDERS),
    *((f"{SPLIT}/{x}", SPLIT) for x in _XML_FOLDERS),
    *((f"{x}/{SPLIT}", i) for x in _XML_FOLDERS for i in (*_IMAGE_FOLDERS, _BESIDE, ".")),
    (SPLIT, _BESIDE),
)
_SETS = {"detection": "Main", "segmentation": "Segmentation", INSTANCES: "Segmentation"}
_REPEATED = "lines of ImageSets that occur twice"


@dataclasses.dataclass(frozen=True)
class Layout:
    """Folders of a split; `stems` are the listed names, or None for all XML in the folder."""

    xml: str
    images: str
    stems: list[str] | None = None


def find(options: Options, left_out: LeftOut) -> dict[str, Layout]:
    """Returns `{split: Layout}` of the first layout that has XML.

    Args:
      options: `source`, `xml_folder`, `image_folder`, `skip` and `task` are used.
      left_out: gets the lines of lists that occur twice.

    Raises:
      DataError: there is no XML, or the name of a folder with XML is not that of a split.
    """
    source = options.source
    if not folders.is_folder(source):
        raise DataError(f"--source={source} is not a folder")
    found = _folders_of_splits(options)
    if found:
        return found
    if SPLIT in options.xml_folder:
        raise DataError(
            f"--xml_folder={options.xml_folder}: {source} has no such folders with XML, or no "
            "folders of images for them. Name those with --image_folder"
        )
    xml = split_folders.child(source, _XML_FOLDERS, options) or source
    images = split_folders.child(source, _IMAGE_FOLDERS, options) or source
    if options.xml_folder:
        xml = os.path.join(source, options.xml_folder)
    if options.image_folder:
        images = os.path.join(source, options.image_folder)
    lists = split_folders.child(source, ("imagesets",), options)
    if not _has_files(xml, (".xml",), options):
        raise DataError(
            f"--source={source} has no XML of VOC: Annotations/*.xml, Annotations/SPLIT/*.xml, "
            "SPLIT/*.xml or *.xml. Name its folder with --xml_folder"
        )
    listed = listed_names(lists, options, left_out) if lists else {}
    if listed:
        return {split: Layout(xml, images, stems) for split, stems in listed.items()}
    split_folders.require_none_inside(xml, by_stem(xml, (".xml",), options), "xml_folder")
    return {"train": Layout(xml, images)}


def _folders_of_splits(options):
    """Returns `{split: Layout}` of the first pattern with a folder of XML for each split."""
    patterns = dict.fromkeys(
        (options.xml_folder or xml, options.image_folder or images or options.xml_folder or xml)
        for xml, images in _PATTERNS
    )
    for xml_pattern, image_pattern in patterns:
        if SPLIT not in xml_pattern:
            continue
        xml = split_folders.find(xml_pattern, options)
        images = split_folders.find(image_pattern, options).of_split
        if SPLIT not in image_pattern and images:
            images = dict.fromkeys(xml.of_split, images["train"])
        found = {
            split: Layout(path, images[split])
            for split, path in xml.of_split.items()
            if split in images
            and _has_files(path, (".xml",), options)
            and _has_files(images[split], decoded_images.EXTENSIONS, options)
        }
        if found:
            split_folders.require_known(xml, (".xml",), options)
            return found
    return {}


def _has_files(folder, extensions, options):
    """Whether a folder has files of a kind, in subfolders too."""
    if not folders.is_folder(folder):
        return False
    return any(path.lower().endswith(extensions) for path in inventory.files(folder, options))


def by_stem(folder: str, extensions: tuple[str, ...], options: Options) -> dict[str, list[str]]:
    """Returns `{path below the folder without extension: [path]}` of its files with extensions."""
    found: dict[str, list[str]] = {}
    for path in inventory.files(folder, options):
        stem, extension = os.path.splitext(os.path.relpath(path, folder))
        if extension.lower() in extensions:
            found.setdefault(normalized(stem), []).append(path)
    return found


def listed_names(folder: str, options: Options, left_out: LeftOut) -> Mapping[str, list[str]]:
    """Returns `{split: names of its images}` of the lists in ImageSets.

    Args:
      folder: ImageSets, whose folder of the task, such as Main, has the lists; else it has them.
      options: `task` and `skip` are used.
      left_out: gets the lines that occur twice.

    Raises:
      DataError: an image is in two splits.
    """
    folder = split_folders.child(folder, (_SETS[options.task].lower(),), options) or folder
    files = {
        name[: -len(".txt")]: os.path.join(folder, name)
        for name in inventory.names(folder, options)
        if name.lower().endswith(".txt")
    }
    found = {name: path for name, path in files.items() if split_of(name)}
    both = next((name for name in files if name.lower() == "trainval"), None)
    if both and "train" not in map(split_of, found):
        found["train"] = files[both]
    names = split_names(found, folder)
    stems = {ours: _read_list(found[name], left_out) for ours, name in names.items()}
    seen: dict[str, str] = {}
    for split, listed in stems.items():
        for stem in listed:
            if stem in seen:
                raise DataError(f"{folder}: {stem!a} is in '{seen[stem]}' and in '{split}'")
            seen[stem] = split
    return stems


def _read_list(path, left_out):
    """Returns the names in a list, without repetitions."""
    stems: dict[str, None] = {}
    for number, line in enumerate(read_lines(path), start=1):
        name = normalized(line.decode())
        if not name:
            continue
        if name in stems:
            left_out.add(_REPEATED, f"{os.path.basename(path)} line {number}")
        stems[name] = None
    return list(stems)
