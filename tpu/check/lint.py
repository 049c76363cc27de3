"""Lint rules: what a TPU cannot run, computes wrongly or wastes in the step of one core.

To add a rule, write a generator with the decorator `@rule` in the section "Rules", or in
`training_rules` if it is about updates of variables. It takes a `Step` and yields (level, code,
message, operation or None), and optionally the wasted bytes; the line of the user's code is added
from the operation. Explain a new code in codes.py, list it in the table of findings in
docs/check.md, and test it in tests/tpu/check/test_lint.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import tensorflow as tf

from tpu.check import shape_rules, training_rules, unused_updates
from tpu.check.sizes import round_up_rows, tiled_bytes
from tpu.check.step import RULES, Step, rule
from tpu.findings import ERROR, NOTE, WARNING, Finding
from tpu.graph import tpu_kernels
from tpu.graph.flat_program import place_of
from tpu.graph.placement import used_inputs
from tpu.graph.replicated_graph import ReplicatedGraph
from tpu.graph.variables import variable_name
from tpu.graph.walks import root

__all__ = ["apply_rules", "shape_rules", "training_rules", "unused_updates"]

_LAYER_OPS = ("Conv2D", "MatMul", "BatchMatMulV2", "Conv3D")
_INPUT_OPS = ("VarHandleOp", "TPUReplicatedInput", "TPUPartitionedInput", "TPUPartitionedInputV2")
_CHEAP_OPS = ("Const", "Identity", "NoOp", "Cast", "Reshape")
_IMAGE_CHANNELS = (1, 3, 4)
_AUGMENTATION_SCOPE = re.compile(
    r"(?:^|.*?/)(random_(?:flip_left_right|flip_up_down|brightness|contrast|saturation|hue|crop))"
    r"(?:_\d+)?/"
)
_LEARNING_PHASE = re.compile(r"(?:^|/)keras_learning_phase(?:_\d+)?$")
_MIN_PADDING = 0.05  # share of padding that is worth a finding


def apply_rules(program: ReplicatedGraph, mode: str, *arguments) -> list[Finding]:
    """Returns the findings of all rules; see `Step` for the arguments."""
    step = Step(program, mode, *arguments)
    mode_name = {"infer": "predict"}.get(mode, mode)
    found = {}
    for find in RULES:
        for level, code, message, op, *waste in find(step):
            place = place_of(op) if op is not None else ""
            finding = Finding(level, code, message, place, mode_name, *waste)
            found.setdefault((code, message, place), finding)
    return list(found.values())


# ---- Rules ----


@rule
def check_kernels(step) -> Iterator[tuple]:
    """Codes op, dtype, string and those of HOST_OPS: operations without a TPU kernel."""
    for op in step.operations:
        if op.name in step.merged_summaries:  # see check_merged_summaries
            continue
        fault = tpu_kernels.find_fault(op)
        if fault:
            yield ERROR, *fault, op


@rule
def check_ignored_operations(step):
    """Summaries and prints that nothing depends on: a TPU leaves them out."""
    for op in step.all_operations:
        code = tpu_kernels.host_code(op)
        is_silent = code in tpu_kernels.SILENT_IF_UNUSED and op.name not in step.merged_summaries
        if is_silent and not step.runs(op):
            message = f"{tpu_kernels.label(op)} never runs on a TPU. Pass the tensor to host_call"
            yield WARNING, code, message, op


@rule
def check_merged_summaries(step):
    """Summaries of tf.compat.v1.summary, which end the run when the session is created."""
    for op in step.all_operations:
        if op.name in step.merged_summaries:
            message = (
                f"{tpu_kernels.label(op)} is in the collection SUMMARIES, which the session "
                "merges outside of the TPU loop: the run fails at its start. Remove it, and write "
                "the summary in host_call"
            )
            yield ERROR, "summary", message, op


@rule
def check_outside_compilation(step):
    """Operations that outside compilation places on the host."""
    reason = "has no TPU kernel and" if step.placement.is_automatic else "is marked and"
    level, effect = WARNING, "the core waits for it"
    if step.on_pjrt:
        level, effect = ERROR, "PJRT devices do not support it"
    for op in step.placement.on_host.values():
        if op.type not in (*tpu_kernels.RUNTIME_OPS, *_CHEAP_OPS):
            message = (
                f"{op.type} {reason} runs on the host at every step, outside compilation: "
                f"{effect}. Use host_call or the input_fn"
            )
            yield level, "outside-compilation", message, op


@rule
def check_augmentation(step):
    """Image augmentation on the TPU, which the host could do in the input_fn."""
    scopes = {}  # those of tf.image, whose operations alone may be of anything
    for op in step.operations:
        found = _AUGMENTATION_SCOPE.search(op.name)
        if found:
            scopes.setdefault(found[0], (found[1], op))
    for name, op in scopes.values():
        message = (
            f"tf.image.{name} augments images on the TPU. Move it to the input_fn, on the host"
        )
        yield WARNING, "augmentation", message, op
    for op in step.find_ops(*tpu_kernels.AUGMENTATION_OPS):
        if tpu_kernels.has_kernel(op.type):
            message = f"{op.type} augments images on the TPU. Move it to the input_fn, on the host"
            yield WARNING, "augmentation", message, op


@rule
def check_float64(step):
    """float64 operations."""
    for op in step.operations:
        is_wide = any(tensor.dtype == tf.float64 for tensor in op.outputs)
        if is_wide and op.name not in step.static:
            yield WARNING, "float64", f"{op.type} in float64, which a TPU emulates slowly", op


@rule
def check_batch_of_8(step):
    """Per-core batches that waste tiles, where the batch is a tiled dimension.

    libtpu tiles the batch of convolutions and of matrices; of [batch, length, units] the others.
    """
    size, rows, total, waste = step.batch_size, 0, 0, 0
    for op in step.find_ops(*_LAYER_OPS, "BatchMatMulV3", "Einsum", "DepthwiseConv2dNative"):
        tensor = op.outputs[0]
        if not tensor.shape.is_fully_defined():
            continue
        shape, num_bytes = tensor.shape.as_list(), tiled_bytes(tensor)
        total += num_bytes
        if size and shape[:1] == [size] and (len(shape) == 2 or "Conv" in op.type):
            rows = max(rows, round_up_rows(size, tensor.dtype))
            waste += int(num_bytes * (1 - size / round_up_rows(size, tensor.dtype)))
    if waste >= _MIN_PADDING * total and waste:
        message = (
            f"a per-core batch of {size} is not a multiple of 8: {1 - size / rows:.0%} of each "
            f"tile with the batch is padding, {waste / total:.0%} of the memory of the results of "
            "convolutions and products"
        )
        yield WARNING, "batch-of-8", message, None, waste


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
        if _LEARNING_PHASE.search(tensor.op.name):  # see check_learning_phase
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
def check_learning_phase(step):
    """Keras layers that train as in evaluation: their learning phase is False on a TPU."""
    if step.mode != tf.estimator.ModeKeys.TRAIN:
        return
    for op in step.operations:
        if any(_LEARNING_PHASE.search(tensor.op.name) for tensor in used_inputs(op)):
            message = (
                "a Keras layer is called without training=, so that dropout and batch norm compute "
                "as in evaluation. Pass training=(mode == tf.estimator.ModeKeys.TRAIN)"
            )
            yield WARNING, "capture", message, op


@rule
def check_tiles(step):
    """Layers whose channels do not fill the tiles of 8 x 128."""
    layers = [op for op in step.find_ops(*_LAYER_OPS) if not op.is_gradient]
    layers = {op.name: op for op in layers if _value_of(op.inputs[1]).type == "ReadVariableOp"}
    # The data determines the sizes of the first and the last layer of each network.
    given = _first_layers(step, layers) | _last_layers(step, layers)
    given = {_weights(layers[name]) for name in given}
    of_examples = {size for tensor in step.program.infeed for size in tensor.shape.as_list()[1:]}
    for op in layers.values():
        if _weights(op) in given:
            continue
        shape = op.inputs[1].shape
        sizes = shape.as_list()[-2:] if shape.rank else [None]
        # One channel is a score or a gray image; other sizes may be those of the examples.
        is_chosen = None not in sizes and 1 not in sizes
        if is_chosen and any(size % 8 and size not in of_examples for size in sizes):
            padded = [math.ceil(size / 8) * 8 for size in sizes]
            waste = 1 - math.prod(sizes) / math.prod(padded)
            message = (
                f"{op.type} from {sizes[0]} to {sizes[1]} channels: {waste:.0%} of its weights is "
                "padding. Use multiples of 8, or better of 128"
            )
            num_bytes = (shape.num_elements() or 0) * op.inputs[1].dtype.size
            yield WARNING, "tiles", message, op, int(num_bytes * (1 / (1 - waste) - 1))


# ---- Helpers of the rules ----


def _value_of(tensor):
    """Returns the operation of a value, such as that of a variable, before casts and reshapes."""
    return root(tensor, ("Cast", "Identity", "Reshape", "Transpose", "Enter", "Switch")).op


def _weights(layer):
    """Returns the name of the variable of a layer."""
    return variable_name(_value_of(layer.inputs[1]))


def _first_layers(step, layers):
    """Returns the names of the layers that no other layer comes before."""
    before = set()  # names of the operations after a layer
    for op in step.operations:
        parents = [tensor.op.name for tensor in op.inputs]
        if any(name in before or name in layers for name in parents):
            before.add(op.name)
    return layers.keys() - before


def _last_layers(step, layers):
    """Returns the names of the layers that no other layer follows."""
    after = set()  # names of the operations before a layer
    for op in reversed(step.operations):
        if not op.is_gradient and (op.name in after or op.name in layers):
            after.update(tensor.op.name for tensor in op.inputs)
    return layers.keys() - after
