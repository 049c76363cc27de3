"""Builds small files in the formats of published data sets."""

import struct

import numpy as np

CIFAR10_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def idx(array):
    """Returns an IDX file of bytes: MNIST's format."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def cifar_binary(pixels, *labels):
    """Returns a file of CIFAR's binary version: pixels `[n, 3072]`, columns of labels `[n]`."""
    columns = [np.asarray(column)[:, np.newaxis] for column in labels]
    return np.concatenate([*columns, pixels], axis=1).astype(np.uint8).tobytes()
