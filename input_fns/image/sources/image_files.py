"""Image files with classes: one folder or archive for each, or listed in a table, as on Kaggle.

`class_folders`, `class_archives` and `labelled_rows` say how. Imports no TensorFlow: worker
processes read a split.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence

import numpy as np

from common import folders
from common.names import printable
from input_fns.convert import class_archives, class_folders, labelled_rows, repeated_files
from input_fns.convert.archive_members import Member
from input_fns.convert.options import Options
from input_fns.convert.source import Broken, RawDataset, RawSplit, Row, is_known
from input_fns.core.target import FEATURE
from input_fns.dataset_info import Feature
from input_fns.image.sources import decoded_images

_KIND = labelled_rows.Kind("image", "image_column", decoded_images.EXTENSIONS)


class ImageSplit(RawSplit):
    """A split of image files with `options`; without `labels` it can only be predicted."""

    @property
    def has_labels(self) -> bool:
        """False if the split can only be predicted."""
        return self.labels is not None or is_known(self.targets)

    @property
    def num_bytes(self) -> int:
        """Bytes of the pixels or of the files."""
        if self.options.image_size is None:
            return self._num_file_bytes()
        return len(self) * int(np.prod(self.options.image_size)) * self.options.channels

    def _num_file_bytes(self) -> int:
        """Returns about the bytes of the files."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class ImageFiles(ImageSplit):
    """A split of image files.

    Attributes:
      paths: paths of the files, local or gs://; in archives, those that unpacking would give.
      options: `source`, `image_size`, `channels` and `pixel_range` are used.
      labels: int64 `[size]`, or None if the split can only be predicted.
      groups: `[size]`, equal where examples must stay in one split; None: each is its own.
      archives, ranges, targets: see `class_folders.LabelledFiles`.
    """

    KEYS = ("paths", "labels", "groups", "ranges", "targets")

    paths: np.ndarray
    options: Options
    labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    archives: tuple[str, ...] = ()
    ranges: np.ndarray | None = None
    targets: np.ndarray | None = None

    def _num_file_bytes(self):
        if self.ranges is not None:
            return int(self.ranges[:, 2].sum())
        # From a sample: a stat of a million files on gs:// takes an hour.
        sample = self.paths[:: max(1, len(self) // 1000)]
        return mean_file_size(sample) * len(self)

    def read(self, i: int) -> Row | Broken:
        """Reads and checks a file."""
        path, options = self.paths[i], self.options
        if self.ranges is not None:
            archive, offset, size = self.ranges[i].tolist()
            path = Member(path, self.archives[archive], offset, size)
        image = decoded_images.read_file(
            path, options.image_size, options.channels, options.pixel_range
        )
        if isinstance(image, str):
            return Broken(printable(path), image)
        return to_row(image, options, path)


def read(options: Options) -> RawDataset:
    """Returns the splits of image_folder or image_csv.

    Raises:
      DataError: see `class_folders.find`, `class_archives.find` and `labelled_rows.read`.
    """
    if options.dataset == "image_csv":
        return to_dataset(options, labelled_rows.read(options, _KIND))
    archives = class_archives.of_source(options)
    find = functools.partial(class_archives.find, archives) if archives else class_folders.find
    found = find(options, "image", decoded_images.EXTENSIONS)
    if options.task == "multilabel":
        found = repeated_files.join(found)
    return to_dataset(options, found)


def to_dataset(options: Options, found: class_folders.Found) -> RawDataset:
    """Returns the data set of image files."""
    splits = {
        name: ImageFiles(
            files.paths,
            options,
            files.labels,
            files.groups,
            files.archives,
            files.ranges,
            files.targets,
        )
        for name, files in found.splits.items()
    }
    return RawDataset(
        options.dataset,
        found.class_names,
        splits,
        labels=(FEATURE,) if found.target else (),
        target=found.target,
        left_out=found.left_out_inside,
        left_out_paths=found.left_out,
    )


def mean_file_size(paths: Sequence[str]) -> int:
    """Returns the mean size in bytes of files, local, gs:// or in archives."""
    return round(np.mean([_size(path) for path in paths]))


def name_in(source: str, path: str) -> str:
    """Returns the name of an example: the path of its file below `source`."""
    return printable(os.path.relpath(path, source))


def _size(path):
    try:
        if isinstance(path, Member):
            return path.size
        return folders.num_bytes(path) if folders.is_file(path, or_missing=True) else 0
    except folders.errors(path):  # its reader says that it is missing
        return 0


def to_row(image: decoded_images.StoredImage, options: Options, path: str) -> Row:
    """Returns the row of an image file; `source` and `channels` of the options are used."""
    feature = Feature(image.encoding, "uint8", (image.height, image.width, options.channels))
    stated = image.stated_range and (printable(path), *image.stated_range)
    name = name_in(options.source, path)
    return Row({"image": image.data}, {"image": feature}, name, stated_range=stated)
