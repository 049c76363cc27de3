"""Images with one folder for each class, as in Keras and PyTorch; see `class_folders`."""

from __future__ import annotations

from input_fns.convert import class_folders
from input_fns.convert.source import Options, RawDataset
from input_fns.image.sources import decoded_images
from input_fns.image.sources.image_files import ImageFiles


def read(options: Options) -> RawDataset:
    """Returns the splits; classes are sorted by name or number unless `class_names` is set.

    Raises:
      DataError: see `class_folders.find`.
    """
    found = class_folders.find(options, "image", decoded_images.EXTENSIONS)
    splits = {
        name: ImageFiles(files.paths, files.labels, options, files.groups)
        for name, files in found.splits.items()
    }
    return RawDataset(options.dataset, found.class_names, splits, left_out_paths=found.left_out)
