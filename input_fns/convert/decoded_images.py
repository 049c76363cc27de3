"""One image file: checked, turned upright, and kept encoded or made into pixels.

Imports no TensorFlow: this runs in worker processes, many at once.
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

# Pillow reads more, some by other programs: PostScript by Ghostscript. MPO is a kind of JPEG.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")
EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# What TensorFlow's decoder and Pillow read alike; other modes and formats are encoded anew.
_KEPT_MODES = {
    "JPEG": {"L", "RGB"},
    "PNG": {"1", "L", "LA", "P", "RGB", "RGBA"},
}
_MODES = {1: "L", 3: "RGB"}
_ORIENTATION = 0x0112  # the EXIF tag
_JPEG_QUALITY = 95
# A file of some kilobytes may have any number of pixels, and of zeros any number of bytes.
_MAX_PIXELS, _MAX_BYTES = 10**8, 2**29


@dataclasses.dataclass(frozen=True)
class Picture:
    """What is stored of an image file.

    Attributes:
      data: a JPEG or PNG file, or uint8 pixels.
      encoding: "jpeg", "png" or "raw".
      height, width: of the decoded image.
    """

    data: bytes
    encoding: str
    height: int
    width: int


def read(data: bytes, image_size: tuple[int, int] | None, channels: int) -> Picture:
    """Decodes an image file, all of it, so that a broken one is found here.

    Args:
      data: the file. EXIF orientation is applied; CMYK, 16-bit and other formats become RGB or grey
        of 8 bits. A JPEG or PNG that needs none of that is kept byte for byte.
      image_size: `(height, width)` to resize to, the whole image, or None to keep it encoded.
      channels: 1 or 3, of the pixels that `image_size` asks for.

    Raises:
      OSError, ValueError, SyntaxError: the file is broken, or no image.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata; broken pixels are errors
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise ValueError(f"it has {image.width} x {image.height} pixels, too many")
            image.load()
            # A photo with a second one behind it, as many phones take them: the first is a JPEG.
            file_format = "JPEG" if image.format == "MPO" else image.format
            turned = image.getexif().get(_ORIENTATION, 1) != 1
            upright = ImageOps.exif_transpose(image) if turned else image
    if image_size is not None:
        height, width = image_size
        pixels = _eight_bits(upright, _MODES[channels])
        if pixels.size != (width, height):
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
        return Picture(pixels.tobytes(), "raw", height, width)
    whole = file_format != "PNG" or _is_whole_png(data)
    new_format = "JPEG" if file_format == "JPEG" else "PNG"
    if turned or not whole or upright.mode not in _KEPT_MODES.get(file_format, ()):
        data = _encode(upright, new_format)
    return Picture(data, new_format.lower(), upright.height, upright.width)


def _is_whole_png(data):
    """Whether all chunks of a PNG have their checksums, up to its end, as TensorFlow wants them."""
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
) -> list[Picture | str]:
    """Reads files; in the place of a broken one stands the reason."""
    return [_read_one(name, image_size, channels) for name in names]


def _read_one(name, image_size, channels):
    try:
        data = _bytes_of(name)
        return read(data, image_size, channels) if data else "it is empty"
    # Pillow's decoders raise these and others of files that are broken in their own way.
    except Exception as error:
        text = str(error) or type(error).__name__
        return "it is no image" if "cannot identify image" in text else text


def _bytes_of(name):
    if "://" in name:
        import tensorflow as tf  # only where the file is no local one

        with tf.io.gfile.GFile(name, "rb") as file:
            return file.read()
    if os.path.exists(name) and not os.path.isfile(name):  # a pipe would never end
        raise OSError("it is not a file")
    with open(name, "rb") as file:
        return file.read(_MAX_BYTES)


def _eight_bits(image, mode):
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip and not scale
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image if image.mode == mode else image.convert(mode)


def _encode(image, file_format):
    grey = image.mode in ("1", "L", "LA") or image.mode.startswith("I")
    encoded = io.BytesIO()
    options = {"quality": _JPEG_QUALITY, "subsampling": 0} if file_format == "JPEG" else {}
    _eight_bits(image, "L" if grey else "RGB").save(encoded, file_format, **options)
    return encoded.getvalue()
