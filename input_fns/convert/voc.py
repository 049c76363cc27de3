"""Images with the XML of Pascal VOC: boxes for detection, or palette masks for segmentation.

    SOURCE/Annotations/*.xml   SOURCE/JPEGImages/*.jpg   SOURCE/ImageSets/Main/SPLIT.txt    VOC
    SOURCE/SPLIT/*.xml         SOURCE/SPLIT/*.jpg
    SOURCE/*.xml               SOURCE/*.jpg                                       one split

Corners are numbers of pixels, the first one 1, and the last one is a pixel of the box; with
--box_origin=0 they are continuous, and the first pixel reaches from 0 to 1.
"""

from __future__ import annotations

import collections
import dataclasses
import os

from common import folders
from common.names import is_plain_name, printable
from input_fns import DataError
from input_fns.convert import annotated_images, boxes, decoded_images, image_masks, voc_xml
from input_fns.convert.annotated_images import Boxes
from input_fns.convert.boxes import Box, Notes
from input_fns.convert.files import read_bytes, read_lines
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import is_split, split_names

_OTHER_CLASS = "of a class that is not in --class_names"
_NO_XML = "images without XML"
_SETS = {"detection": "Main", "segmentation": "Segmentation"}


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Folders of a split; `stems` are the listed names, or None for all in the folder."""

    xml: str
    images: str
    stems: list[str] | None


def read(options: Options) -> RawDataset:
    """Returns the data set of `options.task`: "detection" or "segmentation".

    Raises:
      DataError: there is no annotation, a file is invalid, or a class is unknown.
    """
    if options.task == "segmentation":
        return _read_masks(options)
    parsed, left_out = {}, {}
    for split, layout in _layouts(options).items():
        parsed[split], left_out[split] = _read_split(layout)
    names = sorted(
        {found.name for rows in parsed.values() for _, one in rows for found in one.objects}
    )
    unknown = [name for name in options.class_names if name not in names]
    if unknown or not names:
        raise DataError(
            f"--source={options.source} has no object of the class {unknown[0] if unknown else ''}"
            f"; its classes are: {', '.join(names)}"
        )
    class_names = options.class_names or tuple(names)
    numbers = iter(range(1, 1 + sum(map(len, parsed.values()))))
    images = {
        split: [_boxes(path, next(numbers), one, class_names, options) for path, one in rows]
        for split, rows in parsed.items()
    }
    category_ids = range(1, 1 + len(class_names))
    return annotated_images.with_boxes(options, class_names, images, left_out, category_ids)


def _layouts(options):
    """Returns `{split: _Layout}`."""
    source = options.source
    if not folders.is_folder(source):
        raise DataError(f"--source={source} is not a folder")
    inside = {name.lower(): os.path.join(source, name) for name in folders.names(source)}
    xml = inside.get("annotations", source)
    images = inside.get("jpegimages") or inside.get("images") or source
    if options.image_folder:
        images = os.path.join(source, options.image_folder)
    if "imagesets" in inside:
        listed = _listed(os.path.join(inside["imagesets"], _SETS[options.task]))
        if listed:
            return {split: _Layout(xml, images, stems) for split, stems in listed.items()}
    split_folders = [
        name for name in folders.names(source) if is_split(name) and _stems(f"{source}/{name}")
    ]
    if split_folders:
        names = split_names(split_folders, f"--source={source}")
        paths = {ours: os.path.join(source, name) for ours, name in names.items()}
        return {split: _Layout(path, path, None) for split, path in paths.items()}
    if not _stems(xml):
        raise DataError(f"--source={source} has no XML of VOC: Annotations/*.xml, SPLIT/*.xml")
    return {"train": _Layout(xml, images, None)}


def _listed(folder):
    """Returns `{split: names of its images}` of the files in ImageSets."""
    files = {
        name[: -len(".txt")]: os.path.join(folder, name)
        for name in folders.names(folder)
        if name.endswith(".txt")
    }
    found = {name: path for name, path in files.items() if is_split(name)}
    if "train" not in found and "trainval" in files:
        found["train"] = files["trainval"]
    names = split_names(found, folder)
    stems = {ours: _read_list(found[name]) for ours, name in names.items()}
    seen: dict[str, str] = {}
    for split, listed in stems.items():
        for stem in listed:
            if stem in seen:
                raise DataError(f"{folder}: {stem!a} is in '{seen[stem]}' and in '{split}'")
            seen[stem] = split
    return stems


def _read_list(path):
    stems = []
    for number, line in enumerate(read_lines(path), start=1):
        words = line.decode().split()
        if not words:
            continue
        if not is_plain_name(words[0]) or len(words) > 1:
            raise DataError(f"{path}, line {number}: {line.decode()[:60]!a} is not a file name")
        if words[0] in stems[-1:]:
            raise DataError(f"{path}, line {number}: {words[0]!a} is repeated")
        stems.append(words[0])
    if len(set(stems)) < len(stems):
        twice = next(stem for stem, n in collections.Counter(stems).items() if n > 1)
        raise DataError(f"{path}: {twice!a} is repeated")
    return stems


def _stems(folder):
    return [name[: -len(".xml")] for name in folders.names(folder) if name.endswith(".xml")]


def _read_split(layout):
    """Returns `[(path of the image, annotation)]` and counts of images without XML."""
    found = {}
    for name in folders.names(layout.images):
        stem, extension = os.path.splitext(name)
        if extension.lower() in decoded_images.EXTENSIONS:
            found.setdefault(stem, []).append(name)
    stems = _stems(layout.xml) if layout.stems is None else layout.stems
    rows = []
    for stem in stems:
        path = os.path.join(layout.xml, f"{stem}.xml")
        one = voc_xml.parse(read_bytes(path), printable(path))
        rows.append((os.path.join(layout.images, _image_name(found, stem, one, path)), one))
    without = len(found.keys() - set(stems)) if layout.stems is None else 0
    return rows, {_NO_XML: without} if without else {}


def _image_name(found, stem, annotation, path):
    """Returns the name of the image of an XML; of a file that is missing if there is none."""
    names = found.get(stem, [])
    if len(names) == 1:  # <filename> is often wrong: the name when it was annotated
        return names[0]
    if names and annotation.file_name not in names:
        raise DataError(f"{printable(path)} may be of {' or of '.join(names)}: keep one of them")
    return annotation.file_name if is_plain_name(annotation.file_name) else f"{stem}.jpg"


def _boxes(path, number, annotation, class_names, options):
    notes = Notes()
    size = annotation.size if all(annotation.size) else annotated_images.size_of(path, notes)
    found = []
    for one in annotation.objects:
        if one.name not in class_names:
            notes.left_out[_OTHER_CLASS] += 1
            continue
        corners = boxes.fix(one.corners, size, notes, origin=options.box_origin)
        if corners is None:
            continue
        found.append(
            Box(corners, class_names.index(one.name), one.is_difficult, boxes.area_of(corners))
        )
    return Boxes(path, size, number, found, notes)


def _read_masks(options):
    """Returns the data set of the masks in SegmentationClass."""
    mask_folder = os.path.join(options.source, options.mask_folder or "SegmentationClass")
    if not folders.is_folder(mask_folder):
        raise DataError(f"{mask_folder} is not a folder: --task=segmentation reads its masks")
    image_folder = os.path.join(options.source, options.image_folder or "JPEGImages")
    listed = _listed(os.path.join(options.source, "ImageSets", _SETS[options.task]))
    images, left_out = {}, {}
    for split, stems in (listed or {"train": None}).items():
        images[split], left_out[split] = image_masks.pair(
            image_folder, mask_folder, options, None if stems is None else set(stems)
        )
    return image_masks.to_dataset(options, images, left_out)
