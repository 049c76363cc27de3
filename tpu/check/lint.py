"""Lint rules: what a TPU cannot run, computes wrongly or wastes in the step of one core.

To add a rule, write a generator with the decorator `@rule` in the section "Rules", or in
`training_rules` if it is about updates of variables. It takes a `Step` and yields (level, code,
message, operation or None), and optionally the wasted bytes; the line of the user's code is added
from the operation. Explain a new code in codes.py, list it in the table of findings in
docs/check.md, and test it in tests/tpu/check/test_lint.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import tensorflow as tf

from tpu.check import kernels, training_rules
from tpu.check.placement import is_outside, nested_operations, used_inputs
from tpu.check.sizes import GRADIENTS
from tpu.check.step import RULES, Step, rule
from tpu.emulator.replicated_graph import ReplicatedGraph
from tpu.findings import ERROR, NOTE, WARNING, Finding, user_line

__all__ = ["apply_rules", "training_rules"]

_LAYER_OPS = ("Conv2D", "MatMul", "BatchMatMulV2", "Conv3D")
_INPUT_OPS = ("VarHandleOp", "TPUReplicatedInput", "TPUPartitionedInput", "TPUPartitionedInputV2")
_IMAGE_CHANNELS = (1, 3, 4)


def apply_rules(
    program: ReplicatedGraph, mode: str, batch_size: int, num_replicas: int = 2
) -> list[Finding]:
    """Returns the findings of all rules; see `Step` for the arguments."""
    step = Step(program, mode, batch_size, num_replicas)
    mode_name = {"infer": "predict"}.get(mode, mode)
    found = {}
    for find in RULES:
        for level, code, message, op, *waste in find(step):
            place = user_line(op) if op is not None else ""
            finding = Finding(level, code, message, place, mode_name, *waste)
            found.setdefault((code, message, place), finding)
    return list(found.values())


# ---- Rules ----


@rule
def check_kernels(step) -> Iterator[tuple]:
    """Codes op, dtype, string and those of kernels.HOST_OPS: operations without a TPU kernel."""
    for op in step.operations:
        fault = kernels.find_fault(op)
        if fault:
            yield ERROR, *fault, op
        for inner in nested_operations(op):
            fault = kernels.find_fault(inner)
            if is_outside(inner) or (fault and step.placement.is_automatic):
                yield WARNING, "outside-compilation", _waits(inner, "in a function"), op
            elif fault:
                yield ERROR, *fault, op


@rule
def check_ignored_operations(step):
    """Summaries and prints that nothing depends on: a TPU leaves them out."""
    for op in step.all_operations:
        code = kernels.host_code(op)
        if code in kernels.SILENT_IF_UNUSED and not step.runs(op):
            message = f"{op.type} never runs on a TPU. Pass the tensor to host_call"
            yield WARNING, code, message, op


@rule
def check_outside_compilation(step):
    """Operations that outside compilation places on the host."""
    reason = "has no TPU kernel and" if step.placement.is_automatic else "is marked and"
    for op in step.placement.on_host.values():
        is_cheap = op.type in (*kernels.RUNTIME_OPS, "Const", "Identity", "NoOp", "Cast", "Reshape")
        if not is_cheap:
            yield WARNING, "outside-compilation", _waits(op, reason), op


@rule
def check_augmentation(step):
    """Image augmentation on the TPU, which the host could do in the input_fn."""
    for op in step.find_ops(*kernels.AUGMENTATION_OPS):
        if kernels.has_kernel(op.type):
            message = f"{op.type} augments images on the TPU. Move it to the input_fn, on the host"
            yield WARNING, "augmentation", message, op


@rule
def check_dynamic_shapes(step):
    """Operations whose output shape depends on data."""
    for op in step.operations:
        # Reserved outputs of FusedBatchNormV3 have no static shape, and need none.
        is_exempt = op.type in (*kernels.RUNTIME_OPS, "FusedBatchNormV3") or op.name in step.static
        if is_exempt or any(_is_dynamic(tensor) for tensor in op.inputs):
            continue
        for tensor in op.outputs:
            if _is_dynamic(tensor) and _is_read(step, tensor):
                message = (
                    f"{op.type} has the dynamic shape {tensor.shape}: XLA may fail or pad it. Use "
                    "a static shape and a mask"
                )
                yield WARNING, "dynamic-shape", message, op


@rule
def check_float64(step):
    """float64 operations."""
    for op in step.operations:
        is_wide = any(tensor.dtype == tf.float64 for tensor in op.outputs)
        if is_wide and op.name not in step.static:
            yield WARNING, "float64", f"{op.type} in float64, which a TPU emulates slowly", op


@rule
def check_batch_of_8(step):
    """Per-core batches that waste tiles."""
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
        sizes = tensor.shape.as_list()
        is_image = len(sizes) == 4 and sizes[-1] in _IMAGE_CHANNELS and min(sizes[1:3]) >= 8
        if is_image and tensor.dtype == tf.float32:
            message = (
                f"images {tensor.shape} are fed as float32. uint8 images, scaled on the TPU, take "
                "a quarter of the infeed"
            )
            yield NOTE, "infeed-float", message, None, 3 * tensor.shape.num_elements()


@rule
def check_captures(step):
    """Tensors from outside of model_fn."""
    used = {t.name for op in step.operations for t in used_inputs(op)}
    for name, tensor in step.program.external_tensors.items():
        if tensor.op.type in (*_INPUT_OPS, "Const") or name not in used:
            continue
        if tensor.dtype in (tf.resource, tf.variant, tf.string) or tensor.op.type == "Placeholder":
            message = (
                f"the model uses '{name}' ({tensor.op.type}), which is created outside of model_fn "
                "or on the host"
            )
            yield ERROR, "capture", message, tensor.op
        else:
            message = (
                f"the model uses '{name}' ({tensor.op.type}), computed on the host once per "
                "session.run: all steps of a training loop see the same value. Compute it in "
                "model_fn"
            )
            yield WARNING, "capture", message, tensor.op


@rule
def check_tiles(step):
    """Layers whose channels do not fill the tiles of 8 x 128."""
    layers = [op for op in step.find_ops(*_LAYER_OPS) if not GRADIENTS.search(op.name)]
    layers = [op for op in layers if _is_variable(op.inputs[1])]
    for op in layers[1:-1]:  # the data determines the sizes of the first and the last layer
        shape = op.inputs[1].shape
        sizes = shape.as_list()[-2:] if shape.rank else [None]
        if None not in sizes and any(size % 8 for size in sizes):
            padded = [math.ceil(size / 8) * 8 for size in sizes]
            waste = 1 - math.prod(sizes) / math.prod(padded)
            message = (
                f"{op.type} from {sizes[0]} to {sizes[1]} channels: {waste:.0%} of its weights is "
                "padding. Use multiples of 8, or better of 128"
            )
            num_bytes = (shape.num_elements() or 0) * op.inputs[1].dtype.size
            yield WARNING, "tiles", message, op, int(num_bytes * (1 / (1 - waste) - 1))


# ---- Helpers of the rules ----


def _waits(op, reason):
    return (
        f"{op.type} {reason} runs on the host at every step, outside compilation: the core waits "
        "for it. Use host_call or the input_fn"
    )


def _is_variable(tensor):
    """Returns True if a tensor is the value of a variable, possibly cast or reshaped."""
    while tensor.op.type in ("Cast", "Identity", "Reshape", "Transpose", "Enter", "Switch"):
        tensor = tensor.op.inputs[0]
    return tensor.op.type == "ReadVariableOp"


def _is_dynamic(tensor):
    return tensor.dtype not in (tf.resource, tf.variant) and not tensor.shape.is_fully_defined()


def _is_read(step, tensor):
    """Returns True if an operation on the core uses the values of a tensor."""
    readers = [op for op in tensor.consumers() if op.name in step.placement.on_core]
    return any(used is tensor for op in readers for used in used_inputs(op))
