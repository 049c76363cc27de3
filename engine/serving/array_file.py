"""Groups of arrays in an .npz file, read without pickle: unpickling can run any code."""

from __future__ import annotations

import json

import numpy as np
import tensorflow as tf

_INDEX = "index"


def save(path: str, groups: dict[str, dict[str, np.ndarray]]) -> None:
    """Writes `{group: {name: array}}`. Arrays of strings are stored as bytes and lengths."""
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


def load(path: str) -> dict[str, dict[str, np.ndarray]]:
    """Reads a file of `save`. Arrays of strings have dtype object and elements of type bytes."""
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
