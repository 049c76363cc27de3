"""A folder of images whose sub-folders are the classes, as Keras and PyTorch read it.

SOURCE/CLASS/anything.jpg                one split, "train"
SOURCE/{train,val,test}/CLASS/...        the splits that are there
"""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

from input_fns import DataError
from input_fns.convert import pictures
from input_fns.convert.picture_files import PictureFiles
from input_fns.convert.source import Options, RawDataset, is_split, split_names


def read(options: Options) -> RawDataset:
    """Returns the splits, classes in the order of their names unless `class_names` gives one.

    Raises:
      DataError: there are no classes, the splits have different ones, or one has no image.
    """
    folders = _folders(options.source)
    if folders and all(map(is_split, folders)):
        names = split_names(folders, f"--source={options.source}")
        splits = {ours: os.path.join(options.source, name) for ours, name in names.items()}
    else:
        splits = {"train": options.source}
    reference = splits.get("train") or next(iter(splits.values()))
    class_names = options.class_names or tuple(_folders(reference))
    if len(class_names) < 2:
        raise DataError(
            f"--source={options.source} should have a folder for each class, "
            f"and has {len(class_names)}"
        )
    return RawDataset(
        options.dataset,
        class_names,
        {name: _read_split(folder, class_names, options) for name, folder in splits.items()},
    )


def _read_split(folder, class_names, options):
    found = set(_folders(folder))
    if found != set(class_names):
        missing, more = sorted(set(class_names) - found), sorted(found - set(class_names))
        raise DataError(
            f"{folder} should have the classes {', '.join(class_names)}; "
            f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(more) or 'none'}"
        )
    paths, labels = [], []
    for label, name in enumerate(class_names):
        files = _images(os.path.join(folder, name))
        paths += files
        labels += [label] * len(files)
    return PictureFiles(np.array(paths, object), np.array(labels, np.int64), options)


def _images(folder):
    files = [
        os.path.join(path, name)
        for path, _, names in tf.io.gfile.walk(folder)
        for name in names
        if name.lower().endswith(pictures.EXTENSIONS)
    ]
    if not files:
        raise DataError(
            f"{folder} holds no image: no file ends in {', '.join(pictures.EXTENSIONS)}"
        )
    return sorted(files)


def _folders(path):
    if not tf.io.gfile.isdir(path):
        raise DataError(f"--source={path} is no folder")
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(path))
    return sorted(
        name
        for name in names
        if not name.startswith(".") and tf.io.gfile.isdir(os.path.join(path, name))
    )
