"""Files to predict (`--input`): one image or recording, or all of a folder."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from PIL import Image

from common import strict_flags
from input_fns import DataError
from input_fns.audio.sources import audio_files, recordings
from input_fns.convert import inventory
from input_fns.convert.options import Options
from input_fns.image.sources import decoded_images


class FileInput:
    """Files, sorted by name; implements `predictions.Examples`.

    Attributes:
      kind: what a file holds, for messages.
      extensions: lower-case extensions of the files.
      paths: paths of all files.
      valid_paths: those of the valid files read so far.
      undecodable: what an error of TensorFlow about the contents of a file means; "" if unknown.
    """

    what = "input"
    reads_files = True
    kind: str
    extensions: tuple[str, ...]
    undecodable = ""

    def __init__(self, path: str, pipeline: Any):
        """Lists the files.

        Args:
          path: a file, or a folder that is searched recursively; local or gs://.
          pipeline: its data set is the one that the model was trained on, and `files_input_fn`
            turns a function that returns files into an input_fn.

        Raises:
          DataError: there are no such files.
        """
        options = Options("", source=path)
        if tf.io.gfile.isdir(path):
            self._folder = path
            found = list(inventory.files(path, options))
        else:
            self._folder = os.path.dirname(path) or "."
            found = [path] if tf.io.gfile.exists(path) else []
        self.paths = sorted(p for p in found if p.lower().endswith(self.extensions))
        left_out = list(inventory.unread(options, self.paths).lines())
        if not self.paths:
            raise DataError(
                f"--input={path} must be an {self.kind} file or a folder with {self.kind} files "
                f"({', '.join(self.extensions)}){'; '.join(['', *left_out])}"
            )
        for line in left_out:
            print(f"--input: {line}", flush=True)
        self._files_input_fn = pipeline.files_input_fn
        self._num_known = 0
        self.valid_paths: list[str] = []  # of those read so far

    @property
    def size(self) -> int:
        """Number of files, also of broken ones."""
        return len(self.paths)

    @property
    def input_fn(self) -> Callable:
        """The input_fn."""
        return self._files_input_fn(self.files)

    def names(self) -> Iterator[str]:
        """Returns the names of the valid files; the files have to be read first."""
        return (os.path.relpath(path, self._folder) for path in self.valid_paths)

    def count(self) -> int:
        """Returns the number of valid files read so far."""
        return len(self.valid_paths)

    def files(self) -> Iterator[bytes]:
        """Yields each file as prepare_data.py would store it; prints the names of broken ones."""
        for number, path in enumerate(self.paths):
            found = self._read(path)
            is_new = number == self._num_known  # TPUEstimator reads the first ones again
            self._num_known += is_new
            if isinstance(found, str):
                if is_new:
                    shown = strict_flags.shown(path)  # may contain control characters
                    print(f"{shown} is skipped: {found}", flush=True)
                continue
            if is_new:
                self.valid_paths.append(path)
                self._add(found)
            yield self._stored(found)

    def _read(self, path):
        """Returns what a file holds, or the reason why it is broken."""
        raise NotImplementedError

    def _add(self, found):
        """Is called with each valid file once."""

    def _stored(self, found) -> bytes:
        """Returns the bytes that `files_input_fn` of the pipeline takes."""
        raise NotImplementedError


class ImageInput(FileInput):
    """Image files.

    Attributes:
      sizes: `(height, width)` of the valid images read so far.
    """

    kind = "image"
    undecodable = "TensorFlow cannot decode an image that Pillow reads"
    extensions = decoded_images.EXTENSIONS

    def __init__(self, path: str, pipeline: Any):
        """Lists the images, which are read as those of the data set were; see `FileInput`."""
        super().__init__(path, pipeline)
        data = pipeline.data
        stored = data.features["image"]
        # Boxes and masks are of the original size, classes of the stored one.
        is_resized = not stored.is_image_file and data.kind.name != "annotations"
        self._image_size = stored.shape[:2] if is_resized else None
        self._channels = stored.shape[-1]
        self._pixel_range = _pixel_range(data)
        self.sizes: list[tuple[int, int]] = []

    def _read(self, path):
        how = self._image_size, self._channels, self._pixel_range
        try:
            return decoded_images.read_file(path, *how)
        except decoded_images.PixelRangeError as error:
            return f"{error.problem}. Convert it to 8 bits as the images of the data set"

    def pictures(self) -> Iterator[Image.Image]:
        """Yields the valid images, upright RGB pictures of their own size; see `names`."""
        for path in self.valid_paths:
            found = decoded_images.read(decoded_images.bytes_of(path), None, 3, self._pixel_range)
            yield Image.open(io.BytesIO(found.data)).convert("RGB")

    def _add(self, found):
        self.sizes.append((found.height, found.width))

    def _stored(self, found):
        return found.data


def _pixel_range(data):
    """Returns the --pixel_range of a data set, or None."""
    given = data.prepared_with.get("pixel_range")
    if given is None:
        return None
    is_pair = isinstance(given, (list, tuple)) and len(given) == 2
    if not (is_pair and all(type(n) in (int, float) for n in given) and given[0] < given[1]):
        raise DataError(f"{data.data_dir}: prepared_with: pixel_range is {given!a}, not LOW, HIGH")
    return given[0], given[1]


class AudioInput(FileInput):
    """Recordings, resampled to the sampling rate of the data set."""

    kind = "audio"
    extensions = recordings.EXTENSIONS

    def __init__(self, path: str, pipeline: Any):
        """Lists the recordings; see `FileInput`."""
        super().__init__(path, pipeline)
        self._audio = pipeline.data.kind

    def _read(self, path):
        rate = self._audio.sample_rate
        return audio_files.read_file(path, rate, self._audio.max_samples / rate)

    def _stored(self, found):
        return found.astype("<i2").tobytes()
