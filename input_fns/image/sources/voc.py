"""Images with the XML of Pascal VOC: boxes for detection, or with palette masks.

    SOURCE/Annotations/*.xml         SOURCE/JPEGImages/*.jpg    SOURCE/ImageSets/Main/SPLIT.txt
    SOURCE/Annotations/SPLIT/*.xml   SOURCE/images/SPLIT/*.jpg
    SOURCE/SPLIT/*.xml               SOURCE/SPLIT/*.jpg
    SOURCE/*.xml                     SOURCE/*.jpg               one split

Masks of classes are in SegmentationClass, masks of objects in SegmentationObject; LabelMe's have
these names with PNG.

Corners are numbers of pixels, the first one 1, and the last one is a pixel of the box; with
--box_origin=0 they are continuous, and the first pixel reaches from 0 to 1.
"""

from __future__ import annotations

import collections
import itertools
import os

from common import folders
from common.constants import INSTANCES
from common.names import printable
from input_fns import DataError
from input_fns.convert import split_folders
from input_fns.convert.files import read_bytes
from input_fns.convert.find_files import Finder
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import (
    annotated_datasets,
    annotated_images,
    boxes,
    decoded_images,
    image_masks,
    instance_files,
    voc_files,
    voc_xml,
)
from input_fns.image.sources.annotated_images import Boxes
from input_fns.image.sources.boxes import Box, Notes

# Folders of masks; LabelMe writes arrays into those of the names that Pascal VOC uses.
_CLASS_MASKS = ("SegmentationClassPNG", "SegmentationClass")
_OBJECT_MASKS = ("SegmentationObjectPNG", "SegmentationObject")
_NO_XML, _NOT_LISTED = "images without XML", "images that no list of ImageSets has"


def read(options: Options) -> RawDataset:
    """Returns the data set of `options.task`, one of `common.constants.ANNOTATION_TASKS`.

    Raises:
      DataError: there is no annotation, or a class is unknown.
    """
    if options.task == "segmentation":
        return _read_classes(options)
    if options.task == INSTANCES:
        return _read_instances(options)
    left_out, unused_images = LeftOut(), {}
    parsed = {}
    for split, layout in voc_files.find(options, left_out).items():
        parsed[split], unused = _read_split(layout, options)
        unused_images.update(unused)
    class_names = _class_names(parsed, options)
    numbers = itertools.count(1)
    images = {
        split: [_boxes(path, next(numbers), one, class_names, options) for path, one in rows]
        for split, rows in parsed.items()
    }
    return annotated_datasets.with_boxes(
        options,
        class_names,
        images,
        category_ids=range(1, 1 + len(class_names)),
        image_ids=annotated_datasets.paths_below(options.source, images),
        left_out=left_out,
        left_out_paths=unused_images,
    )


def _class_names(parsed, options):
    """Returns --class_names, or the names of all objects, sorted."""
    whole = [one for rows in parsed.values() for _, one in rows if not isinstance(one, str)]
    names = sorted({found.name for one in whole for found in one.objects})
    if not names:
        problems = [one for rows in parsed.values() for _, one in rows if isinstance(one, str)]
        counts = sum((one.left_out for one in whole), collections.Counter())
        reasons = [f"{n} {reason}" for reason, n in counts.items()]
        hint = ""
        if problems:
            hint = ". Other folders are named with --source, --xml_folder and --image_folder"
        none = "no XML has an object with a class and a box, and an image"
        raise DataError(
            f"--source={options.source}: {'; '.join([none, *problems[:1], *reasons[:3]])}{hint}"
        )
    unknown = [name for name in options.class_names if name not in names]
    if unknown:
        raise DataError(
            f"--source={options.source} has no object of the class {unknown[0]}; its classes are: "
            f"{', '.join(names)}"
        )
    return options.class_names or tuple(names)


def _read_split(layout, options):
    """Returns `[(path of the image, annotation or problem)]`, and `{unused image: reason}`."""
    images = voc_files.by_stem(layout.images, decoded_images.EXTENSIONS, options)
    xml = voc_files.by_stem(layout.xml, (".xml",), options)
    finder = Finder(layout.images, decoded_images.EXTENSIONS)
    rows, owner = [], {}
    stems = xml if layout.stems is None else layout.stems
    # An image belongs to the XML of its name rather than to one that names it.
    for stem in sorted(stems, key=lambda stem: stem not in images):
        paths = xml.get(stem) or xml.get(os.path.splitext(stem)[0], [])
        one = _parse(paths, stem, layout, options)
        path = _image(images, stem, one, finder)
        if not path:
            path = os.path.join(layout.images, os.path.basename(stem))
            if not isinstance(one, str):
                one = f"{printable(paths[0])}: {_why_no_image(images, stem, one, layout)}"
        elif path in owner:
            one = f"{printable(paths[0] if paths else stem)} is of the same image as {owner[path]}"
        owner.setdefault(path, printable(paths[0]) if paths else printable(stem))
        rows.append((path, one))
    unused = {}
    for stem, paths in images.items():
        reason = _NOT_LISTED if layout.stems is not None and stem in xml else _NO_XML
        unused.update((path, reason) for path in paths if path not in owner)
    return rows, unused


def _parse(paths, stem, layout, options):
    """Returns the annotation of a stem, or why there is none."""
    if not paths:
        return f"{printable(layout.xml)} has no XML of '{printable(stem)}', which ImageSets lists"
    if len(paths) > 1:
        return f"{' and '.join(map(printable, paths))} have the same name"
    try:
        return voc_xml.parse(read_bytes(paths[0]), printable(paths[0]), options.encoding)
    except DataError as error:
        return str(error)


def _image(images, stem, annotation, finder):
    """Returns the path of the image of an XML, "" if it is not there or may be one of several."""
    paths = images.get(stem) or images.get(os.path.splitext(stem)[0], [])
    if len(paths) == 1:  # <filename> is often wrong: the name when it was annotated
        return paths[0]
    file_name = "" if isinstance(annotation, str) else annotation.file_name
    found = finder.find(file_name) or ""
    return found if not paths or found in paths else ""


def _why_no_image(images, stem, annotation, layout):
    paths = images.get(stem, ())
    if paths:
        return f"it may be of {' or of '.join(map(os.path.basename, map(printable, paths)))}"
    names = f"'{printable(stem)}' or '{printable(annotation.file_name)}'"
    return f"{printable(layout.images)} has no image {names}"


def _boxes(path, number, annotation, class_names, options):
    if isinstance(annotation, str):
        return Boxes(path, (0, 0), number, [], Notes(), annotation)
    notes = Notes(left_out=annotation.left_out.copy())
    size = annotation.size
    if not all(size):
        size = annotated_images.size_of(path, options, notes)
    found = []
    for one in annotation.objects:
        if one.name not in class_names:
            notes.left_out[boxes.OTHER_CLASS] += 1
            continue
        corners = boxes.fix(one.corners, size, notes, origin=options.box_origin)
        if corners is None:
            continue
        found.append(
            Box(corners, class_names.index(one.name), one.is_difficult, boxes.area_of(corners))
        )
    return Boxes(path, size, number, found, notes)


def _read_classes(options):
    """Returns the data set of the masks in SegmentationClass."""
    folder = _mask_folder(_CLASS_MASKS, options, options.mask_folder)
    return image_masks.to_dataset(options, *_pairs(options, folder))


def _read_instances(options):
    """Returns the data set of the objects in SegmentationObject."""
    objects = _mask_folder(_OBJECT_MASKS, options, options.mask_folder)
    classes = _mask_folder(_CLASS_MASKS, options)

    def class_mask_of(path):
        return os.path.join(classes, os.path.relpath(path, objects))

    return instance_files.to_dataset(options, *_pairs(options, objects), class_mask_of)


def _mask_folder(names, options, name=""):
    """Returns the folder `name` in --source, or the first of `names`."""
    folder = os.path.join(options.source, name or names[-1])
    if not name:
        lower = tuple(map(str.lower, names))
        folder = split_folders.child(options.source, lower, options) or folder
    if not folders.is_folder(folder):
        raise DataError(f"{folder} is not a folder: --task={options.task} reads its masks")
    return folder


def _pairs(options, mask_folder):
    """Returns `{split: [Item]}`, files without a partner, and lines of lists that occur twice."""
    source = options.source
    image_folder = split_folders.child(source, ("jpegimages", "images"), options)
    if options.image_folder or not image_folder:
        image_folder = os.path.join(source, options.image_folder or "JPEGImages")
    lists = split_folders.child(source, ("imagesets",), options)
    left_out = LeftOut()
    listed = voc_files.listed_names(lists, options, left_out) if lists else {}
    images, unused = {}, {}
    for split, stems in (listed or {"train": None}).items():
        images[split], paths = image_masks.pair(
            image_folder, mask_folder, options, None if stems is None else set(stems)
        )
        unused.update(paths)
    return images, unused, left_out
