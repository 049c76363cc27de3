"""Reads the files of vocabularies, of any format."""

from __future__ import annotations

from common import files, folders
from input_fns import DataError


def read(path: str) -> bytes:
    """Returns the content of a file, local or gs://.

    Raises:
      DataError: it is missing, or not a file.
    """
    if not folders.is_file(path, or_missing=True):
        raise DataError(f"the vocabulary {path} is not a file")
    try:
        with files.open_bytes(path) as file:
            return file.read()
    except folders.missing_error(path) as error:
        raise DataError(f"the vocabulary {path} is not there") from error
