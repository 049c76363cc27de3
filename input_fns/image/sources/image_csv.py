"""Images and labels listed in a table, as on Kaggle; see `labelled_rows`."""

from __future__ import annotations

from input_fns.convert import labelled_rows
from input_fns.convert.source import Options, RawDataset
from input_fns.image.sources import decoded_images
from input_fns.image.sources.image_files import ImageFiles

_KIND = labelled_rows.Kind("image", "image_column", decoded_images.EXTENSIONS)


def read(options: Options) -> RawDataset:
    """Returns the split "train", or the splits of `split_column`.

    Raises:
      DataError: see `labelled_rows.read`.
    """
    class_names, found = labelled_rows.read(options, _KIND)
    splits = {
        name: ImageFiles(files.paths, files.labels, options, files.groups)
        for name, files in found.items()
    }
    return RawDataset(options.dataset, class_names, splits)
