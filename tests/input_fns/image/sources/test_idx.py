"""IDX files, as MNIST and Fashion-MNIST come."""

import gzip
import pathlib
import struct

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.image.sources import idx
from tests import formats

FASHION_MNIST = pathlib.Path(__file__).parents[5] / "shared" / "data" / "fashion-mnist"
FILES = {
    "train-images-idx3-ubyte.gz": np.arange(11 * 7 * 5).reshape(11, 7, 5) % 251,
    "train-labels-idx1-ubyte.gz": np.arange(11) % 10,
    "t10k-images-idx3-ubyte.gz": np.arange(4 * 7 * 5).reshape(4, 7, 5) % 13,
    "t10k-labels-idx1-ubyte.gz": np.array([9, 8, 0, 0]),
}


@pytest.fixture
def source(tmp_path):
    """A folder with four small IDX files."""
    for name, array in FILES.items():
        (tmp_path / name).write_bytes(gzip.compress(formats.idx(array), mtime=0))
    return tmp_path


def test_pixels_and_labels_come_back_bit_for_bit(source):
    raw = idx.read(Options("mnist", source=str(source)))
    assert raw.class_names == tuple("0123456789")
    assert raw.splits["train"].images.dtype == np.uint8
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = (
            FILES[f"{prefix}-{kind}-ubyte.gz"] for kind in ("images-idx3", "labels-idx1")
        )
        np.testing.assert_array_equal(raw.splits[split].images[..., 0], images)
        np.testing.assert_array_equal(raw.splits[split].labels, labels)


def test_unpacked_files_will_do(source):
    for name in FILES:
        packed = source / name
        (source / name[: -len(".gz")]).write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    assert len(idx.read(Options("fashion_mnist", source=str(source))).splits["train"].labels) == 11


def test_names_with_a_dot_of_other_copies(source):
    for name in FILES:
        (source / name).rename(source / name.replace("-idx", ".idx"))
    assert len(idx.read(Options("mnist", source=str(source))).splits["train"].labels) == 11


IMAGES = "train-images-idx3-ubyte.gz"
WHOLE = formats.idx(FILES[IMAGES])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"\x89PNG" + WHOLE, mtime=0), "starts with 89504e47, not with 00000803"),
        (
            gzip.compress(formats.idx(np.arange(11)), mtime=0),
            "starts with 00000801, not with 00000803",
        ),
        (gzip.compress(WHOLE[:9], mtime=0), "is cut off inside its header, at byte 9"),
        (
            gzip.compress(WHOLE[:-3], mtime=0),
            "11 x 7 x 5 = 385 bytes after its header of 16, but holds 382",
        ),
        (gzip.compress(WHOLE + b"x", mtime=0), "but holds 386"),
        (gzip.compress(WHOLE, mtime=0)[:-20], "is not a complete gzip file"),
        (WHOLE, "is not a complete gzip file"),
        (b"", "starts with , not with"),
        (
            gzip.compress(formats.idx(np.zeros([12, 7, 5])), mtime=0),
            "holds 12 images, but .* 11 labels",
        ),
    ],
)
def test_a_broken_file_is_named_and_explained(source, content, message):
    (source / IMAGES).write_bytes(content)
    with pytest.raises(DataError, match=f"{IMAGES}.*{message}"):
        idx.read(Options("mnist", source=str(source)))


def test_a_missing_file(source):
    (source / IMAGES).unlink()
    with pytest.raises(DataError, match=f"has no {IMAGES}"):
        idx.read(Options("mnist", source=str(source)))


@pytest.mark.skipif(not FASHION_MNIST.exists(), reason="the real Fashion-MNIST is not here")
def test_the_real_fashion_mnist():
    splits = idx.read(Options("fashion_mnist", source=str(FASHION_MNIST))).splits
    assert splits["train"].images.shape == (60000, 28, 28, 1)
    assert splits["test"].images.shape == (10000, 28, 28, 1)
    assert np.bincount(splits["train"].labels).tolist() == [6000] * 10
    assert np.bincount(splits["test"].labels).tolist() == [1000] * 10


@pytest.mark.parametrize("shape", [(2**32 - 1, 2**32 - 1, 2**32 - 1), (2**31, 28, 2**20)])
def test_sizes_of_more_than_memory(source, shape):
    header = struct.pack(">4B3I", 0, 0, 8, 3, *shape)
    (source / IMAGES).write_bytes(gzip.compress(header + bytes(1000)))
    with pytest.raises(DataError, match="which is more than half of the available memory"):
        idx.read(Options("mnist", source=str(source)))


def test_no_more_is_unpacked_than_the_header_says(source, monkeypatch):
    (source / IMAGES).write_bytes(gzip.compress(WHOLE + bytes(2**24)))
    unpacked, read = [], gzip.GzipFile.read

    def counted(self, size=-1):
        unpacked.append(read(self, size))
        return unpacked[-1]

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(DataError, match="but holds 386 or more"):
        idx.read(Options("mnist", source=str(source)))
    assert sum(map(len, unpacked)) < 1000
