"""Image files in every EXIF orientation, to check the image_bytes signature of an export."""

from __future__ import annotations

import io
import struct

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

_ORIENTATION = 0x0112  # EXIF tag
_MAX_SIZE = (256, 256)  # encoding a photo 28 times would take seconds


def rotate(image_file: bytes) -> tuple[list[bytes], list[bytes]]:
    """Returns copies of an image file in the EXIF orientations 2 to 8, and their upright pixels.

    Args:
      image_file: JPEG or PNG, grayscale or color; scaled down to at most 256 x 256.

    Returns:
      JPEG and PNG files with an orientation, and a PNG file of the upright pixels for each.
    """
    with Image.open(io.BytesIO(image_file)) as image:
        image = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    image.thumbnail(_MAX_SIZE)
    rotated = [
        (_encode(image, kind, exif=_exif(orientation, byte_order)), orientation)
        for kind in ("JPEG", "PNG")
        for orientation, byte_order in zip(range(2, 9), "<>" * 4)
    ]
    files = [file for file, _ in rotated]
    upright = []
    for pixels, (_, orientation) in zip(_decode(files), rotated):
        image = Image.fromarray(np.squeeze(pixels, -1) if pixels.shape[-1] == 1 else pixels)
        image.getexif()[_ORIENTATION] = orientation
        upright.append(_encode(ImageOps.exif_transpose(image), "PNG"))
    return files, upright


def _exif(orientation, byte_order):
    mark = {"<": b"II", ">": b"MM"}[byte_order]
    entry = struct.pack(f"{byte_order}HHLHH", _ORIENTATION, 3, 1, orientation, 0)
    header = mark + struct.pack(f"{byte_order}HLH", 42, 8, 1)
    return b"Exif\0\0" + header + entry + bytes(4)


def _encode(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _decode(files):
    """Decodes like the SavedModel, without the orientation: Pillow may use another JPEG decoder."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        file_tensor = tf.compat.v1.placeholder(tf.string, [])
        decode = tf.io.decode_jpeg(file_tensor, dct_method="INTEGER_ACCURATE")
        return [session.run(decode, {file_tensor: file}) for file in files]
