"""Small files in the real formats, and what a converter makes of them."""

import io

import numpy as np
import pytest
from PIL import Image

from input_fns import convert
from input_fns.convert.options import Options
from input_fns.convert.source import Broken


@pytest.fixture(scope="session")
def photo():
    """A picture without hard edges, which JPEG keeps well: `photo(height, width, seed=0)`."""

    def make(height, width, seed=0):
        random = np.random.default_rng(seed)
        small = Image.fromarray(random.integers(0, 256, [4, 4, 3], dtype=np.uint8))
        return small.resize((width, height), Image.Resampling.BICUBIC)

    return make


@pytest.fixture(scope="session")
def encode():
    """Bytes of an image file: `encode(image, "JPEG", quality=90)`."""

    def to_bytes(image, file_format, **options):
        encoded = io.BytesIO()
        image.save(encoded, file_format, **options)
        return encoded.getvalue()

    return to_bytes


@pytest.fixture
def folder(tmp_path, photo, encode):
    """A folder of two classes: 11 JPEGs of "cat" and 7 PNGs of "dog"."""
    for name, count, file_format in (("cat", 11, "JPEG"), ("dog", 7, "PNG")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(count):
            data = encode(photo(9, 13, seed=i), file_format)
            (tmp_path / "photos" / name / f"{i:02d}.{file_format.lower()}").write_bytes(data)
    return tmp_path / "photos"


@pytest.fixture
def read():
    """Reads a source as prepare_data.py does: `read("image_folder", source=folder)`."""

    def read_source(dataset, **options):
        options = {key: str(v) if hasattr(v, "parts") else v for key, v in options.items()}
        return convert.read(Options(dataset, **options))

    return read_source


@pytest.fixture
def rows():
    """Parts a split into its good rows and its broken ones."""

    def split_up(split):
        found = list(split)
        broken = [row for row in found if isinstance(row, Broken)]
        return [row for row in found if not isinstance(row, Broken)], broken

    return split_up
