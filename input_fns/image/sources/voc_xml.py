"""The XML of Pascal VOC: the boxes of one image.

A single object that is invalid is left out and counted.
"""

from __future__ import annotations

import codecs
import collections
import dataclasses
import re
from xml.etree import ElementTree
from xml.parsers import expat

from common.names import is_line, normalized, shown
from input_fns import DataError
from input_fns.convert import encodings

_MAX_DEPTH = 50
_MAX_SIDE = 2**31 - 1
NO_NAME, NO_BOX = "without a class name", "without a box"
MORE_BOXES = "boxes after the first one of an object"
BAD_CORNER = "with a corner that is not a number"
_DECLARED = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
# Python's names of encodings that expat reads itself, and its own; others are decoded by Python.
_EXPAT_ENCODINGS = {"utf-8": "utf-8", "iso8859-1": "iso-8859-1", "ascii": "us-ascii"}
# Windows writes more characters than those of the encoding that it declares.
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}


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
      left_out: `{reason: objects}` of invalid ones.
    """

    file_name: str
    size: tuple[int, int]
    objects: tuple[Object, ...]
    left_out: collections.Counter = dataclasses.field(default_factory=collections.Counter)


def parse(data: bytes, path: str, encoding: str = "") -> Annotation:
    """Returns the annotation in a file. Its objects may have parts, which are ignored.

    Args:
      data: content of the file.
      path: for errors.
      encoding: encoding of a file that declares none; "" for UTF-8.

    Raises:
      DataError: it is not the XML of VOC, or has a DOCTYPE.
    """
    root = _tree(data, path, encoding)
    if root.tag == "annotations":
        raise DataError(
            f"{path}: the root is <annotations>, which is CVAT's XML of many images. Export "
            "'Pascal VOC' or 'COCO'"
        )
    if root.tag != "annotation":
        raise DataError(f"{path}: the root is <{shown(root.tag)[:40]}> instead of <annotation>")
    file_name = normalized(root.findtext("filename") or "")
    left_out: collections.Counter = collections.Counter()
    found = [_object(element, left_out) for element in root.findall("object")]
    return Annotation(
        file_name if is_line(file_name) else "",
        _size(root.find("size")),
        tuple(one for one in found if one is not None),
        left_out,
    )


def _decoded(data, path, encoding):
    """Returns (content, its encoding for expat or None), decoded if expat cannot do it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data, None
    declared = _DECLARED.match(data.removeprefix(codecs.BOM_UTF8))
    name = declared[1].decode() if declared else encoding
    if not name:
        return data, None
    try:
        known = codecs.lookup(name).name
        if declared and known.startswith(("utf-16", "utf-32")):
            known = "utf-8"  # the declaration itself is of one byte per character
        if known in _EXPAT_ENCODINGS:
            return data, _EXPAT_ENCODINGS[known]
        try:
            text = data.decode(name)
        except UnicodeDecodeError:
            text = data.decode(_WIDER.get(known, name))
    except (LookupError, ValueError) as error:
        raise DataError(f"{path} is not XML of the encoding {name}: {error}") from error
    return text.encode(errors="replace"), "utf-8"


def _tree(data, path, encoding):
    """Returns the root.

    Entities can make a small file large ("billion laughs") or read other files; they need a
    DOCTYPE, which VOC does not have.
    """
    builder, depth = ElementTree.TreeBuilder(), 0
    data, encoding = _decoded(data, path, encoding)
    parser = expat.ParserCreate(encoding)

    def start(tag, attributes):
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise DataError(f"{path}, line {parser.CurrentLineNumber}: nested too deep")
        builder.start(tag, attributes)

    def end(tag):
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_):
        raise DataError(
            f"{path}, line {parser.CurrentLineNumber}: a DOCTYPE, which VOC does not have"
        )

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
        return builder.close()
    except (expat.ExpatError, ValueError, LookupError) as error:
        if isinstance(error, DataError):
            raise
        hint = "" if encoding or encodings.is_utf8(data) else ". It is not UTF-8: use --encoding"
        raise DataError(f"{path} is not XML: {error}{hint}") from error


def _size(element):
    """Returns height and width, (0, 0) if they are missing or invalid."""
    sides = [_number(element, name) for name in ("height", "width")] if element is not None else []
    is_known = len(sides) == 2 and all(
        side is not None and 0 < side <= _MAX_SIDE and side.is_integer() for side in sides
    )
    return tuple(map(int, sides)) if is_known else (0, 0)


def _object(element, left_out):
    """Returns an object; None if it is invalid, which is counted."""
    name = normalized(element.findtext("name") or "")
    box, *more = element.findall("bndbox") or [None]
    if not name or not is_line(name):
        left_out[NO_NAME] += 1
        return None
    if box is None:
        left_out[NO_BOX] += 1
        return None
    corners = tuple(_number(box, side) for side in ("ymin", "xmin", "ymax", "xmax"))
    if None in corners:
        left_out[BAD_CORNER] += 1
        return None
    if more:
        left_out[MORE_BOXES] += len(more)
    difficult = (element.findtext("difficult") or "").strip().lower()
    return Object(name, corners, difficult not in ("", "0", "0.0", "false", "unspecified"))


def _number(element, name):
    """Returns the number in a field, maybe not finite; None for anything else."""
    text = (element.findtext(name) or "").strip()
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None
