"""Encodes pictures as PNG."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image


def to_png(picture: Image.Image) -> bytes:
    """Returns a picture as the bytes of a PNG file."""
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    return encoded.getvalue()
