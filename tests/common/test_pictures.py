"""PNG files."""

import io

import numpy as np
import pytest
from PIL import Image

from common import pictures


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (3, 300)])
def test_a_png_of_areas_has_the_values(size):
    values = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    with Image.open(io.BytesIO(pictures.areas_to_png(values))) as image:
        image.load()
        assert image.mode == "L"
        np.testing.assert_array_equal(np.asarray(image), values)
