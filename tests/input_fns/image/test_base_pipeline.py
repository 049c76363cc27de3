"""The image_bytes signature feeds the model what --input does, of any file that both read."""

import functools
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns.core import serving
from input_fns.dataset_info import DatasetInfo, Feature, splits_without_files
from input_fns.image.image_pipeline import ImagePipeline
from input_fns.image.sources import decoded_images
from tests.exif_files import EXIF, app, chunk, jpeg, plain, png, tiff
from tests.marks import slow

SMOOTH = np.asarray(
    Image.fromarray(np.random.default_rng(1).integers(0, 256, [5, 5, 3], dtype=np.uint8)).resize(
        (52, 33), Image.Resampling.BICUBIC
    )
)


def pipeline_of(feature):
    return ImagePipeline(
        DatasetInfo("pictures", "", {"image": feature}, ("a",), splits_without_files({})), (14, 20)
    )


PIPELINES = {
    "encoded": pipeline_of(Feature("image", "uint8", (None, None, 3))),
    "raw": pipeline_of(Feature("raw", "uint8", (20, 24, 3))),
    "grey": pipeline_of(Feature("raw", "uint8", (20, 24, 1))),
}


@functools.cache
def serving_graph(kind):
    """Returns a session, and in its graph files that a server gets, and what the model sees."""
    with tf.Graph().as_default() as graph:
        files = tf.compat.v1.placeholder(tf.string, [None])
        receiver = PIPELINES[kind].receivers()[serving.IMAGE_BYTES]
        image = receiver.features({"image_bytes": files})["image"]
        return tf.compat.v1.Session(graph=graph), files, image


def served(kind, *files):
    """What the model sees of files that a server gets."""
    session, given, image = serving_graph(kind)
    return session.run(image, {given: files})


def predicted(session, kind, file):
    """What it sees of a file that --input names."""
    pipeline = PIPELINES[kind]
    stored = pipeline.data.features["image"]
    size = stored.shape[:2] if stored.encoding == "raw" else None
    data = decoded_images.read(file, size, stored.shape[-1]).data
    batches = pipeline.files_input_fn(lambda: iter([data]))({"batch_size": 1})
    return session.run(tf.compat.v1.data.make_one_shot_iterator(batches).get_next())["image"][0]


def encoded(mode, kind, **options):
    file = io.BytesIO()
    Image.fromarray(SMOOTH).convert(mode).save(file, kind, **options)
    return file.getvalue()


SIXTEEN_BITS = io.BytesIO()
Image.fromarray(SMOOTH[..., 0].astype(np.uint16) * 257).save(SIXTEEN_BITS, "PNG")
FILES = {
    "jpeg": plain("jpeg", SMOOTH),
    "turned jpeg": jpeg(app(1, EXIF + tiff(6, "MM")), file=plain("jpeg", SMOOTH)),
    "mirrored jpeg": jpeg(app(1, EXIF + tiff(5)), file=plain("jpeg", SMOOTH)),
    "turned png": png(chunk(b"eXIf", tiff(8))),
    "grey jpeg": encoded("L", "JPEG", quality=95),
    "progressive jpeg": encoded("RGB", "JPEG", quality=95, progressive=True),
    "cmyk jpeg": encoded("CMYK", "JPEG", quality=95),
    "png of 16 bits": SIXTEEN_BITS.getvalue(),
    "png of 1 bit": encoded("1", "PNG"),
    "palette png with a transparent color": encoded("P", "PNG", transparency=3),
    "png with alpha": encoded("RGBA", "PNG"),
}


# One of each kind is quick enough for every run.
QUICK = ["encoded-turned jpeg", "encoded-cmyk jpeg", "raw-turned png", "grey-png of 16 bits"]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name) if f"{kind}-{name}" in QUICK else slow(kind, name)
        for kind in PIPELINES
        for name in FILES
    ],
)
def test_a_served_picture_is_seen_as_a_predicted_one(session, kind, name):
    if (kind, name) == ("grey", "cmyk jpeg"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid JPEG"):
            served(kind, FILES[name])
        return
    (found,) = served(kind, FILES[name])
    # Turned JPEGs are stored as new ones; decoders and resizers differ by a level each.
    difference = np.abs(found.astype(int) - predicted(session, kind, FILES[name]))
    assert difference.max() <= (12 if name.endswith("jpeg") else 2)
    assert difference.mean() < 1.5


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (encoded("P", "GIF"), "neither a JPEG nor a PNG"),
        slow(encoded("P", "GIF")[:-30], "neither a JPEG nor a PNG"),
        slow(encoded("RGB", "BMP"), "neither a JPEG nor a PNG"),
        slow(b"RIFF\0\0\0\0WEBPVP8 ", "neither a JPEG nor a PNG"),
        slow(b"", "neither a JPEG nor a PNG"),
        (plain("jpeg", SMOOTH)[:-2], "Invalid JPEG"),
        slow(plain("jpeg", SMOOTH)[:-200], "Invalid JPEG"),
        slow(encoded("RGB", "JPEG", progressive=True)[:-200], "Invalid JPEG"),
        (plain("png", SMOOTH)[:-20], "Invalid PNG"),
    ],
    ids=lambda value: None,
)
def test_a_file_that_is_no_whole_jpeg_or_png_is_an_error(file, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served("encoded", plain("png"), file)
