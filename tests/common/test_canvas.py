"""Tests of texts in pictures: every letter is drawn, as itself or without its accent."""

import numpy as np
import pytest
from PIL import Image, ImageFont

from common import canvas


def pixels(text):
    image = Image.new("RGB", (90, 20), "white")
    canvas.Canvas(image).text((2, 2), text, "black")
    return np.asarray(image)


@pytest.mark.parametrize("has_fonts", [True, False])
def test_accents_are_no_empty_squares(monkeypatch, has_fonts):
    if not has_fonts:
        monkeypatch.setattr(canvas, "_fonts", list)
    text, font = canvas.fitting("Ölfaß")
    assert canvas._has(font, text)
    assert text in ("Ölfaß", "Olfa?")
    assert (pixels("Ö") != pixels("\U0010ffff")).any()


def test_ascii_has_pillows_own_font():
    text, font = canvas.fitting("digit 7")
    assert text == "digit 7"
    assert isinstance(font, type(ImageFont.load_default()))


def test_letters_that_no_font_has(monkeypatch):
    monkeypatch.setattr(canvas, "_fonts", list)
    text, _ = canvas.fitting("a \u4e2d\U00013000")
    assert text == "a ??"
    image = Image.new("RGB", (90, 20))
    assert canvas.Canvas(image).textbbox((0, 0), "\u4e2d") == canvas.Canvas(image).textbbox(
        (0, 0), "?"
    )
