"""The archive of click logs of the Kaggle contest, dac.tar.gz with train.txt and test.txt.

The workers read ranges of a tar. A gzip stream has only one place to begin, so one process
decompresses it once, to the folder that all workers see.
"""

from __future__ import annotations

import gzip
import os
import secrets
import shutil

from common import files, folders
from input_fns import DataError
from input_fns.convert import files as source_files
from input_fns.convert import inventory, split_names, tar_members
from input_fns.convert.archive_members import Member
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.dataset_info import LeftOut

ENDINGS = (".tar", ".tar.gz", ".tgz")
_PIECE_BYTES = 2**22


def find_paths(
    archive: str, options: Options, extensions: tuple[str, ...], left_out: LeftOut, runner: Runner
) -> dict[str, list[str]]:
    """Returns `{split: paths}` of the texts in an archive; in any of its folders.

    Args:
      archive: path of the archive, whose name ends in one of `ENDINGS`.
      options: `source` and `skip` are used.
      extensions: ends of the names of the texts.
      left_out: gets the other files.
      runner: its folder gets the decompressed archive.

    Raises:
      DataError: the archive is not valid, two texts are of one split, or none is of "train".
    """
    copy = _decompress(archive, runner.folder) if archive.endswith("gz") else ""
    try:
        found = tar_members.find(copy or archive, left_out)
    except DataError as error:
        raise DataError(str(error).replace(copy or archive, archive)) from error
    above = archive if archive == options.source else os.path.dirname(archive)
    texts: dict[str, str] = {}
    for name, place in found.items():
        stem, extension = split_names.stem_of(os.path.basename(name), extensions)
        is_skipped = any(inventory.is_skipped(part, options) for part in name.split("/"))
        if is_skipped or not (extension and split_names.split_in(stem)):
            left_out.add(inventory.reason_of(name, options), name)
        elif stem in texts:
            raise DataError(f"{archive} has two texts {os.path.basename(name)}. Unpack it")
        else:
            texts[stem] = Member(os.path.join(above, name), archive, *place, copy)
    splits = split_names.by_split(texts, options) if texts else {}
    if "train" not in splits:
        only = f", only {', '.join(splits.values())}" if splits else ""
        raise DataError(f"{archive} has no train.txt or train.tsv{only}")
    return {split: [path] for split, path in splits.items()}


def _decompress(archive, folder):
    """Returns the path of the decompressed archive."""
    copy = os.path.join(folder, secrets.token_hex(8))
    size = folders.num_bytes(archive)
    source_files.note(f"{archive}: decompressing {size} bytes to {folder}")
    try:
        with source_files.opened(archive) as packed, files.open_bytes(copy, "wb") as file:
            # A name in .gz is opened decompressed.
            unpacked = packed if archive.endswith(".gz") else gzip.GzipFile(fileobj=packed)
            shutil.copyfileobj(unpacked, file, _PIECE_BYTES)
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{archive} ({size} bytes) is not a complete gzip file: {error}") from error
    return copy
