"""Image files to predict (`--input`): one file, or all files of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import tensorflow as tf

from common import folders, strict_flags
from input_fns import DataError
from input_fns.convert import decoded_images


class ImageInput:
    """Image files, sorted by name.

    Attributes:
      paths: paths of all files.
      names: paths relative to the folder, of the valid images read so far.
      sizes: `(height, width)` of these images.
    """

    def __init__(self, path: str, image_size: tuple[int, int] | None, channels: int):
        """Lists the images.

        Args:
          path: a file, or a folder that is searched recursively; local or gs://.
          image_size: `(height, width)` of stored pixels; None if the data set stores image files.
          channels: channels of the images that the model gets, 1 or 3.

        Raises:
          DataError: there are no image files.
        """
        if tf.io.gfile.isdir(path):
            self._folder = path
            found = list(folders.files(path, {folders.identity(path)}))
        else:
            self._folder = os.path.dirname(path) or "."
            found = [path] if tf.io.gfile.exists(path) else []
        self.paths = sorted(p for p in found if p.lower().endswith(decoded_images.EXTENSIONS))
        if not self.paths:
            raise DataError(
                f"--input={path} must be an image file or a folder with image files "
                f"({', '.join(decoded_images.EXTENSIONS)})"
            )
        self._image_size, self._channels = image_size, channels
        self._num_known = 0
        self.names: list[str] = []
        self.sizes: list[tuple[int, int]] = []

    def files(self) -> Iterator[bytes]:
        """Yields each image as prepare_data.py would store it; prints the names of broken ones."""
        for number, path in enumerate(self.paths):
            (image,) = decoded_images.read_many([path], self._image_size, self._channels)
            is_new = number == self._num_known  # TPUEstimator reads the first ones again
            self._num_known += is_new
            if isinstance(image, str):
                if is_new:
                    shown = strict_flags.shown(path)  # may contain control characters
                    print(f"{shown} is skipped: {image}", flush=True)
                continue
            if is_new:
                self.names.append(os.path.relpath(path, self._folder))
                self.sizes.append((image.height, image.width))
            yield image.data
