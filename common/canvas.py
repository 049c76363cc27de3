"""Draws texts of any language into pictures.

Pillow's own font has ASCII letters and few others; what it lacks it draws as empty squares.
"""

from __future__ import annotations

import functools
import unicodedata

from PIL import ImageDraw, ImageFont

# Fonts of Linux, macOS and Windows with the letters of many languages, found by their file names.
_FILES = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "FreeSans.ttf"),
    *("NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "Arial.ttf", "msgothic.ttc"),
)
_SIZE = 10  # that of Pillow's own font
_MISSING = "\U0010ffff"  # no character: a font draws what it lacks in the same way


class Canvas(ImageDraw.ImageDraw):
    """A drawing whose texts have letters of any language, as far as this machine has a font."""

    def text(self, xy, text, *args, **kwargs):
        """Draws a text; see `PIL.ImageDraw.ImageDraw.text`."""
        text, self.font = fitting(text)
        super().text(xy, text, *args, **kwargs)

    def textbbox(self, xy, text, *args, **kwargs):
        """Returns the place of a text; see `PIL.ImageDraw.ImageDraw.textbbox`."""
        text, self.font = fitting(text)
        return super().textbbox(xy, text, *args, **kwargs)


def fitting(text: str) -> tuple[str, ImageFont.ImageFont | ImageFont.FreeTypeFont]:
    """Returns (text, font) to draw a text: it, or else its letters without accents.

    What no font has becomes "?".
    """
    own = _own_font()
    if text.isascii():
        return text, own
    for font in (own, *_fonts()):
        if _has(font, text):
            return text, font
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return "".join(c if c.isascii() else "?" for c in plain), own


@functools.cache
def _own_font():
    return ImageFont.load_default()


@functools.cache
def _fonts():
    """Returns the fonts of this machine."""
    found = []
    for name in _FILES:
        try:
            found.append(ImageFont.truetype(name, _SIZE))
        except (OSError, ImportError):  # no such file, or Pillow without FreeType
            continue
    return found


def _has(font, text):
    try:
        missing = bytes(font.getmask(_MISSING))
        return all(c.isspace() or bytes(font.getmask(c)) != missing for c in set(text))
    except UnicodeEncodeError:  # Pillow's own font without FreeType
        return False
