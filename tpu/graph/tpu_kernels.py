"""Which operations have a TPU kernel, and what to do about those that have none.

`tpu_kernels.json.gz` lists the operations with TPU kernels; `tools/kernel_table.py` wrote it.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import re

import tensorflow as tf

_PATH = os.path.join(os.path.dirname(__file__), "tpu_kernels.json.gz")
# Operations without a kernel that the TPU runtime or the compiler handles.
RUNTIME_OPS = (
    *("InfeedDequeueTuple", "OutfeedEnqueueTuple", "TPUReplicatedInput", "TPUReplicatedOutput"),
    *("TPUPartitionedInput", "TPUPartitionedInputV2", "TPUPartitionedOutput"),
    *("TPUPartitionedOutputV2", "TPUEmbeddingActivations", "VarHandleOp"),
    *("RecvTPUEmbeddingActivations", "SendTPUEmbeddingGradients"),
    *("Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"),
    *("While", "StatelessWhile", "If", "StatelessIf"),
)
# `{code: (operation types, what to do)}` of operations that only a host can run.
HOST_OPS = {
    "summary": (
        (
            *("ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummary"),
            *("AudioSummaryV2", "TensorSummary", "TensorSummaryV2", "MergeSummary"),
            *("WriteSummary", "WriteScalarSummary", "WriteImageSummary", "WriteHistogramSummary"),
            *("WriteAudioSummary", "WriteGraphSummary", "WriteRawProtoSummary"),
        ),
        "a TPU cannot write summaries. Pass the tensor to host_call",
    ),
    "py_func": (
        ("PyFunc", "PyFuncStateless", "EagerPyFunc"),
        "a TPU cannot run Python. Call it in the input_fn, or use TensorFlow operations",
    ),
    "print": (
        ("Print", "PrintV2", "StringFormat"),
        "a TPU cannot print. Pass the tensor to host_call",
    ),
    "placeholder": (
        ("Placeholder", "PlaceholderV2"),
        "a TPU loop cannot be fed. Use features or params",
    ),
}
_HOST_CODES = {kind: code for code, (kinds, _) in HOST_OPS.items() for kind in kinds}
# Host operations without effect if no other operation depends on them.
SILENT_IF_UNUSED = ("summary", "print")
AUGMENTATION_OPS = (
    *("ImageProjectiveTransformV2", "ImageProjectiveTransformV3", "CropAndResize"),
    *("AdjustContrastv2", "AdjustHue", "AdjustSaturation", "RGBToHSV", "HSVToRGB"),
    *("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "RandomCrop"),
)


def provenance() -> str:
    """Returns the source of the table."""
    return _table()["provenance"]


def has_kernel(op_type: str) -> bool:
    """Returns True if a TPU has a kernel for an operation, of some dtype."""
    return op_type in _table()["kernels"]


def host_code(op: tf.Operation) -> str:
    """Returns the code of `HOST_OPS` of an operation; "" if it is none of them."""
    return _HOST_CODES.get(op.type, "")


def label(op: tf.Operation) -> str:
    """Returns how messages name an operation: "tf.print", or its type and, if it differs, name."""
    if op.type == "PrintV2" or (op.type == "StringFormat" and _is_printed(op)):
        return "tf.print"  # both operations: the same message on the same line is one finding
    return op.type if re.sub(r"_\d+$", "", op.name) == op.type else f"{op.type} '{op.name}'"


def find_fault(op: tf.Operation) -> tuple[str, str] | None:
    """Returns (code, message) if a TPU cannot run an operation, else None."""
    kernels, code = _table()["kernels"], host_code(op)
    if code:
        return code, f"{label(op)}: {HOST_OPS[code][1]}"
    if any(tensor.dtype == tf.string for tensor in op.outputs):
        return "string", f"{op.type} returns a string, which a TPU does not support"
    if op.type in RUNTIME_OPS or op.graph._is_function(op.type):  # such as a call of a Defun
        return None
    if op.type not in kernels:
        hint = ". Use it in the input_fn" if op.type in AUGMENTATION_OPS else ""
        return "op", f"{op.type} has no TPU kernel{hint}"
    for name, allowed in kernels[op.type].items():
        for dtype in _dtypes(op, name):
            if dtype.base_dtype.name not in allowed:
                return "dtype", f"{op.type} of {dtype.name} has no TPU kernel"
    return None


def _is_printed(op):
    consumers = op.outputs[0].consumers()
    return bool(consumers) and all(consumer.type == "PrintV2" for consumer in consumers)


@functools.cache
def _table():
    with gzip.open(_PATH) as file:
        return json.load(file)


def _dtypes(op, attribute):
    try:
        value = op.get_attr(attribute)
    except ValueError:
        return []
    values = value if isinstance(value, list) else [value]
    return [value for value in values if isinstance(value, tf.DType)]
