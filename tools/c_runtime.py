"""Runs a SavedModel with TensorFlow's C API, as a model server does.

Compiles `tools/c_runtime.c` against the headers and libraries of the TensorFlow wheel.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2


class ServingError(Exception):
    """The C API failed to load or run the SavedModel."""


_BUILT = tempfile.TemporaryDirectory()  # removed at the end of the process


def find_compiler() -> str | None:
    """Returns the path of a C compiler; None without one."""
    return shutil.which("cc") or shutil.which("gcc")


@functools.cache
def build() -> str:
    """Compiles the program; returns its path.

    Raises:
      FileNotFoundError: no C compiler.
      subprocess.CalledProcessError: the compilation failed.
    """
    path = os.path.join(_BUILT.name, "c_runtime")
    compiler = find_compiler()
    if compiler is None:
        raise FileNotFoundError("no C compiler: neither cc nor gcc")
    source = os.path.splitext(os.path.abspath(__file__))[0] + ".c"
    folder = os.path.dirname(tf.__file__)
    libraries = ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]
    command = [compiler, "-std=gnu11", "-O2", "-Wall", "-Werror", source, "-o", path]
    command += [f"-I{folder}/include", *(f"{folder}/{name}" for name in libraries)]
    if shutil.which("ld.gold"):  # reads the symbols of TensorFlow five times faster than ld.bfd
        command.append("-fuse-ld=gold")
    subprocess.run([*command, f"-Wl,-rpath,{folder}"], check=True, capture_output=True, text=True)
    return path


def run(
    saved_model: str,
    signature: meta_graph_pb2.SignatureDef,
    inputs: dict[str, np.ndarray],
    repeats: int = 1,
) -> tuple[dict[str, np.ndarray], float]:
    """Runs a signature.

    Args:
      saved_model: folder of the SavedModel.
      signature: the signature.
      inputs: `{name: array}`, strings as objects.
      repeats: number of runs.

    Returns:
      (`{output: array}`, median time of a run in seconds).

    Raises:
      ServingError: the C API failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [build(), saved_model, str(repeats)]
        for i, (name, array) in enumerate(inputs.items()):  # "a/b" is a nested feature
            path = os.path.join(folder, f"input_{i}")
            _write(path, np.asarray(array), signature.inputs[name].dtype)
            command += ["i", signature.inputs[name].name, path]
        paths = {
            name: os.path.join(folder, f"output_{i}") for i, name in enumerate(signature.outputs)
        }
        for name, info in signature.outputs.items():
            command += ["o", info.name, paths[name]]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise ServingError(done.stderr.strip() or f"exit status {done.returncode}")
        outputs = {name: _read(path) for name, path in paths.items()}
    return outputs, int(done.stdout) / 1e6


def _write(path, array, dtype):
    with open(path, "wb") as file:
        file.write(np.array([dtype, array.ndim], np.int32).tobytes())
        file.write(np.array(array.shape, np.int64).tobytes())
        if dtype != tf.string.as_datatype_enum:
            file.write(np.ascontiguousarray(array).tobytes())
            return
        for text in array.flat:
            file.write(np.int64(len(text)).tobytes() + text)


def _read(path):
    with open(path, "rb") as file:
        data = file.read()
    dtype, rank = np.frombuffer(data, np.int32, 2)
    shape = np.frombuffer(data, np.int64, rank, 8)
    offset = 8 + 8 * rank
    if dtype != tf.string.as_datatype_enum:
        return np.frombuffer(data, tf.as_dtype(int(dtype)).as_numpy_dtype, -1, offset).reshape(
            shape
        )
    texts = []
    while offset < len(data):
        length = int(np.frombuffer(data, np.int64, 1, offset)[0])
        texts.append(data[offset + 8 : offset + 8 + length])
        offset += 8 + length
    return np.array(texts, object).reshape(shape)
