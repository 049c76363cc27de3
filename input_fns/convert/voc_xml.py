"""The XML of Pascal VOC: the boxes of one image."""

from __future__ import annotations

import dataclasses
import math
from xml.etree import ElementTree
from xml.parsers import expat

from common.names import is_line, shown
from input_fns import DataError

_MAX_DEPTH = 50
_MAX_SIDE = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Object:
    """An object: class name, corners y0, x0, y1, x1 as in the file, whether it is difficult."""

    name: str
    corners: tuple[float, float, float, float]
    is_difficult: bool


@dataclasses.dataclass(frozen=True)
class Annotation:
    """The annotation of an image.

    Attributes:
      file_name: name of the image file; "" if unknown.
      size: height and width of the image; (0, 0) if unknown.
      objects: its objects.
    """

    file_name: str
    size: tuple[int, int]
    objects: tuple[Object, ...]


def parse(data: bytes, path: str) -> Annotation:
    """Returns the annotation in a file. Its objects may have parts, which are ignored.

    Args:
      data: content of the file.
      path: for errors.

    Raises:
      DataError: it is not the XML of VOC, has a DOCTYPE, or a field is missing or invalid.
    """
    root, lines = _tree(data, path)
    if root.tag != "annotation":
        raise DataError(f"{path}: the root is <{shown(root.tag)[:40]}> instead of <annotation>")
    file_name = (root.findtext("filename") or "").strip()
    size = root.find("size")
    return Annotation(
        file_name if is_line(file_name) else "",
        (0, 0) if size is None else _size(size, f"{path}, line {lines[size]}"),
        tuple(_object(found, f"{path}, line {lines[found]}") for found in root.findall("object")),
    )


def _tree(data, path):
    """Returns the root and `{element: line}`.

    Entities can make a small file large ("billion laughs") or read other files; they need a
    DOCTYPE, which VOC does not have.
    """
    builder, lines, depth = ElementTree.TreeBuilder(), {}, 0
    parser = expat.ParserCreate()

    def start(tag, attributes):
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise DataError(f"{path}, line {parser.CurrentLineNumber}: nested too deep")
        lines[builder.start(tag, attributes)] = parser.CurrentLineNumber

    def end(tag):
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_):
        raise DataError(f"{path}, line {parser.CurrentLineNumber}: a DOCTYPE, which VOC has not")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
        return builder.close(), lines
    except (expat.ExpatError, ValueError, LookupError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not XML: {error}") from error


def _size(element, where):
    return tuple(
        int(_number(element, name, where, high=_MAX_SIDE, default=0))
        for name in ("height", "width")
    )


def _object(element, where):
    name = (element.findtext("name") or "").strip()
    if not name or not is_line(name):
        raise DataError(f"{where}: an object without a <name>, or {name!a}")
    box = element.find("bndbox")
    if box is None:
        raise DataError(f"{where}: an object without a <bndbox>")
    corners = tuple(_number(box, side, where) for side in ("ymin", "xmin", "ymax", "xmax"))
    difficult = _number(element, "difficult", where, high=1, default=0)
    return Object(name, corners, bool(difficult))


def _number(element, name, where, high=None, default=None):
    """Returns the number in a field; with `high`, an integer in [0, high]."""
    text = (element.findtext(name) or "").strip()
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = None
    is_valid = value is not None and "_" not in text
    if high is not None and is_valid:
        is_valid = math.isfinite(value) and value == int(value) and 0 <= value <= high
    if not is_valid:
        wanted = "a number" if high is None else f"an integer from 0 to {high}"
        raise DataError(f"{where}: <{name}> is {text[:40]!a}, and must be {wanted}")
    return value
