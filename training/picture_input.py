"""Pictures to be predicted that are in no data set: one file, or those of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import tensorflow as tf

from common import strict_flags
from input_fns import DataError
from input_fns.convert import pictures


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
            found = [os.path.join(folder, name) for folder, name in _walk(path)]
        else:
            self._folder = os.path.dirname(path) or "."
            found = [path] if tf.io.gfile.exists(path) else []
        self.paths = sorted(p for p in found if p.lower().endswith(pictures.EXTENSIONS))
        if not self.paths:
            raise DataError(
                f"--input={path} is no picture, nor a folder that holds one: a file that ends in "
                f"{', '.join(pictures.EXTENSIONS)}"
            )
        self._image_size, self._channels = image_size, channels
        self._num_known = 0
        self.names: list[str] = []

    def _read(self, path):
        # A pipe would be waited for, and a device read without end.
        if "://" not in path and os.path.exists(path) and not os.path.isfile(path):
            return ["it is not a regular file"]
        return pictures.read_many([path], self._image_size, self._channels)

    def files(self) -> Iterator[bytes]:
        """Yields each picture as prepare_data.py would store it, says which ones are broken."""
        for number, path in enumerate(self.paths):
            (picture,) = self._read(path)
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


def _walk(path):
    """Yields the folder and name of each file below `path`; a link to a folder is followed once."""
    if "://" in path:
        for folder, _, names in tf.io.gfile.walk(path):
            yield from ((folder, name) for name in names)
        return
    seen = {os.path.realpath(path)}
    for folder, folders, names in os.walk(path, followlinks=True):
        yield from ((folder, name) for name in names)
        new = {os.path.realpath(os.path.join(folder, name)): name for name in folders}
        folders[:] = sorted(name for real, name in new.items() if real not in seen)
        seen.update(new)
