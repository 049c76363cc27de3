"""Builds JPEG and PNG files with EXIF and XMP orientations, byte by byte."""

import io
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

EXIF, XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
# Not square, so that an image that is not rotated has the wrong shape.
PIXELS = np.random.default_rng(0).integers(0, 256, [7, 13, 3], dtype=np.uint8)


def plain(kind, pixels=PIXELS):
    """Returns a JPEG or PNG file without an orientation."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **({"quality": 95} if kind == "jpeg" else {}))
    return file.getvalue()


def tiff(orientation, order="II", kind=3, before=(), after=()):
    """Returns an EXIF block with one directory of entries `(tag, type, count, value)`."""
    sign = "<" if order == "II" else ">"
    entries = [*before, (0x0112, kind, 1, orientation), *after]
    rows = []
    for tag, kind_of_entry, number, value in entries:
        values = f"{sign}HHL" + ("HH" if kind_of_entry in (3, 8) else "L")
        given = (value, 0) if kind_of_entry in (3, 8) else (value,)
        rows.append(struct.pack(values, tag, kind_of_entry, number, *given))
    return order.encode() + struct.pack(f"{sign}HLH", 42, 8, len(rows)) + b"".join(rows) + bytes(4)


def xmp(orientation):
    """Returns an XMP block."""
    return b'<x:xmpmeta><rdf:Description tiff:Orientation="%d"/></x:xmpmeta>' % orientation


def app(number, data):
    """Returns an APP segment of a JPEG."""
    return bytes([0xFF, 0xE0 + number]) + struct.pack(">H", len(data) + 2) + data


def chunk(kind, data):
    """Returns a chunk of a PNG."""
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def jpeg(*segments, file=None):
    """Returns a JPEG that starts with these segments."""
    file = file or plain("jpeg")
    return file[:2] + b"".join(segments) + file[2:]


def png(*chunks, at=33):
    """Returns a PNG with these chunks after its header, or at byte `at`."""
    file = plain("png")
    return file[:at] + b"".join(chunks) + file[at:]


def xmp_chunk(orientation):
    """Returns a PNG chunk with an XMP block."""
    return chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(orientation))


def by_pillow(file):
    """Returns the upright pixels of a file according to Pillow."""
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB"))
