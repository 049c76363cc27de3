"""Raw files, plain or .gz, local or gs://."""

from __future__ import annotations

import codecs
import gzip
import zlib

import tensorflow as tf

from input_fns import DataError


def read_bytes(path: str) -> bytes:
    """Returns what a file holds, unpacked if its name ends in .gz.

    Raises:
      DataError: it is missing, or no whole gzip file.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            data = file.read()
    except tf.errors.NotFoundError as error:
        raise DataError(f"{path} is not there") from error
    if not path.endswith(".gz"):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} ({len(data)} bytes) is no whole gzip file: {error}") from error


def read_text(path: str) -> str:
    """Returns a file of UTF-8 as text.

    Raises:
      DataError: it is missing, no whole gzip file, or not UTF-8.
    """
    return _decode(path, read_bytes(path)).removeprefix("\ufeff")


def read_lines(path: str) -> list[bytes]:
    """Returns the lines of a file of UTF-8, plain or .gz.

    A line is what stands between two line feeds, byte for byte; the last line feed ends the last
    line. A byte order mark before the first is no part of it, nor is a carriage return at the end.

    Raises:
      DataError: it is missing, no whole gzip file, or not UTF-8.
    """
    data = read_bytes(path)
    _decode(path, data)
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def _decode(path, data):
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}, byte {error.start}: no UTF-8 ({error.reason})"
        ) from error
