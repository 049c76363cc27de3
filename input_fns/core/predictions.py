"""Examples that `--mode=predict` reads, and writers of their predictions.

A kind of data with another form of output has a `PredictionWriter`, which `prediction_writer` of
its pipeline returns. A pipeline that reads `--input` names a function of the path and the pipeline
that returns `Examples`, `file_examples = "module:function"`; `split_examples` returns those of a
split if they differ from `SplitExamples`.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from common import files
from common.errors import UsageError


class Examples(Protocol):
    """Examples to predict: a split, or the files of `--input`.

    Attributes:
      what: the name of the split, or "input"; "" leaves it out of names of files.
      size: number of examples; that of files includes broken ones.
      reads_files: whether this process reads them from files, which a remote TPU cannot call.
    """

    what: str
    size: int
    reads_files: bool

    @property
    def input_fn(self) -> Callable:
        """The input_fn of features: every example once, in order, without padding."""

    def names(self) -> Iterator[str] | None:
        """Returns the names of the source files, in order; None without names."""

    def count(self) -> int:
        """Returns the number of examples, once all are read: without broken files."""


def shapes(batch: dict[str, np.ndarray]) -> str:
    """Returns what a model predicts, for a message: names and shapes."""
    found = {name: list(values.shape) for name, values in batch.items() if name != "name"}
    return ", ".join(f"{name} {shape}" for name, shape in found.items())


class SplitExamples:
    """The examples of a split."""

    reads_files = False

    def __init__(self, pipeline: Any, split: str, input_fn: Callable | None = None):
        """Reads nothing yet; `input_fn` replaces that of `pipeline.predict_input_fn`."""
        self._pipeline, self.what, self._input_fn = pipeline, split, input_fn

    @property
    def size(self) -> int:
        """Number of examples."""
        return self._pipeline.data.split(self.what).num_examples

    @property
    def input_fn(self) -> Callable:
        """The input_fn."""
        return self._input_fn or self._pipeline.predict_input_fn(self.what)

    def names(self) -> Iterator[str] | None:
        """Returns the names of the source files; None without names, or in another order."""
        return None if self._input_fn else self._pipeline.file_names(self.what)

    def count(self) -> int:
        """Returns `size`."""
        return self.size


class PredictionWriter(Protocol):
    """Writes predictions.

    Attributes:
      endings: how the name of the output may end, the default first; () if it is a folder.
    """

    endings: Sequence[str]

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a file atomically, or files into a folder.

        Args:
          path: path of the file or folder.
          batches: `{name: array [n, ...]}` in order, with "name" if the examples have names. The
            iterator ends with a DataError if the number of predictions is wrong.
        """


class RowWriter:
    """Writes a line of JSON for each example, or arrays as .npz."""

    endings = (".jsonl", ".npz")

    def __init__(self, class_names: Sequence[str] = ()):
        """Takes the class names in the order of the predicted classes; () without names."""
        self.class_names = np.array(class_names)

    def columns(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the columns of a batch; a TPU computes no strings, so they are added here."""
        if len(self.class_names) and np.ndim(batch.get("classes")) == 1:
            batch = {**batch, "class_names": self.class_names[batch["classes"]]}
        return batch

    def line(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the values of a line from those of an example; adds the names of its labels."""
        labels = row.get("labels")
        if isinstance(labels, list) and len(labels) == len(self.class_names):
            row = {**row, "class_names": self.class_names[np.flatnonzero(labels)].tolist()}
        return row

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a file; see `PredictionWriter`."""
        write = self._write_npz if path.endswith(".npz") else self._write_jsonl
        with files.atomic_write(path, "wb") as file:
            write(file, map(self.columns, batches))

    def _write_jsonl(self, file, batches):
        index = 0
        for batch in batches:
            for name, values in batch.items():
                if values.dtype.kind == "c":
                    raise UsageError(
                        f"the prediction '{name}' is {values.dtype}, which JSON cannot hold. Write "
                        "arrays: --predict_output=PATH.npz"
                    )
            columns = {name: values.tolist() for name, values in batch.items()}
            for row in zip(*columns.values()):
                line = self.line({"index": index, **dict(zip(columns, row))})
                file.write(json.dumps(line, default=bytes.decode).encode() + b"\n")
                index += 1

    def _write_npz(self, file, batches):
        batches = list(batches)
        columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        archive = io.BytesIO()  # np.savez seeks, which gs:// files do not support
        np.savez(archive, **columns)
        file.write(archive.getvalue())


def examples_of(pipeline: Any, split: str, path: str) -> Examples:
    """Returns the examples of a split, or those in `path` if it is not "".

    Raises:
      UsageError: there is a path, but the pipeline reads no files.
      DataError: the path has no examples.
    """
    if not path:
        make = getattr(pipeline, "split_examples", functools.partial(SplitExamples, pipeline))
        return make(split)
    module, _, attribute = getattr(pipeline, "file_examples", "").partition(":")
    if not module:
        raise UsageError(
            f"--input={path} needs a data set of images, audio or plain texts, unlike "
            f"{pipeline.data.name}. Prepare the examples with prepare_data.py, without labels, and "
            "predict their split with --data_dir and --eval_split"
        )
    # Few runs need the code that reads files outside of data sets.
    return getattr(importlib.import_module(module), attribute)(path, pipeline)


def writer_of(pipeline: Any, examples: Examples, overlay_dir: str = "") -> PredictionWriter:
    """Returns the writer of a pipeline; `RowWriter` for one without.

    Args:
      pipeline: the pipeline of the data set.
      examples: what is predicted.
      overlay_dir: folder for images with their predictions; "" for none.

    Raises:
      UsageError: there is a folder, but the pipeline draws nothing.
    """
    if hasattr(pipeline, "prediction_writer"):
        writer = pipeline.prediction_writer(examples)
    else:
        writer = RowWriter(pipeline.data.all_class_names)
    if overlay_dir and not hasattr(pipeline, "overlay_writer"):
        raise UsageError(
            f"--overlay_dir={overlay_dir} draws boxes, masks and classes of pixels into images, "
            f"but {pipeline.data.name} has none of them. Leave it out"
        )
    return pipeline.overlay_writer(writer, overlay_dir, examples) if overlay_dir else writer
