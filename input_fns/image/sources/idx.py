"""MNIST and Fashion-MNIST from their original IDX files.

The format (http://yann.lecun.com/exdb/mnist, "FILE FORMATS"): two zero bytes, a byte for the type
(8 is uint8), a byte for the number of dimensions, each dimension as a big-endian int32, then the
numbers.
"""

from __future__ import annotations

import math
import os
import struct

import numpy as np

from common import folders
from common.names import counted
from input_fns import DataError
from input_fns.convert.files import read_start
from input_fns.convert.options import Options
from input_fns.convert.source import RawArrays, RawDataset
from input_fns.core import memory

CLASS_NAMES = {
    "mnist": tuple(str(digit) for digit in range(10)),
    "fashion_mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
}
_PREFIXES = {"train": "train", "test": "t10k"}
_UINT8 = 8


def read(options: Options) -> RawDataset:
    """Returns the splits train and test, uint8 images `[n, height, width, 1]`.

    Args:
      options: `dataset` is "mnist" or "fashion_mnist", `source` the folder with the four original
        files, .gz or unpacked.

    Raises:
      DataError: a file is missing or corrupted, or the numbers of images and labels differ.
    """
    return RawDataset(
        name=options.dataset,
        class_names=CLASS_NAMES[options.dataset],
        splits={split: _read_split(options.source, prefix) for split, prefix in _PREFIXES.items()},
    )


def _read_split(source, prefix):
    images_path = _find(source, f"{prefix}-images-idx3-ubyte")
    labels_path = _find(source, f"{prefix}-labels-idx1-ubyte")
    images = _read_idx(images_path, num_dimensions=3)
    labels = _read_idx(labels_path, num_dimensions=1)
    if len(images) != len(labels):
        raise DataError(
            f"{images_path} holds {len(images)} images, but {labels_path} {len(labels)} labels"
        )
    return RawArrays(images[..., np.newaxis], labels.astype(np.int64))


def _find(source, name):
    # With a dot in other copies, such as on Kaggle.
    for spelling in (name, name.replace("-idx", ".idx")):
        for path in (os.path.join(source, f"{spelling}.gz"), os.path.join(source, spelling)):
            if folders.is_file(path):
                return path
    raise DataError(f"--source={source} has no {name}.gz")


def _read_idx(path, num_dimensions):
    header = 4 + 4 * num_dimensions
    start = read_start(path, header)
    magic = bytes([0, 0, _UINT8, num_dimensions])
    if start[:4] != magic:
        raise DataError(
            f"{path} starts with {start[:4].hex()}, not with {magic.hex()}, the magic number of an "
            f"IDX file of uint8 in {counted(num_dimensions, 'dimension')}"
        )
    if len(start) < header:
        raise DataError(f"{path} is cut off inside its header, at byte {len(start)}")
    shape = struct.unpack(f">{num_dimensions}I", start[4:])
    size, room = math.prod(shape), memory.available_bytes() // 2
    if size > room:
        raise DataError(
            f"{path} should hold {' x '.join(map(str, shape))} bytes, which is more than half of "
            f"the available memory, {room}"
        )
    data = read_start(path, header + size + 1)
    if len(data) - header != size:
        found = f"{len(data) - header}{' or more' if len(data) - header > size else ''}"
        raise DataError(
            f"{path} should hold {' x '.join(map(str, shape))} = {size} bytes after its header of "
            f"{header}, but holds {found}"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)
