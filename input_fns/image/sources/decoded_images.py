"""Checks an image file, applies its EXIF orientation, and stores it as a file or as pixels.

Imports no TensorFlow: it runs in many worker processes.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import struct
import warnings
import zlib

from PIL import Image, features

from common import names
from common.names import printable
from input_fns import DataError
from input_fns.convert import files
from input_fns.image.sources import deep_images
from input_fns.image.sources.deep_images import PixelRangeError

_HAS_AVIF = "avif" in features.modules and features.check("avif")  # since Pillow 11.3
_HAS_HEIF = importlib.util.find_spec("pillow_heif") is not None  # the extra heic
# Pillow reads more formats, some with other programs. MPO is a kind of JPEG.
FORMATS = (
    *("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF"),
    *(["AVIF"] if _HAS_AVIF else []),
)
EXTENSIONS = (
    *(".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
    *([".avif"] if _HAS_AVIF else []),
    *([".heic", ".heif"] if _HAS_HEIF else []),
)
# How a file of HEIF starts, after the length of its first box.
_HEIF = (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftypmsf1", b"ftyphevc", b"ftypheim", b"ftypheis")
# Modes that TensorFlow and Pillow decode alike; other modes and formats are re-encoded.
_KEPT_MODES = {
    "JPEG": {"L", "RGB"},
    "PNG": {"1", "L", "LA", "P", "RGB", "RGBA"},
}
_MODES = {1: "L", 3: "RGB"}
_ORIENTATION = 0x0112  # the EXIF tag
# Other values are invalid, and ignored as by most programs.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
TRANSPOSED = (5, 6, 7, 8)  # those that exchange height and width
_STARTS = {b"II*\0": "TIFF", b"MM\0*": "TIFF", b"II+\0": "BigTIFF", b"MM\0+": "BigTIFF"}
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
      stated_range: lowest and highest value according to the file, if it was scaled by them.
    """

    data: bytes
    encoding: str
    height: int
    width: int
    orientation: int = 1
    stated_range: tuple[float, float] | None = None


def read(
    data: bytes,
    image_size: tuple[int, int] | None,
    channels: int,
    pixel_range: tuple[float, float] | None = None,
) -> StoredImage:
    """Decodes a whole image file, which finds corrupted ones.

    Args:
      data: the file. EXIF orientation is applied; CMYK and other formats are converted to 8-bit RGB
        or grey, and values of another range are scaled. A JPEG or PNG that needs no change is
        stored byte for byte.
      image_size: `(height, width)` to resize the image to, or None to store a file.
      channels: 1 or 3, channels of the resized pixels.
      pixel_range: values of black and white of images that are not of 8 bits; None: as the file
        states.

    Raises:
      OSError, ValueError, SyntaxError: the file is corrupted or not an image.
      PixelRangeError: the range of the values is unknown.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about metadata; corrupted pixels are errors
        with _open(data) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise ValueError(f"it has {image.width} x {image.height} pixels, too many")
            # MPO: a JPEG followed by a second image, from many phones.
            file_format = "JPEG" if image.format == "MPO" else image.format
            levels = deep_images.levels_of(image, data)
            # New versions of Pillow turn a TIFF when they load it.
            tag = image.tag_v2.get(_ORIENTATION, 1) if file_format == "TIFF" else 1
            decoded = image
            if levels:
                decoded = deep_images.to_eight_bits(data, image, levels, pixel_range, FORMATS)
            size = image.size
            if image_size is None and not levels and _is_kept_jpeg(image):
                image.draft(None, (1, 1))
            image.load()
            left = image.getexif().get(_ORIENTATION, 1)
            tag = left if tag == 1 else tag
            is_turned = left in _TURNS
            upright = decoded.transpose(_TURNS[left]) if is_turned else decoded
    orientation = tag if tag in _TURNS else 1
    stated = levels.stated if levels and not pixel_range else None
    if image_size is not None:
        height, width = image_size
        pixels = _in_mode(upright, _MODES[channels])
        if pixels.size != (width, height):
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
        return StoredImage(pixels.tobytes(), "raw", height, width, orientation, stated)
    is_kept = not levels and not is_turned and upright.mode in _KEPT_MODES.get(file_format, ())
    new_format = "JPEG" if file_format == "JPEG" else "PNG"
    if not is_kept or (file_format == "PNG" and not _is_whole_png(data)):
        data = _encode(upright, new_format)
    width, height = size if is_kept else upright.size
    return StoredImage(data, new_format.lower(), height, width, orientation, stated)


def _is_kept_jpeg(image):
    """Whether a file is stored as it is: its pixels are decoded only to check it.

    An eighth of its height and width is enough. libjpeg reads all coefficients for it, and reports
    the same faults; it only leaves out most of the inverse transform.
    """
    is_turned = image.getexif().get(_ORIENTATION, 1) in _TURNS
    return image.format == "JPEG" and image.mode in _KEPT_MODES["JPEG"] and not is_turned


def _open(data):
    try:
        if data[4:12] in _HEIF:
            if not _HAS_HEIF:
                raise ValueError("it is HEIF, which the extra heic reads: pip install '.[heic]'")
            import pillow_heif  # an optional dependency

            pillow_heif.register_heif_opener()
            return Image.open(io.BytesIO(data), formats=("HEIF",))
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.UnidentifiedImageError as error:
        kind = next((kind for start, kind in _STARTS.items() if data[:4] == start), "")
        if not kind:
            raise
        raise ValueError(
            f"it is a {kind} that Pillow does not read: floats of 16 or 64 bits, colors of floats, "
            "or a broken header. Write it as PNG, or as TIFF of another kind"
        ) from error


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


def read_file(
    name: str,
    image_size: tuple[int, int] | None,
    channels: int,
    pixel_range: tuple[float, float] | None = None,
) -> StoredImage | str:
    """Reads a file, local, gs:// or in an archive; returns the reason if it is invalid.

    See `read` for the other arguments.

    Raises:
      PixelRangeError: the range of the values is unknown.
    """
    try:
        return read(bytes_of(name), image_size, channels, pixel_range)
    except PixelRangeError as error:
        raise named(error, name) from error
    except Exception as error:  # Pillow's decoders raise many types of errors.
        return reason_of(error)


def upright_size(name: str) -> tuple[int, int]:
    """Returns the height and width of an image file with its EXIF orientation; (0, 0) if invalid.

    Of a JPEG it reads the header only.
    """
    try:
        data = bytes_of(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _open(data) as image:
                if image.format in ("JPEG", "MPO"):
                    is_transposed = image.getexif().get(_ORIENTATION, 1) in TRANSPOSED
                    return image.size if is_transposed else (image.height, image.width)
        found = read(data, None, 3, (0, 1))
    except Exception:  # Pillow's decoders raise many types of errors.
        return 0, 0
    return found.height, found.width


def require_one_range(first: tuple[str, float, float], stated: tuple[str, float, float]) -> None:
    """Checks that two images state the same range of values.

    Some programs write the lowest and the highest value of each image's own pixels. Scaling by them
    would remove the differences in brightness between the images.

    Args:
      first: path, lowest and highest value of an image.
      stated: those of another.

    Raises:
      DataError: the ranges differ.
    """
    (path, low, high), (first_path, first_low, first_high) = stated, first
    if (low, high) != (first_low, first_high):
        raise DataError(
            f"{path} states that its values are {low:.9g} to {high:.9g}, and {first_path} "
            f"{first_low:.9g} to {first_high:.9g}, so these may be their own pixels. Set "
            "--pixel_range=LOW,HIGH to the values of black and white of all images"
        )


def named(error: PixelRangeError, name: str) -> PixelRangeError:
    """Returns the error with the name of the file."""
    return PixelRangeError(error.problem, error.example, printable(name))


def reason_of(error: Exception) -> str:
    """Returns why a file could not be read, in one line.

    Raises:
      PixelRangeError: `error` is one, which is about all images and not about this one.
    """
    if isinstance(error, PixelRangeError):
        raise error
    text = " ".join(str(error).split()) or type(error).__name__
    return "it is not an image" if "cannot identify image" in text else text


def bytes_of(name: str) -> bytes:
    """Returns the content of a file, local, gs:// or in an archive.

    Raises:
      OSError, ValueError: it is missing, empty, damaged in its archive, or not a file.
    """
    with files.open_file(name) as file:
        # A remote file allocates the requested size.
        data = file.read(-1 if names.is_remote(name) else _MAX_BYTES)
    if not data:
        raise ValueError("it is empty")
    return data


def _in_mode(image, mode):
    return image if image.mode == mode else image.convert(mode)


def _encode(image, file_format):
    encoded = io.BytesIO()
    options = {"quality": _JPEG_QUALITY, "subsampling": 0} if file_format == "JPEG" else {}
    mode = "L" if image.mode in ("1", "L", "LA") else "RGB"
    _in_mode(image, mode).save(encoded, file_format, exif=b"", **options)  # it is upright
    return encoded.getvalue()
