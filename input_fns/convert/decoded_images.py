"""Checks an image file, applies its EXIF orientation, and stores it as a file or as pixels.

Imports no TensorFlow: it runs in many worker processes.
"""

from __future__ import annotations

import dataclasses
import io
import os
import struct
import warnings
import zlib

import numpy as np
from PIL import Image, ImageOps

# Pillow reads more formats, some with other programs. MPO is a kind of JPEG.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")
EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# Modes that TensorFlow and Pillow decode alike; other modes and formats are re-encoded.
_KEPT_MODES = {
    "JPEG": {"L", "RGB"},
    "PNG": {"1", "L", "LA", "P", "RGB", "RGBA"},
}
_MODES = {1: "L", 3: "RGB"}
_ORIENTATION = 0x0112  # the EXIF tag
_JPEG_QUALITY = 95
# Limits: a small or sparse file may have any number of pixels and bytes.
_MAX_PIXELS, _MAX_BYTES = 10**8, 2**29


@dataclasses.dataclass(frozen=True)
class StoredImage:
    """An image as it is stored.

    Attributes:
      data: a JPEG or PNG file, or uint8 pixels.
      encoding: "jpeg", "png" or "raw".
      height, width: size of the decoded image.
      orientation: EXIF orientation that was applied, 1 (none) to 8.
    """

    data: bytes
    encoding: str
    height: int
    width: int
    orientation: int = 1


def read(data: bytes, image_size: tuple[int, int] | None, channels: int) -> StoredImage:
    """Decodes a whole image file, which finds corrupted ones.

    Args:
      data: the file. EXIF orientation is applied; CMYK, 16-bit and other formats are converted to
        8-bit RGB or grey. A JPEG or PNG that needs no change is stored byte for byte.
      image_size: `(height, width)` to resize the image to, or None to store a file.
      channels: 1 or 3, channels of the resized pixels.

    Raises:
      OSError, ValueError, SyntaxError: the file is corrupted or not an image.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about metadata; corrupted pixels are errors
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise ValueError(f"it has {image.width} x {image.height} pixels, too many")
            image.load()
            # MPO: a JPEG followed by a second image, from many phones.
            file_format = "JPEG" if image.format == "MPO" else image.format
            tag = image.getexif().get(_ORIENTATION, 1)
            turned = tag != 1
            upright = ImageOps.exif_transpose(image) if turned else image
    orientation = tag if tag in range(2, 9) else 1
    if image_size is not None:
        height, width = image_size
        pixels = _eight_bits(upright, _MODES[channels])
        if pixels.size != (width, height):
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
        return StoredImage(pixels.tobytes(), "raw", height, width, orientation)
    whole = file_format != "PNG" or _is_whole_png(data)
    new_format = "JPEG" if file_format == "JPEG" else "PNG"
    if turned or not whole or upright.mode not in _KEPT_MODES.get(file_format, ()):
        data = _encode(upright, new_format)
    return StoredImage(data, new_format.lower(), upright.height, upright.width, orientation)


def _is_whole_png(data):
    """Whether all chunks of a PNG have valid checksums; TensorFlow requires it."""
    place = 8
    while len(data) - place >= 12:
        (size,) = struct.unpack_from(">I", data, place)
        content = memoryview(data)[place + 4 : place + 8 + size]
        if data[place + 8 + size : place + 12 + size] != zlib.crc32(content).to_bytes(4, "big"):
            return False
        if content[:4] == b"IEND":
            return True
        place += 12 + size
    return False


def read_many(
    names: list[str], image_size: tuple[int, int] | None, channels: int
) -> list[StoredImage | str]:
    """Reads files; returns the reason instead of the image if a file is invalid."""
    return [_read_one(name, image_size, channels) for name in names]


def _read_one(name, image_size, channels):
    try:
        return read(bytes_of(name), image_size, channels)
    # Pillow's decoders raise many types of errors.
    except Exception as error:
        return reason_of(error)


def reason_of(error: Exception) -> str:
    """Returns why a file could not be read, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "it is not an image" if "cannot identify image" in text else text


def bytes_of(name: str) -> bytes:
    """Returns the content of a file, local or gs://.

    Raises:
      OSError, ValueError: it is missing, empty or not a file.
    """
    data = _read_bytes(name)
    if not data:
        raise ValueError("it is empty")
    return data


def _read_bytes(name):
    if "://" in name:
        import tensorflow as tf  # for remote files only

        with tf.io.gfile.GFile(name, "rb") as file:
            return file.read()
    if os.path.exists(name) and not os.path.isfile(name):  # such as a pipe, which never ends
        raise OSError("it is not a file")
    with open(name, "rb") as file:
        return file.read(_MAX_BYTES)


def _eight_bits(image, mode):
    if image.mode.startswith("I"):  # 16 bits: Pillow clips instead of scaling
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image if image.mode == mode else image.convert(mode)


def _encode(image, file_format):
    grey = image.mode in ("1", "L", "LA") or image.mode.startswith("I")
    encoded = io.BytesIO()
    options = {"quality": _JPEG_QUALITY, "subsampling": 0} if file_format == "JPEG" else {}
    _eight_bits(image, "L" if grey else "RGB").save(encoded, file_format, **options)
    return encoded.getvalue()
