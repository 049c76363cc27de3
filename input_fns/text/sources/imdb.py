"""IMDB reviews (Maas et al. 2011): the folder aclImdb, or train.tsv and test.tsv.

A .tsv has the columns label (neg, pos), name and review, and no header line. The reviews without a
label, aclImdb/train/unsup, are not read.
"""

from __future__ import annotations

import dataclasses
import os

from common import folders
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.source import RawDataset
from input_fns.text.sources import text_files, text_folder

_CLASSES = ("neg", "pos")


def read(options: Options, runner: Runner) -> RawDataset:
    """Returns the splits "train" and "test".

    Args:
      options: `source` is aclImdb, the folder that holds it, or a folder of tables.
      runner: reads parts of large tables.

    Raises:
      DataError: a file is missing or invalid.
    """
    for source in (options.source, os.path.join(options.source, "aclImdb")):
        if folders.is_folder(os.path.join(source, "train", "neg")):
            return text_folder.read(
                dataclasses.replace(options, source=source, class_names=_CLASSES)
            )
    return text_files.read(
        dataclasses.replace(
            options,
            columns=("label", "name", "review"),
            text_columns=("review",),
            label_columns=("label",),
            class_names=_CLASSES,
        ),
        runner,
    )
