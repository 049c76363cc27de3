"""CIFAR-10 and CIFAR-100, in both of their versions and as archives."""

import io
import pathlib
import pickle
import runpy
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from input_fns import DataError
from input_fns.image.sources import cifar
from tests.formats import CIFAR10_BATCHES, cifar_binary

CIFAR10 = pathlib.Path(__file__).parents[5] / "shared" / "data" / "cifar10"
SIZE = 7
RANDOM = np.random.default_rng(1)
PIXELS = RANDOM.integers(0, 256, [6, SIZE, 3072], dtype=np.uint8)
LABELS = RANDOM.integers(0, 10, [6, SIZE])


def pickled(pixels, labels, key=b"labels"):
    return pickle.dumps({b"data": pixels, key: list(map(int, labels))}, protocol=2)


BINARY = {f"{name}.bin": cifar_binary(p, n) for name, p, n in zip(CIFAR10_BATCHES, PIXELS, LABELS)}
PYTHON = {name: pickled(p, n) for name, p, n in zip(CIFAR10_BATCHES, PIXELS, LABELS)}


def write(folder, files):
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def archive(path, files, folder="cifar"):
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def check(raw):
    assert list(raw.splits) == ["train", "test"]
    train, test = raw.splits["train"], raw.splits["test"]
    assert train.images.shape == (5 * SIZE, 32, 32, 3)
    # A record is three planes, an image has its channels last.
    planes = np.concatenate([train.images, test.images]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(planes.reshape(6, SIZE, 3072), PIXELS)
    np.testing.assert_array_equal(np.concatenate([train.labels, test.labels]), LABELS.ravel())
    assert raw.class_names[3] == "cat"


@pytest.mark.parametrize(
    ("folder", "files"), [("cifar-10-batches-bin", BINARY), ("cifar-10-batches-py", PYTHON)]
)
def test_both_versions_give_the_same_pixels(read, tmp_path, folder, files):
    write(tmp_path / folder, files)
    check(read("cifar10", source=tmp_path))
    check(read("cifar10", source=tmp_path / folder))


@pytest.mark.parametrize(
    ("name", "files"), [("cifar-10-binary.tar.gz", BINARY), ("cifar-10-python.tar.gz", PYTHON)]
)
def test_the_archives_need_no_unpacking(read, tmp_path, name, files):
    archive(tmp_path / name, files)
    check(read("cifar10", source=tmp_path))


@pytest.mark.parametrize("version", ["binary", "python"])
def test_cifar100_has_fine_labels_and_their_names(read, tmp_path, version):
    names = [f"class_{i}" for i in range(100)]
    fine = [np.arange(10) % 100, np.array([99, 42])]
    pixels = [np.zeros([10, 3072], np.uint8), np.ones([2, 3072], np.uint8)]
    if version == "binary":
        coarse = [labels // 5 for labels in fine]
        files = {
            f"{n}.bin": cifar_binary(*b)
            for n, b in zip(("train", "test"), zip(pixels, coarse, fine))
        }
        files["fine_label_names.txt"] = "\n".join(names).encode() + b"\n"
    else:
        batches = zip(("train", "test"), pixels, fine)
        files = {n: pickled(p, labels, b"fine_labels") for n, p, labels in batches}
        files["meta"] = pickle.dumps({b"fine_label_names": [name.encode() for name in names]}, 2)
    write(tmp_path / f"cifar-100-{version}", files)
    raw = read("cifar100", source=tmp_path)
    assert raw.class_names == tuple(names)
    np.testing.assert_array_equal(raw.splits["test"].labels, [99, 42])
    assert raw.splits["train"].images.shape == (10, 32, 32, 3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_2.bin", BINARY["data_batch_2.bin"][:-5], "cut off at byte 21506, in record 6"),
        ("data_batch_2.bin", b"", "data_batch_2.bin has 0 bytes"),
        ("test_batch.bin", BINARY["test_batch.bin"][:3073], "the batches should be of one size"),
    ],
)
def test_a_binary_file_that_is_cut_off(read, tmp_path, name, content, message):
    write(tmp_path / "cifar-10-batches-bin", {**BINARY, name: content})
    with pytest.raises(DataError, match=message):
        read("cifar10", source=tmp_path)


class Evil:
    """A pickle that would run a program."""

    def __reduce__(self):
        return (print, ("gotcha",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PYTHON["data_batch_3"][:-40], "data_batch_3 is not a complete pickle"),
        (b"junk", "data_batch_3 is not a complete pickle"),
        (pickle.dumps(Evil()), "not a complete pickle of CIFAR: it asks for builtins.print"),
        (pickle.dumps({b"data": 3}), "not a CIFAR batch: it lacks b'labels'"),
        (pickled(PIXELS[0], LABELS[0][:5]), r"has pixels \(7, 3072\) and 5 labels"),
    ],
)
def test_a_broken_pickle(read, tmp_path, capsys, content, message):
    write(tmp_path / "cifar-10-batches-py", {**PYTHON, "data_batch_3": content})
    with pytest.raises(DataError, match=message):
        read("cifar10", source=tmp_path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("labels", [[3.5] * SIZE, [2**70] * SIZE, [[1]] * SIZE, b"1234567", None])
def test_labels_that_are_none(read, tmp_path, labels):
    content = pickle.dumps({b"data": PIXELS[0], b"labels": labels}, 2)
    write(tmp_path / "cifar-10-batches-py", {**PYTHON, "data_batch_3": content})
    with pytest.raises(DataError, match="data_batch_3 is not a CIFAR batch"):
        read("cifar10", source=tmp_path)


def test_an_archive_with_two_files_of_one_name(read, tmp_path):
    archive(tmp_path / "cifar-10-binary.tar.gz", {**BINARY, "../evil/test_batch.bin": b"x"})
    with pytest.raises(DataError, match=r"two files 'test_batch\.bin'"):
        read("cifar10", source=tmp_path)


def test_an_archive_that_unpacks_to_too_much(read, tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "_MAX_ARCHIVE_BYTES", 100_000)
    archive(tmp_path / "cifar-10-binary.tar.gz", BINARY)
    with pytest.raises(DataError, match="unpacks to more than 100000 bytes"):
        read("cifar10", source=tmp_path)


@pytest.mark.parametrize("cut", [10, 20000])
def test_an_archive_that_is_cut_off(read, tmp_path, cut):
    path = tmp_path / "cifar-10-binary.tar.gz"
    archive(path, BINARY)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz .* is not a complete gzip file"):
        read("cifar10", source=tmp_path)


def test_an_archive_of_something_else(read, tmp_path):
    archive(tmp_path / "cifar-10-binary.tar.gz", {"readme": b""})
    with pytest.raises(DataError, match=r"has no data_batch_1\.bin"):
        read("cifar10", source=tmp_path)


def test_nothing_there(read, tmp_path):
    with pytest.raises(DataError, match=r"holds none of cifar-10-binary\.tar\.gz"):
        read("cifar10", source=tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not CIFAR10.exists(), reason="the real CIFAR-10 is not here")
def test_the_real_cifar10(read, tmp_path):
    """Unpacked by the script beside it, which checks the MD5 sums of the official files."""
    command = [sys.executable, CIFAR10 / "unpack_cifar10.py", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    strips = runpy.run_path(str(CIFAR10 / "unpack_cifar10.py"))["load_images"]("test_batch")
    for folder in ("cifar-10-batches-bin", "cifar-10-batches-py"):
        splits = read("cifar10", source=tmp_path / folder).splits
        assert np.bincount(splits["train"].labels).tolist() == [5000] * 10
        assert np.bincount(splits["test"].labels).tolist() == [1000] * 10
        np.testing.assert_array_equal(splits["test"].images, strips)
