"""Lint rules: what a TPU cannot run, computes wrongly or wastes in the step of one core.

To add a rule, write a generator with the decorator `@rule` in the section "Rules". It takes a
`Step` and yields (level, code, message, operation or None); the line of the user's code is added
from the operation. List a new code in the table of findings in docs/check.md, and test it in
tests/tpu/check/test_check.py.

`kernels.json.gz` lists the operations with TPU kernels; `tools/kernel_table.py` wrote it.
"""

from __future__ import annotations

import functools
import gzip
import json
import math
import os
from collections.abc import Iterator

import tensorflow as tf

from tpu.check.sizes import GRADIENTS
from tpu.emulator.replicated_graph import ReplicatedGraph
from tpu.findings import ERROR, NOTE, WARNING, Finding, user_line

_KERNELS_PATH = os.path.join(os.path.dirname(__file__), "kernels.json.gz")
# Operations without a kernel that the TPU runtime or the compiler handles.
_RUNTIME_OPS = (
    *("InfeedDequeueTuple", "OutfeedEnqueueTuple", "TPUReplicatedInput", "TPUReplicatedOutput"),
    *("Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"),
    *("While", "StatelessWhile", "If", "StatelessIf"),
)
# `{code: (operation types, what to do)}` of operations that only a host can run.
_HOST_OPS = {
    "summary": (
        (
            *("ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummaryV2"),
            *("TensorSummary", "TensorSummaryV2", "MergeSummary", "WriteScalarSummary"),
            *("WriteSummary", "WriteImageSummary", "WriteHistogramSummary"),
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
_AUGMENTATION_OPS = (
    *("ImageProjectiveTransformV2", "ImageProjectiveTransformV3", "CropAndResize"),
    *("AdjustContrastv2", "AdjustHue", "AdjustSaturation", "RGBToHSV", "HSVToRGB"),
    *("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "RandomCrop"),
)
_LAYER_OPS = ("Conv2D", "MatMul", "BatchMatMulV2", "Conv3D")

_RULES = []


def rule(function):
    """Registers a rule."""
    _RULES.append(function)
    return function


class Step:
    """A step of one core.

    Attributes:
      program: the operations, of `graph_builder.build_step` with version 1 control flow.
      mode: "train", "eval" or "infer".
      batch_size: per core.
      operations: list of the operations.
    """

    def __init__(self, program: ReplicatedGraph, mode: str, batch_size: int):
        self.program, self.mode, self.batch_size = program, mode, batch_size
        self.operations = list(program.operations.values())

    @functools.cached_property
    def updates(self) -> list[tf.Operation]:
        """The operations that update a variable."""
        types = ("Assign", "ResourceApply")
        return [op for op in self.operations if op.type.startswith(types) and op.op_def.is_stateful]

    @functools.cached_property
    def updates_by_variable(self) -> dict[str, list[tf.Operation]]:
        """`{name of a variable: the operations that update it}`."""
        found = {}
        for op in self.updates:
            found.setdefault(_variable_name(op), []).append(op)
        return found

    @functools.cached_property
    def trainable(self) -> set[str]:
        """Names of the trainable variables."""
        graph = self.operations[0].graph if self.operations else tf.Graph()
        variables = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
        return {variable.handle.op.name for variable in variables}

    def find_ops(self, *types) -> list[tf.Operation]:
        """Returns the operations of these types."""
        return [op for op in self.operations if op.type in types]


def apply_rules(program: ReplicatedGraph, mode: str, batch_size: int) -> list[Finding]:
    """Returns the findings of all rules; see `Step` for the arguments."""
    step = Step(program, mode, batch_size)
    mode_flag = {"infer": "predict"}.get(mode, mode)
    found = {}
    for find in _RULES:
        for level, code, message, op in find(step):
            place = user_line(op) if op is not None else ""
            found.setdefault(
                (code, message, place), Finding(level, code, message, place, mode_flag)
            )
    return list(found.values())


def kernels_provenance() -> str:
    """Returns the source of the table of TPU kernels."""
    return _kernel_table()["provenance"]


@functools.cache
def _kernel_table():
    with gzip.open(_KERNELS_PATH) as file:
        return json.load(file)


# ---- Rules ----


@rule
def check_kernels(step) -> Iterator[tuple]:
    """Codes op, dtype, string and those of _HOST_OPS: operations without a TPU kernel."""
    host_codes = {kind: code for code, (kinds, _) in _HOST_OPS.items() for kind in kinds}
    kernels = _kernel_table()["kernels"]
    for op in step.operations:
        if op.type in host_codes:
            code = host_codes[op.type]
            yield ERROR, code, f"{op.type} '{op.name}': {_HOST_OPS[code][1]}", op
        elif any(tensor.dtype == tf.string for tensor in op.outputs):
            yield ERROR, "string", f"{op.type} returns a string, which a TPU does not support", op
        elif op.type not in kernels and op.type not in _RUNTIME_OPS:
            hint = ". Use it in the input_fn" if op.type in _AUGMENTATION_OPS else ""
            yield ERROR, "op", f"{op.type} has no TPU kernel{hint}", op
        else:
            for name, allowed in kernels.get(op.type, {}).items():
                for dtype in _dtypes(op, name):
                    if dtype.base_dtype.name not in allowed:
                        yield ERROR, "dtype", f"{op.type} of {dtype.name} has no TPU kernel", op


@rule
def check_augmentation(step):
    """Image augmentation on the TPU, which the host could do in the input_fn."""
    kernels = _kernel_table()["kernels"]
    for op in step.find_ops(*_AUGMENTATION_OPS):
        if op.type in kernels:
            message = f"{op.type} augments images on the TPU. Move it to the input_fn, on the host"
            yield WARNING, "augmentation", message, op


@rule
def check_dynamic_shapes(step):
    """Operations whose output shape depends on data."""
    for op in step.operations:
        # Reserved outputs of FusedBatchNormV3 have no static shape, and need none.
        is_exempt = op.type in _RUNTIME_OPS or op.type == "FusedBatchNormV3"
        is_inherited = any(_is_dynamic(tensor) for tensor in op.inputs)
        if is_exempt or is_inherited or op.name not in step.program.live:
            continue
        for tensor in op.outputs:
            if _is_dynamic(tensor) and tensor.consumers():
                message = (
                    f"{op.type} has the dynamic shape {tensor.shape}: XLA may fail or pad it. Use "
                    "a static shape and a mask"
                )
                yield WARNING, "dynamic-shape", message, op


@rule
def check_float64(step):
    """float64 operations."""
    for op in step.operations:
        if any(tensor.dtype == tf.float64 for tensor in op.outputs):
            yield WARNING, "float64", f"{op.type} in float64, which a TPU emulates slowly", op


@rule
def check_batch_size(step):
    """Batches that differ from params['batch_size'], or waste tiles."""
    for tensor in step.program.infeed:
        rows = tensor.shape[0] if tensor.shape.rank else None
        if rows is not None and rows != step.batch_size and tensor.dtype != tf.bool:
            message = (
                f"input_fn returns {tensor.shape} per core, but params['batch_size'] is "
                f"{step.batch_size}. Batch by params['batch_size']"
            )
            yield ERROR, "batch", message, None
    if step.batch_size % 8:
        share = step.batch_size / (math.ceil(step.batch_size / 8) * 8)
        message = (
            f"a per-core batch of {step.batch_size} is not a multiple of 8: "
            f"{1 - share:.0%} of each tile is padding"
        )
        yield WARNING, "batch-of-8", message, None


@rule
def check_infeed_dtype(step):
    """Images in float32 on the infeed."""
    for tensor in step.program.infeed:
        if tensor.shape.rank == 4 and tensor.dtype == tf.float32:
            message = (
                f"images {tensor.shape} are fed as float32. uint8 images, scaled on the TPU, take "
                "a quarter of the infeed"
            )
            yield NOTE, "infeed-float", message, None


@rule
def check_cross_replica_sums(step):
    """Updates of trainable variables with the gradients of a single core."""
    if step.mode != "train":
        return
    for op in step.updates:
        is_training = op.type.startswith("ResourceApply") or _variable_name(op) in step.trainable
        if is_training and _depends_on_one_core(step, op):
            message = (
                f"'{_variable_name(op)}' is updated with the gradient of one core only. Wrap the "
                "optimizer in tf.compat.v1.tpu.CrossShardOptimizer if params['use_tpu']"
            )
            yield ERROR, "no-cross-replica-sum", message, op


@rule
def check_unused_updates(step):
    """Updates that the train_op does not depend on. Unused updates of an evaluation are fine."""
    if step.mode != "train":
        return
    for op in step.updates:
        if op.name not in step.program.live:
            message = (
                f"'{_variable_name(op)}' is never updated: the train_op does not depend on its "
                "update. Run the UPDATE_OPS before the train_op. Keras layers add none: in a model "
                "of this package use models.layers.normalization.batch_norm"
            )
            yield ERROR, "update-never-runs", message, op


@rule
def check_captures(step):
    """Tensors from outside of model_fn."""
    for name, tensor in step.program.external_tensors.items():
        if tensor.op.type not in ("VarHandleOp", "TPUReplicatedInput", "Const"):
            message = (
                f"the model uses '{name}' ({tensor.op.type}), which is created outside of model_fn "
                "or on the host"
            )
            yield ERROR, "capture", message, tensor.op


@rule
def check_tiles(step):
    """Layers whose channels do not fill the tiles of 8 x 128."""
    layers = [op for op in step.find_ops(*_LAYER_OPS) if not GRADIENTS.search(op.name)]
    for op in layers[1:-1]:  # the data determines the sizes of the first and the last layer
        sizes = op.inputs[1].shape.as_list()[-2:]
        if None not in sizes and any(size % 8 for size in sizes):
            padded = [math.ceil(size / 8) * 8 for size in sizes]
            waste = 1 - math.prod(sizes) / math.prod(padded)
            message = (
                f"{op.type} from {sizes[0]} to {sizes[1]} channels: {waste:.0%} of its weights is "
                "padding. Use multiples of 8, or better of 128"
            )
            yield WARNING, "tiles", message, op


# ---- Helpers of the rules ----


def _dtypes(op, attribute):
    try:
        value = op.get_attr(attribute)
    except ValueError:
        return []
    values = value if isinstance(value, list) else [value]
    return [value for value in values if isinstance(value, tf.DType)]


def _is_dynamic(tensor):
    return tensor.dtype not in (tf.resource, tf.variant) and not tensor.shape.is_fully_defined()


def _depends_on_one_core(step, update):
    """Returns True if infeed data reaches an operation other than through a CrossReplicaSum.

    Follows non-trainable variables too, such as those that accumulate gradients.
    """
    seen, pending = set(), [update]
    while pending:
        op = pending.pop()
        if op.type == "InfeedDequeueTuple":
            return True
        if op.name not in seen and op.type != "CrossReplicaSum":
            seen.add(op.name)
            pending += [tensor.op for tensor in op.inputs]
            if op.type == "ReadVariableOp" and _variable_name(op) not in step.trainable:
                pending += step.updates_by_variable.get(_variable_name(op), [])
    return False


def _variable_name(op):
    handle = op.inputs[0].op
    while handle.type in ("Enter", "Identity"):
        handle = handle.inputs[0].op
    return handle.name
