"""Pictures to be predicted that are in no data set: one file, or those of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import tensorflow as tf

from common import folders, strict_flags
from input_fns import DataError
from input_fns.convert import decoded_images


class PictureInput:
    """Picture files, in the order of their names.

    Attributes:
      paths: of the files.
      names: in their folder, of those that were read so far; what is broken has none.
    """

    def __init__(self, path: str, image_size: tuple[int, int] | None, channels: int):
        """Lists the pictures.

        Args:
          path: of a file or of a folder with them, in folders of its own too; local or gs://.
          image_size: `(height, width)` that pixels are stored in, None where files are.
          channels: 1 or 3, of what the model sees.

        Raises:
          DataError: there is none.
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
                f"--input={path} is no picture, nor a folder that holds one: a file that ends in "
                f"{', '.join(decoded_images.EXTENSIONS)}"
            )
        self._image_size, self._channels = image_size, channels
        self._num_known = 0
        self.names: list[str] = []

    def files(self) -> Iterator[bytes]:
        """Yields each picture as prepare_data.py would store it, says which ones are broken."""
        for number, path in enumerate(self.paths):
            (picture,) = decoded_images.read_many([path], self._image_size, self._channels)
            is_new = number == self._num_known  # TPUEstimator reads the first ones again
            self._num_known += is_new
            if isinstance(picture, str):
                if is_new:
                    shown = strict_flags.shown(path)  # file names may hold anything
                    print(f"{shown} stays without a prediction: {picture}", flush=True)
                continue
            if is_new:
                self.names.append(os.path.relpath(path, self._folder))
            yield picture.data
