"""Runtimes that serve a SavedModel, after converting it if necessary.

All run the raw signature: `runtime(inputs) -> outputs`, both `{name: array [batch, ...]}`.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.eager import context

from engine.serving import model_card
from input_fns.core import serving
from tools import c_runtime

_THREADS = os.cpu_count()


def signatures(path: str) -> dict[str, meta_graph_pb2.SignatureDef]:
    """Returns the signatures of the SavedModel at `path`."""
    return dict(model_card.read(path).meta_graphs[0].signature_def)


class Runtime:
    """A loaded SavedModel."""

    def __init__(self, path: str):
        """Loads the SavedModel in the folder `path`."""
        self.path = path

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs of the raw signature."""
        return self._answer(inputs)

    def _answer(self, inputs):
        raise NotImplementedError

    def seconds(self, inputs: dict[str, np.ndarray], repeats: int) -> float:
        """Returns the median time of a call."""
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            self(inputs)
            times.append(time.perf_counter() - start)
        return float(np.median(times))


class SavedModel(Runtime):
    """`tf.saved_model.load` in Python."""

    def __init__(self, path):
        super().__init__(path)
        with context.eager_mode():
            self._model = tf.saved_model.load(path)
            # A graph of TensorFlow 1 that is called as it is loaded is not optimized.
            self._call = tf.function(self._model.signatures[serving.RAW], autograph=False)

    def _answer(self, inputs):
        with context.eager_mode():
            fed = {name: tf.constant(array) for name, array in inputs.items()}
            return {name: tensor.numpy() for name, tensor in self._call(**fed).items()}


class CommandLine(Runtime):
    """`saved_model_cli run`, one process per call."""

    def _answer(self, inputs):
        with tempfile.TemporaryDirectory() as folder:
            fed = []
            for i, (name, array) in enumerate(inputs.items()):  # "a/b" is a nested feature
                np.save(os.path.join(folder, f"input_{i}.npy"), array)
                fed.append(f"{name}={folder}/input_{i}.npy")
            command = [
                os.path.join(os.path.dirname(sys.executable), "saved_model_cli"),
                *("run", "--dir", self.path, "--tag_set", "serve", "--signature_def", serving.RAW),
                *("--inputs", ";".join(fed), "--outdir", folder, "--overwrite"),
            ]
            subprocess.run(command, check=True, capture_output=True)
            names = signatures(self.path)[serving.RAW].outputs
            return {
                name: np.load(os.path.join(folder, f"{name}.npy"), allow_pickle=True)
                for name in names
            }


class CApi(Runtime):
    """TensorFlow's C API, with the loader of TensorFlow Serving."""

    def __init__(self, path):
        super().__init__(path)
        c_runtime.build()

    def run(self, signature, inputs, repeats=1):
        """Returns (outputs of a signature, median time of a run)."""
        found = signatures(self.path)[signature]
        return c_runtime.run(self.path, found, inputs, repeats)

    def _answer(self, inputs):
        return self.run(serving.RAW, inputs)[0]

    def seconds(self, inputs, repeats):
        """Returns the median time of a run, measured in C."""
        return self.run(serving.RAW, inputs, repeats)[1]


class Lite(Runtime):
    """TensorFlow Lite, without quantization."""

    def __init__(self, path, threads=_THREADS):
        super().__init__(path)
        with context.eager_mode():
            converter = tf.lite.TFLiteConverter.from_saved_model(path, signature_keys=[serving.RAW])
            self._model = converter.convert()
        self._threads = threads
        self._runners = {}

    def _answer(self, inputs):
        batch_size = len(next(iter(inputs.values())))
        if batch_size not in self._runners:
            # One interpreter per batch size: resizing allocates the tensors again.
            interpreter = tf.lite.Interpreter(model_content=self._model, num_threads=self._threads)
            self._runners[batch_size] = interpreter.get_signature_runner(serving.RAW)
        return self._runners[batch_size](**inputs)


class Onnx(Runtime):
    """ONNX Runtime, converted by tf2onnx."""

    def __init__(self, path, threads=_THREADS):
        super().__init__(path)
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.onnx")
            command = [sys.executable, "-m", "tf2onnx.convert", "--saved-model", path]
            command += ["--tag", "serve", "--signature_def", serving.RAW, "--opset", "17"]
            subprocess.run([*command, "--output", file], check=True, capture_output=True)
            # It would give the zeros that are padded before a max pooling the value -inf.
            disabled = ["Pad_Fusion"]
            self._session = onnxruntime.InferenceSession(
                file, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
            )

    def _answer(self, inputs):
        names = [output.name for output in self._session.get_outputs()]
        # tf2onnx reads names of arguments in Python: "a_b" of a nested feature "a/b".
        fed = {re.sub(r"\W", "_", name): array for name, array in inputs.items()}
        return dict(zip(names, self._session.run(names, fed)))


class OpenVino(Runtime):
    """OpenVINO, which reads SavedModels; in float32 (its default may be bfloat16)."""

    def __init__(self, path, threads=_THREADS):
        super().__init__(path)
        import openvino

        core = openvino.Core()
        options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
        model = core.read_model(path)
        # A compiled output may also have the name of an internal tensor.
        self._names = [output.any_name for output in model.outputs]
        self._compiled = core.compile_model(model, "CPU", options)

    def _answer(self, inputs):
        answer = self._compiled(inputs)
        return {name: answer[i] for i, name in enumerate(self._names)}


class Triton(Runtime):
    """NVIDIA Triton with its Python backend, one server per call, by the Python `TRITON_PYTHON`."""

    def _answer(self, inputs):
        with tempfile.TemporaryDirectory() as folder:
            requests, answers = (os.path.join(folder, name) for name in ("in.npz", "out.npz"))
            np.savez(requests, **inputs)
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "triton_once.py")
            site_packages = os.path.dirname(os.path.dirname(tf.__file__))
            command = [os.environ["TRITON_PYTHON"], script, self.path, requests, answers]
            subprocess.run([*command, site_packages], check=True, capture_output=True)
            with np.load(answers, allow_pickle=True) as file:
                return dict(file)


RUNTIMES = {
    "tf.saved_model.load": SavedModel,
    "saved_model_cli": CommandLine,
    "C API": CApi,
    "TensorFlow Lite": Lite,
    "ONNX Runtime": Onnx,
    "OpenVINO": OpenVino,
    "Triton": Triton,
}
# Runtimes with TensorFlow kernels.
TENSORFLOW_RUNTIMES = ("tf.saved_model.load", "saved_model_cli", "C API", "Triton")


@functools.cache
def missing(name: str) -> str:
    """Returns the missing dependency of a runtime and how to install it; "" if none."""
    if name == "Triton" and not os.environ.get("TRITON_PYTHON"):
        return "TRITON_PYTHON: docs/serving.md"
    if name == "C API" and not c_runtime.find_compiler():
        return "a C compiler: cc or gcc"
    needed = {"ONNX Runtime": ("onnxruntime", "tf2onnx"), "OpenVINO": ("openvino",)}
    for module in needed.get(name, ()):
        try:
            __import__(module)
        except ImportError:
            return f"{module}: tools/setup.sh tensorflow serving"
    return ""
