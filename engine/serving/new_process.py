"""Runs the signatures of a SavedModel in a new process, which loads it like a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

from common.errors import RunError
from input_fns.core import serving

_REQUESTS, _ANSWERS = "requests.npz", "answers.npz"
# `python -c` puts the working folder first in sys.path, so a numpy.py there would be imported.
_PROGRAM = (
    "import sys; sys.path = [sys.argv[1], *filter(None, sys.path)]; "
    "from engine.serving import new_process; new_process.serve(*sys.argv[2:])"
)
_INDEX = "index"


class ExportError(RunError):
    """A SavedModel cannot be loaded, or its outputs differ from the predictions."""


def run(path: str, requests: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """Runs signatures of a SavedModel in a new process.

    Args:
      path: path of the SavedModel.
      requests: `{signature: {input: array [batch, ...]}}`.

    Returns:
      `{signature: {output: array [batch, ...]}}`.

    Raises:
      ExportError: it cannot be loaded, or a signature fails.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = {
        **os.environ,
        "PYTHONPATH": _python_path(),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # This process occupies the GPU or TPU.
        "CUDA_VISIBLE_DEVICES": "-1",
        "TPU_LOAD_LIBRARY": "0",
    }
    with tempfile.TemporaryDirectory() as folder:
        save_arrays(os.path.join(folder, _REQUESTS), requests)
        command = [sys.executable, "-c", _PROGRAM, root, path, folder]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace"
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise ExportError(f"a new process cannot load and run it: {lines[-1]}")
        return load_arrays(os.path.join(folder, _ANSWERS))


def _python_path():
    """Returns PYTHONPATH without the working folder, which "." or an empty entry names."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    kept = [path for path in given if os.path.isabs(path) or os.path.normpath(path) != "."]
    return os.pathsep.join(map(os.path.abspath, kept))


def serve(path: str, folder: str) -> None:
    """Runs the requests in `folder` through the SavedModel at `path`; runs in the new process."""
    requests = load_arrays(os.path.join(folder, _REQUESTS))
    if {serving.TEXT, serving.EMBED_TEXT} & requests.keys():
        import tensorflow_text  # noqa: F401 registers its ops
    answers = {}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
        for name, inputs in requests.items():
            signature = meta_graph.signature_def[name]
            answers[name] = session.run(
                {key: tensor.name for key, tensor in signature.outputs.items()},
                {signature.inputs[key].name: array for key, array in inputs.items()},
            )
    save_arrays(os.path.join(folder, _ANSWERS), answers)


def save_arrays(path: str, groups: dict[str, dict[str, np.ndarray]]) -> None:
    """Writes `{group: {name: array}}` to an .npz file, strings as bytes and lengths.

    It is read without pickle, as unpickling can run any code.
    """
    index, stored = [], {}
    for group, arrays in groups.items():
        for name, array in arrays.items():
            is_text = array.dtype.kind in "OSU"
            entry = {"group": group, "name": name, "shape": array.shape, "is_text": is_text}
            number = len(index)
            if is_text:
                texts = [text.encode() if isinstance(text, str) else text for text in array.flat]
                stored[f"{number}_lengths"] = np.array([len(text) for text in texts], np.int64)
                array = np.frombuffer(b"".join(texts), np.uint8)
            else:
                entry["dtype"] = tf.as_dtype(array.dtype).name
            stored[f"{number}"] = array
            index.append(entry)
    stored[_INDEX] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez(path, **stored)


def load_arrays(path: str) -> dict[str, dict[str, np.ndarray]]:
    """Reads a file of `save_arrays`. Arrays of strings have dtype object and hold bytes."""
    groups = {}
    with np.load(path, allow_pickle=False) as stored:
        for number, entry in enumerate(json.loads(stored[_INDEX].tobytes())):
            array = stored[f"{number}"]
            if entry["is_text"]:
                array = _split_texts(array.tobytes(), stored[f"{number}_lengths"], entry["shape"])
            else:
                # NumPy stores bfloat16 as raw bytes.
                array = array.view(tf.as_dtype(entry["dtype"]).as_numpy_dtype)
            groups.setdefault(entry["group"], {})[entry["name"]] = array
    return groups


def _split_texts(data, lengths, shape):
    ends = np.cumsum(lengths)
    array = np.empty(len(lengths), object)
    array[:] = [data[end - length : end] for end, length in zip(ends, lengths)]
    return array.reshape(shape)
