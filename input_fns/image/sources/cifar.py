"""CIFAR-10 and CIFAR-100 from their original files, the binary or the Python version.

The formats (https://www.cs.toronto.edu/~kriz/cifar.html): a binary record is one label byte
(CIFAR-100: the coarse and the fine one) and 3072 pixels, red, green, blue, each 32 rows of 32; a
Python batch is a pickled dict of the same pixels and labels.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import os
import tarfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from input_fns import DataError
from input_fns.convert.files import decode, read_bytes, read_start
from input_fns.convert.options import Options
from input_fns.convert.source import RawArrays, RawDataset
from input_fns.image.sources import pickled

_PIXELS = 3 * 32 * 32
_FINE_LABEL_NAMES = b"fine_label_names"
# The unpacked archives have up to 190 MB.
_MAX_ARCHIVE_BYTES = 2**29


@dataclasses.dataclass(frozen=True)
class _Version:
    """File names and parser of one data set in one format."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    class_names: str
    parse: Callable


def _parse_binary(path, data, label_bytes):
    record = label_bytes + _PIXELS
    if not data or len(data) % record:
        raise DataError(
            f"{path} has {len(data)} bytes, which is not a whole number of records of {record}: "
            f"cut off at byte {len(data)}, in record {len(data) // record}"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, record)
    return records[:, label_bytes:], records[:, label_bytes - 1]


def _parse_python(path, data, key):
    batch = _unpickle(path, data)
    missing = [name for name in (b"data", key) if name not in batch]
    if missing:
        raise DataError(f"{path} is not a CIFAR batch: it lacks {missing[0]}")
    try:
        pixels, labels = (pickled.array(batch[name]) for name in (b"data", key))
    except pickled.PickleError as error:
        raise DataError(f"{path} is not a CIFAR batch: {error}") from error
    if pixels.shape != (len(labels), _PIXELS) or pixels.dtype != np.uint8 or labels.ndim != 1:
        raise DataError(
            f"{path} has pixels {pixels.shape} and {len(labels)} labels, of {pixels.dtype} and "
            f"{labels.dtype}"
        )
    return pixels, labels


def _unpickle(path, data):
    try:
        value = pickled.loads(data)
    except pickled.PickleError as error:
        raise DataError(f"{path} is not a complete pickle of CIFAR: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} is not a CIFAR batch: it holds no dict")
    return value


def _names(path, data):
    """Returns the class names of CIFAR-100 in a text or a pickle."""
    if path.endswith(".txt"):
        return decode(path, data).split()
    found = _unpickle(path, data).get(_FINE_LABEL_NAMES)
    if not isinstance(found, list) or not all(isinstance(name, bytes) for name in found):
        raise DataError(f"{path} has no list of names {_FINE_LABEL_NAMES}")
    return [decode(path, name) for name in found]


_CIFAR10 = tuple(f"data_batch_{i}" for i in range(1, 6))
_VERSIONS = {
    "cifar10": (
        _Version(
            *("cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
            *(tuple(f"{name}.bin" for name in _CIFAR10), "test_batch.bin", ""),
            functools.partial(_parse_binary, label_bytes=1),
        ),
        _Version(
            *("cifar-10-batches-py", "cifar-10-python.tar.gz", _CIFAR10, "test_batch", ""),
            functools.partial(_parse_python, key=b"labels"),
        ),
    ),
    "cifar100": (
        _Version(
            *("cifar-100-binary", "cifar-100-binary.tar.gz"),
            *(("train.bin",), "test.bin", "fine_label_names.txt"),
            functools.partial(_parse_binary, label_bytes=2),
        ),
        _Version(
            *("cifar-100-python", "cifar-100-python.tar.gz", ("train",), "test", "meta"),
            functools.partial(_parse_python, key=b"fine_labels"),
        ),
    ),
}
_CIFAR10_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"


def read(options: Options) -> RawDataset:
    """Returns the splits train and test, uint8 images `[n, 32, 32, 3]`.

    Args:
      options: `source` is the folder of the archive or of the unpacked folder, or the unpacked
        folder.

    Raises:
      DataError: a file is missing, corrupted or truncated.
    """
    version, files = _find(options)
    batches = [version.parse(name, files(name)) for name in (*version.train, version.test)]
    sizes = {len(labels) for _, labels in batches}
    if options.dataset == "cifar10" and len(sizes) > 1:
        counts = [len(labels) for _, labels in batches]
        raise DataError(
            f"{options.source}: the batches should be of one size, and hold {counts} images: "
            "one of them is cut off"
        )
    if options.dataset == "cifar100" and len(batches[0][1]) != 5 * len(batches[1][1]):
        raise DataError(
            f"{options.source}: train should be five times as large as test, but they hold "
            f"{len(batches[0][1])} and {len(batches[1][1])} images"
        )
    names = _CIFAR10_NAMES.split()
    if version.class_names:
        names = _names(version.class_names, files(version.class_names))
    splits = {"train": _join(batches[:-1]), "test": _join(batches[-1:])}
    return RawDataset(options.dataset, tuple(names), splits)


def _join(batches):
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*batches))
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return RawArrays(np.ascontiguousarray(images), labels.astype(np.int64))


def _find(options):
    """Returns the version in `source`, and a function from file name to bytes."""
    source = options.source
    for version in _VERSIONS[options.dataset]:
        for folder in (os.path.join(source, version.folder), source):
            if tf.io.gfile.exists(os.path.join(folder, version.test)):
                return version, functools.partial(_read, folder)
        archive = os.path.join(source, version.archive)
        if tf.io.gfile.exists(archive):
            return version, functools.partial(_member, archive, _unpack(archive))
    if not tf.io.gfile.isdir(source):
        raise DataError(f"--source={source} is not a folder")
    wanted = [name for v in _VERSIONS[options.dataset] for name in (v.archive, f"{v.folder}/")]
    raise DataError(f"--source={source} holds none of {', '.join(wanted)}")


def _read(folder, name):
    return read_bytes(os.path.join(folder, name))


def _unpack(path):
    """Returns `{file name: bytes}` of an archive, unpacked in memory."""
    # Limits the size: a decompression bomb would fill the memory.
    data = read_start(path, _MAX_ARCHIVE_BYTES + 1)
    if len(data) > _MAX_ARCHIVE_BYTES:
        raise DataError(f"{path} unpacks to more than {_MAX_ARCHIVE_BYTES} bytes: it is not CIFAR")
    files = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                name = os.path.basename(member.name)
                if not member.isfile():
                    continue
                # A sparse file may have any size; files with the same name are ambiguous.
                if member.issparse() or name in files:
                    raise DataError(f"{path} has a sparse file or two files {name!a}")
                files[name] = tar.extractfile(member).read()
    # An invalid header raises different errors for different fields.
    except (
        tarfile.TarError,
        OSError,
        EOFError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not a complete tar file: {error}") from error
    return files


def _member(archive, members, name):
    if name not in members:
        raise DataError(f"{archive} has no {name}: it is cut off, or another archive")
    return members[name]
