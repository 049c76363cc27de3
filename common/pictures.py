"""Encodes pictures as PNG."""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

_TILE = 56  # pixels, the least side of an image of a grid


def to_png(picture: Image.Image) -> bytes:
    """Returns a picture as the bytes of a PNG file."""
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    return encoded.getvalue()


def grid(images: np.ndarray, columns: int) -> Image.Image:
    """Returns a picture of images row by row, each enlarged to `_TILE` pixels at least.

    Args:
      images: uint8 `[n, height, width, 1 or 3]`.
      columns: images of a row.
    """
    from PIL import Image

    _, height, width, _ = images.shape
    factor = max(1, -(-_TILE // min(height, width)))
    tile = width * factor, height * factor
    rows = -(-len(images) // columns)
    picture = Image.new("RGB", (columns * (tile[0] + 1), rows * (tile[1] + 1)), "white")
    for i, pixels in enumerate(images):
        drawn = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        place = (i % columns * (tile[0] + 1), i // columns * (tile[1] + 1))
        picture.paste(drawn.resize(tile, Image.Resampling.NEAREST), place)
    return picture


def areas_to_png(values: np.ndarray) -> bytes:
    """Returns a grey PNG of uint8 `[height, width]` that has large areas of equal values.

    Without filters, and with repetitions of a byte as the only matches, it takes a fourth of the
    time of `to_png` and is smaller. Source: the PNG specification (W3C), sections 5 and 11.
    """
    height, width = values.shape
    rows = b"".join(b"\0" + row.tobytes() for row in values)  # the filter type, 0: none
    packer = zlib.compressobj(6, strategy=zlib.Z_RLE)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", packer.compress(rows) + packer.flush()),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
