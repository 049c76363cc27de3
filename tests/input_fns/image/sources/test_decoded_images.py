"""One image file: kept as it is where that will do, and made to do where not."""

import io
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns.image.sources import decoded_images

KEPT, SIZE = None, (5, 6)


def pixels_of(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


@pytest.mark.parametrize(
    ("file_format", "mode"),
    [
        ("JPEG", "RGB"),
        ("JPEG", "L"),
        *(("PNG", mode) for mode in ("RGB", "RGBA", "L", "LA", "P", "1")),
    ],
)
def test_what_tensorflow_reads_as_pillow_does_is_kept(session, photo, encode, file_format, mode):
    data = encode(photo(9, 13).convert(mode), file_format)
    kept = decoded_images.read(data, KEPT, 3)
    assert kept == decoded_images.StoredImage(data, file_format.lower(), 9, 13)
    decoded = session.run(tf.io.decode_image(kept.data, channels=3, expand_animations=False))
    np.testing.assert_allclose(decoded, pixels_of(data), atol=3)  # two JPEG decoders


def test_a_phone_s_jpeg_with_a_second_picture_is_kept(session, photo):
    file = io.BytesIO()
    photo(9, 13).save(file, "MPO", save_all=True, append_images=[photo(9, 13, seed=2)])
    kept = decoded_images.read(file.getvalue(), KEPT, 3)
    assert kept == decoded_images.StoredImage(file.getvalue(), "jpeg", 9, 13)
    decoded = session.run(tf.io.decode_image(kept.data, channels=3))
    np.testing.assert_allclose(decoded, pixels_of(kept.data), atol=3)


@pytest.mark.parametrize(
    ("file_format", "mode", "becomes"),
    [
        ("JPEG", "CMYK", b"\xff\xd8\xff"),
        ("WEBP", "RGB", b"\x89PNG"),
        ("BMP", "RGB", b"\x89PNG"),
        ("GIF", "P", b"\x89PNG"),
        ("TIFF", "CMYK", b"\x89PNG"),
    ],
)
def test_other_modes_and_formats_are_encoded_anew(
    session, photo, encode, file_format, mode, becomes
):
    options = {"lossless": True} if file_format == "WEBP" else {}
    data = encode(photo(36, 52).convert(mode), file_format, **options)
    made = decoded_images.read(data, KEPT, 3)
    assert made.data.startswith(becomes)
    decoded = session.run(tf.io.decode_image(made.data, channels=3, expand_animations=False))
    assert decoded.shape == (36, 52, 3)
    # A JPEG becomes one of quality 95, everything else stays as it is.
    np.testing.assert_allclose(decoded, pixels_of(data), atol=10 if file_format == "JPEG" else 0)


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("image_size", [KEPT, (32, 32)])
def test_a_turned_photo_stands_upright(photo, encode, orientation, image_size):
    upright = photo(32, 32)
    # How a camera that was held otherwise stores the same view: the inverse of each turn.
    turn = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(
        upright.transpose(Image.Transpose(turn)), "JPEG", exif=exif, quality=100, subsampling=0
    )
    made = decoded_images.read(data, image_size, 3)
    if image_size is None:
        assert Image.open(io.BytesIO(made.data)).getexif().get(0x0112, 1) == 1
        pixels = pixels_of(made.data)
    else:
        pixels = np.frombuffer(made.data, np.uint8).reshape(32, 32, 3).astype(int)
    np.testing.assert_allclose(pixels, np.asarray(upright).astype(int), atol=12)


@pytest.mark.parametrize("orientation", [0, 1, 9, 42, 65535])
def test_an_invalid_orientation_is_ignored(photo, encode, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(photo(9, 13), "JPEG", exif=exif)
    assert decoded_images.read(data, KEPT, 3) == decoded_images.StoredImage(data, "jpeg", 9, 13)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_size_makes_pixels(photo, encode, channels):
    made = decoded_images.read(encode(photo(9, 13), "PNG"), SIZE, channels)
    mode = {1: "L", 3: "RGB"}[channels]
    wanted = photo(9, 13).convert(mode).resize((6, 5), Image.Resampling.BILINEAR)
    assert (made.height, made.width) == SIZE
    assert made.data == wanted.tobytes()


def test_sixteen_bits_are_scaled_and_not_clipped(session, encode):
    deep = (np.arange(30).reshape(5, 6) * 2184).astype(np.uint16)
    data = encode(Image.fromarray(deep), "PNG")
    shallow = np.round(deep / 257)
    made = decoded_images.read(data, SIZE, 1)
    np.testing.assert_array_equal(np.frombuffer(made.data, np.uint8).reshape(5, 6), shallow)
    kept = decoded_images.read(data, KEPT, 3).data
    decoded = session.run(tf.io.decode_image(kept, channels=1, expand_animations=False))
    np.testing.assert_array_equal(decoded[..., 0], shallow)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
@pytest.mark.parametrize("keep", [0.2, 0.7, 0.95])
def test_a_file_that_is_cut_off_is_broken(photo, encode, file_format, keep):
    data = encode(photo(90, 130), file_format)
    with pytest.raises((OSError, ValueError, SyntaxError)):
        decoded_images.read(data[: int(len(data) * keep)], KEPT, 3)


def damaged(data, random):
    """A file with a changed byte, without some bytes, or without its end."""
    place, kind = random.integers(2, len(data)), random.integers(3)
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + data[place + random.integers(1, 40) :]
    return data[:place] + bytes([random.integers(256)]) + data[place + 1 :]


def is_valid(read):
    try:
        read()
    except Exception:  # Pillow's decoders raise many types of errors.
        return False
    return True


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_is_checked_as_by_decoding_all_of_it(photo, progressive):
    encoded, random = io.BytesIO(), np.random.default_rng(0)
    photo(90, 130).save(encoded, "JPEG", progressive=progressive)
    files = [damaged(encoded.getvalue(), random) for _ in range(150)]
    by_all = [is_valid(lambda d=data: Image.open(io.BytesIO(d)).load()) for data in files]
    found = [is_valid(lambda d=data: decoded_images.read(d, KEPT, 3)) for data in files]
    assert found == by_all
    assert 20 < sum(found) < 130  # both kinds are there


def test_a_png_that_lacks_its_end_alone_gets_one(session, photo, encode):
    data = encode(photo(9, 13), "PNG")
    made = decoded_images.read(data[:-12], KEPT, 3)
    decoded = session.run(tf.io.decode_png(made.data))
    np.testing.assert_array_equal(decoded, np.asarray(photo(9, 13)))


def test_reasons_stand_in_the_place_of_broken_files(tmp_path, photo, encode):
    good = encode(photo(9, 13), "JPEG")
    contents = {"a.jpg": good, "b.jpg": b"", "c.jpg": b"<html>", "d.jpg": good[:-100]}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    names = [str(tmp_path / name) for name in [*contents, "missing.jpg"]]
    found = [decoded_images.read_file(name, KEPT, 3) for name in names]
    assert found[0] == decoded_images.StoredImage(good, "jpeg", 9, 13)
    assert found[1:3] == ["it is empty", "it is not an image"]
    assert "truncated" in found[3].lower()
    assert "No such file" in found[4]


@pytest.mark.parametrize("name", ["x.png", "x.jpg"])
def test_postscript_starts_no_other_program(tmp_path, monkeypatch, name):
    def refuse(*args, **kwargs):
        raise AssertionError("another program was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    code = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    (tmp_path / name).write_bytes(code)
    assert decoded_images.read_file(str(tmp_path / name), KEPT, 3) == "it is not an image"


@pytest.mark.parametrize("file_format", ["PPM", "ICO", "TGA", "PCX", "JPEG2000", "EPS"])
def test_formats_without_an_extension_here_are_no_images(tmp_path, photo, file_format):
    photo(32, 32).save(tmp_path / "x.png", file_format)
    assert decoded_images.read_file(str(tmp_path / "x.png"), KEPT, 3) == "it is not an image"


@pytest.mark.slow(cost=0.1)
def test_a_small_file_of_many_pixels(tmp_path):
    Image.new("1", (20_000, 20_000)).save(tmp_path / "x.png")
    reason = decoded_images.read_file(str(tmp_path / "x.png"), KEPT, 3)
    assert reason == "it has 20000 x 20000 pixels, too many" or "decompression bomb" in reason


@pytest.mark.parametrize("file_format", ["AVIF", "HEIF"])
def test_formats_of_phones(session, photo, file_format):
    if file_format == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    elif not decoded_images._HAS_AVIF:
        pytest.skip("this Pillow does not read AVIF")
    file = io.BytesIO()
    photo(32, 48).save(file, file_format, quality=95)
    kept = decoded_images.read(file.getvalue(), KEPT, 3)
    decoded = session.run(tf.io.decode_image(kept.data, channels=3, expand_animations=False))
    np.testing.assert_allclose(decoded, np.asarray(photo(32, 48)).astype(int), atol=25)


@pytest.mark.skipif(decoded_images._HAS_HEIF, reason="the extra heic is installed")
def test_a_photo_of_a_phone_names_the_extra(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"\0\0\0\x18ftypheic" + bytes(99))
    reason = decoded_images.read_file(str(tmp_path / "x.jpg"), KEPT, 3)
    assert "pip install '.[heic]'" in reason


@pytest.mark.parametrize("file_format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_an_animation_the_first_picture_is_taken(photo, file_format):
    first, second = photo(9, 13), photo(9, 13, seed=2)
    file = io.BytesIO()
    first.save(file, file_format, save_all=True, append_images=[second], lossless=True)
    pixels = decoded_images.read(file.getvalue(), (9, 13), 3).data
    wanted = np.asarray(Image.open(io.BytesIO(file.getvalue())).convert("RGB"))
    np.testing.assert_array_equal(np.frombuffer(pixels, np.uint8).reshape(9, 13, 3), wanted)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-12],  # its end
        lambda data: data[:33] + b"\0\0\0\1tEXta\0\0\0\0" + data[33:],  # a checksum that is false
        lambda data: data[:33] + b"\xff\xff\xff\xfftEXt" + data[33:],
    ],
    ids=["no end", "false checksum", "false length"],
)
def test_a_png_that_only_pillow_reads_is_stored_anew(damage):
    image = Image.new("L", (7, 5), 3)
    encoded = io.BytesIO()
    image.save(encoded, "PNG")
    broken = damage(encoded.getvalue())
    try:
        stored = decoded_images.read(broken, None, 1)
    except (OSError, SyntaxError, ValueError):
        return  # Pillow does not read it either
    assert decoded_images._is_whole_png(stored.data)
    assert stored.data != broken
    assert decoded_images.read(encoded.getvalue(), None, 1).data == encoded.getvalue()
