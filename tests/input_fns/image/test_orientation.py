"""The orientation of a picture file, read by the serving graph, is Pillow's."""

import io
import struct
import warnings

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns.image import orientation
from tests.exif_files import (
    EXIF,
    XMP,
    app,
    by_pillow,
    chunk,
    jpeg,
    plain,
    png,
    tiff,
    xmp,
    xmp_chunk,
)


@pytest.fixture(scope="module")
def read():
    """Returns the orientation of a file: `read(file)`; of the graph that a server would run."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.string, [])
        yield session.make_callable(orientation.read(fed), [fed])


@pytest.fixture(scope="module")
def upright():
    """Returns the pixels of a file, upright: `upright(file)`."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.string, [])
        pixels = tf.io.decode_jpeg(fed, 3, dct_method="INTEGER_ACCURATE")
        turned = orientation.upright(pixels, orientation.read(fed))
        yield session.make_callable(turned, [fed])


@pytest.mark.parametrize("value", range(10))
def test_pixels_are_those_of_pillow(upright, value):
    files = {"jpeg XMP": jpeg(app(1, XMP + xmp(value))), "png XMP": png(xmp_chunk(value))}
    for order in ("II", "MM"):
        block = tiff(value, order)
        files[f"jpeg {order}"] = jpeg(app(1, EXIF + block))
        files[f"jpeg {order} of 32 bits"] = jpeg(app(1, EXIF + tiff(value, order, kind=4)))
        files[f"png {order}"] = png(chunk(b"eXIf", block))
        files[f"png {order}, last"] = png(chunk(b"eXIf", block), at=-12)
    for name, file in files.items():
        np.testing.assert_array_equal(upright(file), by_pillow(file), err_msg=name)


BLOCK = tiff(6)
OTHERS = ([(0x010F, 2, 4, 7), (0x0100, 4, 1, 7)], [(0x0128, 3, 1, 2)])
HEAD, BODY = BLOCK[:4], BLOCK[8:]
PROFILE = app(0, b"JFIF\0\1\1\1\0\1\0\1\0\0") + app(2, b"ICC_PROFILE\0\1\1" + b"Exif\0\0" * 50)


@pytest.mark.parametrize(
    "file",
    [
        jpeg(
            app(0, b"JFIF\0\1\1\1\0\1\0\1\0\0"), PROFILE, app(1, EXIF + tiff(8, "MM", 3, *OTHERS))
        ),
        jpeg(app(1, XMP + xmp(3)), app(1, EXIF + BLOCK)),
        jpeg(app(1, EXIF + BLOCK), app(1, XMP + xmp(3))),
        jpeg(app(1, XMP + xmp(3)), app(1, EXIF + BLOCK.replace(b"\x12\x01", b"\x13\x01"))),
        jpeg(app(1, EXIF), app(1, EXIF + BLOCK)),
        jpeg(app(1, EXIF + EXIF + BLOCK)),
        jpeg(app(2, jpeg(app(1, EXIF + BLOCK)))),  # of a thumbnail
        plain("jpeg").replace(b"\xff\xda", app(1, EXIF + BLOCK) + b"\xff\xda", 1),
        jpeg(b"\xff\xff", app(1, EXIF + BLOCK)),
        jpeg(app(1, EXIF + HEAD + struct.pack("<L", 40) + bytes(32) + BODY)),
        png(chunk(b"eXIf", tiff(3)), chunk(b"eXIf", BLOCK)),
        png(xmp_chunk(3), chunk(b"eXIf", BLOCK)),
        plain("png") + chunk(b"eXIf", BLOCK),
        png(chunk(b"tEXt", b"eXIf\0" + BLOCK)),
    ],
    ids=lambda file: None,
)
def test_the_block_that_pillow_reads_is_read(upright, file):
    np.testing.assert_array_equal(upright(file), by_pillow(file))


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"garbage garbage",
        BLOCK[:4],
        BLOCK[:8],
        BLOCK[:15],
        BLOCK[:18],
        HEAD + struct.pack("<L", 4000) + BODY,
        HEAD + struct.pack("<L", 2**32 - 1) + BODY,
        HEAD + struct.pack("<L", 2**31) + BODY,
        HEAD + struct.pack("<LH", 8, 0) + BODY[2:],
        BLOCK.replace(struct.pack("<HL", 3, 1), struct.pack("<HL", 3, 2**31)),
        BLOCK.replace(struct.pack("<HL", 3, 1), struct.pack("<HL", 77, 1)),
        tiff(65536 + 6, kind=4),
        tiff(2**31 + 6, kind=4),
    ],
)
@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_a_block_that_cannot_be_read_turns_nothing(read, kind, block):
    file = jpeg(app(1, EXIF + block)) if kind == "jpeg" else png(chunk(b"eXIf", block))
    assert read(file) == 1


@pytest.mark.parametrize("length", [0, 1, 2])
def test_a_segment_of_a_wrong_length_ends_nothing(read, length):
    assert read(jpeg(b"\xff\xe1" + struct.pack(">H", length), EXIF + BLOCK)) == 1


def test_a_directory_that_is_longer_than_its_block_is_read_to_its_end(read):
    assert read(jpeg(app(1, EXIF + BLOCK[:8] + b"\xff\xff" + BLOCK[10:]))) == 6


def test_no_bytes_make_it_fail(read):
    """Whatever Pillow can open has Pillow's orientation; of the rest there is one."""
    random = np.random.default_rng(3)
    files = [jpeg(app(1, XMP + xmp(3)), app(1, EXIF + tiff(6, "MM"))), png(chunk(b"eXIf", BLOCK))]
    for number in range(400):
        file = np.frombuffer(files[number % 2], np.uint8).copy()
        places = random.integers(2, 150, 1 + number % 5)
        file[places] = random.integers(0, 256, len(places))
        file = file[: random.integers(len(file))] if number % 7 == 0 else file
        found = read(file.tobytes())
        assert found == (_of_pillow(file.tobytes()) or found)
        assert 1 <= found <= 8


def _of_pillow(file):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(file))
            image.load()
            found = image.getexif().get(0x0112, 1)
    except Exception:
        return None
    return found if found in range(1, 9) else 1


@pytest.mark.slow
def test_too_many_segments_are_an_error(read):
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 65536 segments"):
        read(jpeg(b"\xff\xd0" * 70_000, app(1, EXIF + BLOCK)))
