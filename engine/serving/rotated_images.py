"""Files of a picture with every EXIF orientation, for the check of image_bytes in an export."""

from __future__ import annotations

import io
import struct

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

_ORIENTATION = 0x0112
_MOST_PIXELS = (256, 256)  # encoding a photo 28 times would take seconds


def pairs(picture: bytes) -> tuple[list[bytes], list[bytes]]:
    """Returns files with an orientation, and for each a PNG file of the upright pixels.

    Args:
      picture: a JPEG or PNG file, in grey or color; larger ones are made smaller first.
    """
    with Image.open(io.BytesIO(picture)) as image:
        image = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    image.thumbnail(_MOST_PIXELS)
    turned = [
        (_encoded(image, kind, exif=_exif(orientation, order)), orientation)
        for kind in ("JPEG", "PNG")
        for orientation, order in zip(range(2, 9), "<>" * 4)
    ]
    files = [file for file, _ in turned]
    upright = []
    for pixels, (_, orientation) in zip(_decoded(files), turned):
        image = Image.fromarray(np.squeeze(pixels, -1) if pixels.shape[-1] == 1 else pixels)
        image.getexif()[_ORIENTATION] = orientation
        upright.append(_encoded(ImageOps.exif_transpose(image), "PNG"))
    return files, upright


def _exif(orientation, order):
    name = {"<": b"II", ">": b"MM"}[order]
    entry = struct.pack(f"{order}HHLHH", _ORIENTATION, 3, 1, orientation, 0)
    return b"Exif\0\0" + name + struct.pack(f"{order}HLH", 42, 8, 1) + entry + bytes(4)


def _encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _decoded(files):
    """Decodes as the SavedModel does, but for the orientation: Pillow may have another JPEG."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.string, [])
        decode = tf.io.decode_jpeg(fed, dct_method="INTEGER_ACCURATE")
        return [session.run(decode, {fed: file}) for file in files]
