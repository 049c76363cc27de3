"""Images of more than 8 bits, of signed integers and of floats are scaled by their range."""

import io
import math
import pickle

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns import DataError
from input_fns.convert import writer
from input_fns.image.sources import decoded_images
from input_fns.image.sources.decoded_images import PixelRangeError
from tests.image_data import png, tiff

RANDOM = np.random.default_rng(0)
S_MIN, S_MAX, MIN, MAX = 340, 341, 280, 281


def numbers(low, high, dtype, *shape):
    """Returns random numbers that include `low` and `high` in the first two rows."""
    values = RANDOM.uniform(low, high, shape or (5, 7)).astype(dtype)
    values[0, 0], values[1, 1] = low, high
    return values


def scaled(values, low, high):
    """Returns what 8 bits should be, with exact arithmetic."""
    clipped = np.clip(np.asarray(values, object), low, high)
    return np.vectorize(lambda v: math.floor((v - low) * 255 / (high - low) + 0.5))(clipped)


def pixels(data, pixel_range=None):
    """Returns the pixels of the file that is stored."""
    stored = decoded_images.read(data, None, 3, pixel_range)
    assert stored.encoding == "png"
    return np.asarray(Image.open(io.BytesIO(stored.data)))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_all_channels_of_a_deep_png_are_rounded(session, channels):
    values = numbers(0, 65535, np.uint16, 5, 7, channels)
    data = png(values)
    np.testing.assert_array_equal(session.run(tf.io.decode_png(data, dtype=tf.uint16)), values)
    colors = values[..., 0] if channels < 3 else values[..., :3]
    np.testing.assert_array_equal(pixels(data), scaled(colors.astype(int), 0, 65535))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_an_interlaced_png(session, channels):
    values = numbers(0, 65535, np.uint16, 9, 11, channels)
    data = png(values, is_interlaced=True)
    np.testing.assert_array_equal(session.run(tf.io.decode_png(data, dtype=tf.uint16)), values)
    values = values[..., 0] if channels < 3 else values[..., :3]
    np.testing.assert_array_equal(pixels(data), scaled(values.astype(int), 0, 65535))


@pytest.mark.parametrize("bits", [8, 10, 12, 14])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_png_of_less_bits_needs_the_range(bits, channels):
    high = 2**bits - 1
    values = numbers(0, high, np.uint16, 5, 7, channels)
    if channels in (2, 4):
        values[..., -1] = 65535  # alpha has its own range
    example = rf"0 to {high}, and .* such as 0,{high} \({bits} bits\)( or 0,65535 \(16 bits\))?$"
    with pytest.raises(PixelRangeError, match=example):
        decoded_images.read(png(values), None, 3)
    colors = values[..., 0] if channels < 3 else values[..., :3]
    wanted = scaled(colors.astype(int), 0, high)
    np.testing.assert_array_equal(pixels(png(values), (0, high)), wanted)


@pytest.mark.parametrize("bits", [10, 12, 14])
def test_significant_bits_of_a_png(bits):
    values = numbers(0, 2**bits - 1, np.uint16)
    wanted = scaled(values.astype(int), 0, 2**bits - 1)
    np.testing.assert_array_equal(pixels(png(values, bits)), wanted)
    # As the specification of PNG says: in the highest bits.
    for high in (values << (16 - bits), values[2:3] << (16 - bits)):
        wanted = scaled(high.astype(int), 0, 65535)
        np.testing.assert_array_equal(pixels(png(high, bits)), wanted)


def test_a_dark_png_whose_significant_bits_are_the_highest():
    values = (RANDOM.integers(0, 100, (5, 7)) << 4).astype(np.uint16)
    np.testing.assert_array_equal(pixels(png(values, 12)), scaled(values.astype(int), 0, 65535))


def test_a_black_png_is_black():
    assert not pixels(png(np.zeros([3, 4], np.uint16))).any()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("uint16", 0, 65535),
        ("uint16", 100, 4000),
        ("int16", -1000, 3000),
        ("int16", -32768, 32767),
        ("int32", -70000, 2**31 - 1),
        ("int8", -128, 127),
        ("float32", 0.0, 1.0),
        ("float32", -2.5, 1e6),
    ],
)
def test_numbers_of_a_tiff(order, is_packed, dtype, low, high):
    values = numbers(low, high, dtype)
    exact = values.astype(object)
    data = tiff(values, order, is_packed)
    np.testing.assert_array_equal(pixels(data, (low, high)), scaled(exact, low, high))
    middle = (low + high) / 2
    np.testing.assert_array_equal(pixels(data, (low, middle)), scaled(exact, low, middle))


@pytest.mark.parametrize("is_packed", [False, True])
def test_unsigned_integers_of_32_bits(is_packed):
    values = numbers(0, 2**32 - 1, np.uint32)
    wanted = scaled(values.astype(object), 0, 2**32 - 1)
    np.testing.assert_array_equal(pixels(tiff(values, is_packed=is_packed)), wanted)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("channels", [3, 4])
def test_colors_of_a_deep_tiff(order, is_packed, channels):
    values = numbers(0, 65535, np.uint16, 5, 7, channels)
    wanted = scaled(values[..., :3].astype(int), 0, 65535)
    np.testing.assert_array_equal(pixels(tiff(values, order, is_packed)), wanted)


def test_white_is_zero():
    values = numbers(0, 65535, np.uint16)
    wanted = 255 - scaled(values.astype(int), 0, 65535)
    np.testing.assert_array_equal(pixels(tiff(values, photometric=0)), wanted)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "tags", "stated"),
    [
        ("uint16", 3, 4000, [(MAX, [4095])], (0, 4095)),
        ("uint16", 3, 4000, [(MIN, [1]), (MAX, [4095])], (1, 4095)),
        ("uint16", 3, 4000, [(S_MAX, [16383])], (0, 16383)),
        ("int16", -1000, 3000, [(S_MIN, [-1024]), (S_MAX, [3071])], (-1024, 3071)),
        ("float32", 0.25, 0.75, [(S_MIN, [0.0]), (S_MAX, [1.0])], (0, 1)),
        ("uint16", 3, 4000, [(50714, [2]), (50717, [4095])], (2, 4095)),
    ],
)
def test_a_range_that_a_tiff_states(dtype, low, high, tags, stated):
    values = numbers(low, high, dtype)
    wanted = scaled(values.astype(object), *stated)
    np.testing.assert_array_equal(pixels(tiff(values, tags=tags)), wanted)


def test_significant_bits_of_ome():
    description = '<OME><Image><Pixels ID="0" SignificantBits="12" Type="uint16"/></Image></OME>'
    values = numbers(0, 4000, np.uint16)
    file = io.BytesIO()
    Image.fromarray(values).save(file, "TIFF", description=description)
    np.testing.assert_array_equal(pixels(file.getvalue()), scaled(values.astype(int), 0, 4095))


@pytest.mark.parametrize(
    ("dtype", "low", "high", "tags", "message"),
    [
        ("uint16", 1, 255, [], r"unsigned .* 16 bits from 1 to 255, .* as 0,255 \(8 bits\)$"),
        ("uint32", 0, 70000, [], "unsigned integers of 32 bits from 0 to 70000"),
        ("int16", -1000, 3000, [], "signed .* from -1000 to 3000, .* as -1000,3000$"),
        ("int16", 0, 3000, [], "signed integers of 16 bits .* as 0,4095 "),
        ("int8", -5, 100, [], "signed integers of 8 bits from -5 to 100"),
        ("float32", 0.0, 1.0, [], "floats of 32 bits from 0 to 1, .* as 0,1$"),
        ("float32", 0.0, 254.5, [], "floats of 32 bits from 0 to 254.5, .* as 0,255 "),
        ("float32", 0.0, 1.0, [(S_MAX, [1.0])], "floats of 32 bits"),
        ("int16", 0, 99, [(MAX, [99])], "signed integers of 16 bits"),
        ("uint16", 0, 4000, [(MAX, [1000])], "are 0 to 4000, and it states the range 0 to 1000"),
    ],
)
def test_an_unknown_range_is_refused(dtype, low, high, tags, message):
    data = tiff(numbers(low, high, dtype), tags=tags)
    for size in (None, (3, 4)):
        with pytest.raises(PixelRangeError, match=message):
            decoded_images.read(data, size, 1)


def test_the_error_comes_out_of_a_worker_process():
    error = decoded_images.named(PixelRangeError("its pixels are odd", "0,9"), "a/x.tif")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error).startswith("a/x.tif: its pixels are odd. Set --pixel_range=LOW,HIGH")
    with pytest.raises(PixelRangeError):
        decoded_images.reason_of(error)


def test_nan_is_broken(tmp_path):
    (tmp_path / "x.tif").write_bytes(tiff(np.array([[0, np.nan, 1]], np.float32)))
    reason = decoded_images.read_file(str(tmp_path / "x.tif"), None, 1, (0, 1))
    assert reason == "1 of its pixels are NaN"


def test_infinite_values_are_clipped():
    values = np.array([[-np.inf, 0.2, np.inf]], np.float32)
    assert pixels(tiff(values), (0, 1)).tolist() == [[0, 51, 255]]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (tiff(np.zeros([3, 4], np.float64)), "it is a TIFF that Pillow does not read: floats of"),
        (tiff(np.zeros([3, 4, 3], np.float32)), "it is a TIFF that Pillow does not read"),
        (tiff(np.ones([3, 4, 3], np.uint16), planar=2), "separate planes of its colors, which is"),
    ],
)
def test_an_unsupported_tiff_is_broken_with_a_reason(tmp_path, data, reason):
    (tmp_path / "x.tif").write_bytes(data)
    found = decoded_images.read_file(str(tmp_path / "x.tif"), None, 3, (0, 1))
    assert reason in found


def test_the_range_does_not_change_images_of_eight_bits(photo, encode):
    data = encode(photo(9, 13), "PNG")
    assert decoded_images.read(data, None, 3, (0, 10)).data == data


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_deep_photo_stands_upright(orientation):
    values = numbers(0, 65535, np.uint16)
    exif = Image.Exif()
    exif[0x0112] = orientation
    for file_format in ("PNG", "TIFF"):
        file = io.BytesIO()
        options = {"exif": exif} if file_format == "PNG" else {"tiffinfo": {274: orientation}}
        Image.fromarray(values).save(file, file_format, **options)
        stored = decoded_images.read(file.getvalue(), None, 1)
        upright = np.rot90(scaled(values.astype(int), 0, 65535), {3: 2, 6: -1}[orientation])
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(stored.data))), upright)
        assert stored.orientation == orientation


def folder_of(tmp_path, files):
    for kind in ("a", "b"):
        (tmp_path / "in" / kind).mkdir(parents=True)
        for name, data in files.items():
            (tmp_path / "in" / kind / name).write_bytes(data)
    return tmp_path / "in"


def test_the_error_stops_the_conversion_and_names_the_file(prepare, tmp_path):
    values = numbers(0, 4095, np.uint16)
    folder = folder_of(tmp_path, {"x.png": png(values)})
    flags = ["--dataset=image_folder", f"--source={folder}", f"--data_dir={tmp_path}/data"]
    flags += ["--validation_fraction=0"]
    with pytest.raises(DataError, match=r"in/[ab]/x.png: its pixels .* Set --pixel_range=LOW,HIGH"):
        prepare(*flags)
    assert not (tmp_path / "data").exists()
    prepare(*flags, "--pixel_range=0,4095")


def test_files_that_state_different_ranges_are_refused(read, tmp_path):
    files = {
        f"{high}.tif": tiff(numbers(0, high, np.uint16), tags=[(MIN, [0]), (MAX, [high])])
        for high in (4000, 3000)
    }
    folder = folder_of(tmp_path, files)
    raw = read("image_folder", source=folder, validation_fraction=0)
    for shards in (1, 4):
        message = r"states that its values are 0 to .000, and .*/.000.tif 0"
        with pytest.raises(DataError, match=message):
            writer.write(raw, str(tmp_path / "data"), shards)
    options = {"validation_fraction": 0, "pixel_range": (0.0, 4095.0)}
    assert len(list(read("image_folder", source=folder, **options).splits["train"])) == 4
