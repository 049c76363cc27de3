"""Rules over the program of one core, as a single step: what a TPU will refuse, get wrong or waste.

Each rule is a function from a `Step` to findings. `kernels.json.gz` says which operations a TPU has
kernels for; `tools/kernel_table.py` wrote it.
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
from tpu.emulator.replicated_graph import Cluster
from tpu.findings import ERROR, NOTE, WARNING, Finding, where

_TABLE = os.path.join(os.path.dirname(__file__), "kernels.json.gz")
# What a TPU's runtime makes of the graph itself, so that there are no kernels for it.
_FRAMEWORK = (
    *("InfeedDequeueTuple", "OutfeedEnqueueTuple", "TPUReplicatedInput", "TPUReplicatedOutput"),
    *("Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"),
    *("While", "StatelessWhile", "If", "StatelessIf"),
)
# Operations with a rule of their own: code, and what to do instead.
_HOST_ONLY = {
    "summary": (
        (
            *("ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummaryV2"),
            *("TensorSummary", "TensorSummaryV2", "MergeSummary", "WriteScalarSummary"),
            *("WriteSummary", "WriteImageSummary", "WriteHistogramSummary"),
        ),
        "a TPU writes no summaries: send the tensor out through host_call",
    ),
    "py_func": (
        ("PyFunc", "PyFuncStateless", "EagerPyFunc"),
        "Python does not run on a TPU: do it in the input_fn, or with TensorFlow's operations",
    ),
    "print": (
        ("Print", "PrintV2", "StringFormat"),
        "a TPU cannot print: send the tensor out through host_call",
    ),
    "placeholder": (
        ("Placeholder", "PlaceholderV2"),
        "nothing can be fed into a TPU's loop: take the value from features or params",
    ),
}
_AUGMENTATION = (
    *("ImageProjectiveTransformV2", "ImageProjectiveTransformV3", "CropAndResize"),
    *("AdjustContrastv2", "AdjustHue", "AdjustSaturation", "RGBToHSV", "HSVToRGB"),
    *("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "RandomCrop"),
)
_LAYERS = ("Conv2D", "MatMul", "BatchMatMulV2", "Conv3D")


class Step:
    """A step of one core, and the batch it is for."""

    def __init__(self, cluster: Cluster, mode: str, batch_size: int):
        """Takes a cluster of `program.one_step`, and the batch of one core."""
        self.cluster, self.mode, self.batch_size = cluster, mode, batch_size
        self.operations = list(cluster.operations.values())

    @functools.cached_property
    def writers(self) -> dict[str, list[tf.Operation]]:
        """`{name of a variable: the operations that change it}`."""
        found = {}
        for op in self.updates:
            found.setdefault(_variable(op), []).append(op)
        return found

    @functools.cached_property
    def updates(self) -> list[tf.Operation]:
        """The operations that change a variable."""
        kinds = ("Assign", "ResourceApply")
        return [op for op in self.operations if op.type.startswith(kinds) and op.op_def.is_stateful]

    @functools.cached_property
    def trainable(self) -> set[str]:
        """Names of the trainable variables of the graph that the cluster is in."""
        graph = self.operations[0].graph if self.operations else tf.Graph()
        variables = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
        return {variable.handle.op.name for variable in variables}

    def of_type(self, *kinds) -> list[tf.Operation]:
        """Operations of these types."""
        return [op for op in self.operations if op.type in kinds]


def lint(cluster: Cluster, mode: str, batch_size: int) -> list[Finding]:
    """Applies every rule.

    Args:
      cluster: of `program.one_step`, with version 1 control flow.
      mode: train, eval or infer.
      batch_size: of one core.
    """
    step = Step(cluster, mode, batch_size)
    name = {"infer": "predict"}.get(mode, mode)
    found = {}
    for rule in _RULES:
        for level, code, message, op in rule(step):
            place = where(op) if op is not None else ""
            found.setdefault((code, message, place), Finding(level, code, message, place, name))
    return list(found.values())


def provenance() -> str:
    """Returns where the table of kernels comes from."""
    return _table()["provenance"]


@functools.cache
def _table():
    with gzip.open(_TABLE) as file:
        return json.load(file)


def _kernels(step) -> Iterator[tuple]:
    """Operations and types that no TPU has a kernel for."""
    special = {kind: code for code, (kinds, _) in _HOST_ONLY.items() for kind in kinds}
    kernels = _table()["kernels"]
    for op in step.operations:
        if op.type in special:
            code = special[op.type]
            yield ERROR, code, f"{op.type} '{op.name}': {_HOST_ONLY[code][1]}", op
        elif any(tensor.dtype == tf.string for tensor in op.outputs):
            yield ERROR, "string", f"{op.type} makes text, which a TPU has none of", op
        elif op.type not in kernels and op.type not in _FRAMEWORK:
            hint = "; do it in the input_fn" if op.type in _AUGMENTATION else ""
            yield ERROR, "op", f"{op.type} has no TPU kernel{hint}", op
        else:
            for name, allowed in kernels.get(op.type, {}).items():
                for dtype in _dtypes(op, name):
                    if dtype.base_dtype.name not in allowed:
                        yield ERROR, "dtype", f"{op.type} of {dtype.name} has no TPU kernel", op


def _dtypes(op, attribute):
    try:
        value = op.get_attr(attribute)
    except ValueError:
        return []
    values = value if isinstance(value, list) else [value]
    return [value for value in values if isinstance(value, tf.DType)]


def _augmentation(step):
    """Augmentation belongs to the host, which has time for it."""
    kernels = _table()["kernels"]
    for op in step.of_type(*_AUGMENTATION):
        if op.type in kernels:
            message = f"{op.type} changes images on the TPU: the input_fn has time for it"
            yield WARNING, "augmentation", message, op


def _dynamic_shapes(step):
    for op in step.operations:
        # What the kernel of batch norm keeps for its gradient has no shape that anyone sees.
        hidden = op.type in _FRAMEWORK or op.type == "FusedBatchNormV3"
        inherited = any(_depends_on_data(tensor) for tensor in op.inputs)
        if hidden or inherited or op.name not in step.cluster.live:
            continue
        for tensor in op.outputs:
            if _depends_on_data(tensor) and tensor.consumers():
                message = (
                    f"{op.type} gives the shape {tensor.shape}, which depends on data: XLA may "
                    "refuse or pad it. Use a fixed size and a mask"
                )
                yield WARNING, "dynamic-shape", message, op


def _depends_on_data(tensor):
    return tensor.dtype not in (tf.resource, tf.variant) and not tensor.shape.is_fully_defined()


def _float64(step):
    for op in step.operations:
        if any(tensor.dtype == tf.float64 for tensor in op.outputs):
            yield WARNING, "float64", f"{op.type} in float64, which a TPU emulates slowly", op


def _batch(step):
    for tensor in step.cluster.infeed:
        rows = tensor.shape[0] if tensor.shape.rank else None
        if rows is not None and rows != step.batch_size and tensor.dtype != tf.bool:
            message = (
                f"input_fn gives {tensor.shape} a core, but params['batch_size'] is "
                f"{step.batch_size}: batch by that, not by a number of your own"
            )
            yield ERROR, "batch", message, None
    if step.batch_size % 8:
        share = step.batch_size / (math.ceil(step.batch_size / 8) * 8)
        message = (
            f"a batch of {step.batch_size} a core is no multiple of 8: "
            f"{1 - share:.0%} of each tile is padding"
        )
        yield WARNING, "batch-of-8", message, None


def _infeed(step):
    for tensor in step.cluster.infeed:
        if tensor.shape.rank == 4 and tensor.dtype == tf.float32:
            message = (
                f"images {tensor.shape} travel as float32; as uint8, scaled on the TPU, they are a "
                "quarter of that"
            )
            yield NOTE, "infeed-float", message, None


def _sums(step):
    """In training every variable must get what all cores have summed."""
    if step.mode != "train":
        return
    for op in step.updates:
        trains = op.type.startswith("ResourceApply") or _variable(op) in step.trainable
        if trains and _is_of_one_core(step, op):
            message = (
                f"'{_variable(op)}' is moved by the gradient of one core alone: wrap the optimizer "
                "in tf.compat.v1.tpu.CrossShardOptimizer if params['use_tpu']"
            )
            yield ERROR, "no-cross-replica-sum", message, op


def _is_of_one_core(step, update):
    """Whether the data of one core reaches an operation other than through a sum over all.

    Also by way of a variable that is not trained, such as one that gradients are gathered in.
    """
    seen, open_ = set(), [update]
    while open_:
        op = open_.pop()
        if op.type == "InfeedDequeueTuple":
            return True
        if op.name not in seen and op.type != "CrossReplicaSum":
            seen.add(op.name)
            open_ += [tensor.op for tensor in op.inputs]
            if op.type == "ReadVariableOp" and _variable(op) not in step.trainable:
                open_ += step.writers.get(_variable(op), [])
    return False


def _lost_updates(step):
    """In training; what an evaluation builds and does not use does no harm."""
    if step.mode != "train":
        return
    for op in step.updates:
        if op.name not in step.cluster.live:
            message = (
                f"'{_variable(op)}' is never updated: nothing that runs depends on it. Put the "
                "UPDATE_OPS before the train_op; those of Keras' layers are none: in a model of "
                "this package, models.layers.normalization.batch_norm has them"
            )
            yield ERROR, "update-never-runs", message, op


def _captures(step):
    for name, tensor in step.cluster.external_tensors.items():
        outside = tensor.op.type not in ("VarHandleOp", "TPUReplicatedInput", "Const")
        if outside:
            message = (
                f"the model uses '{name}' ({tensor.op.type}), which is made outside of model_fn or "
                "lives on the host"
            )
            yield ERROR, "capture", message, tensor.op


def _tiles(step):
    """Sizes of 8 and 128 fill the tiles of memory and of the matrix units."""
    layers = [op for op in step.of_type(*_LAYERS) if not GRADIENTS.search(op.name)]
    for op in layers[1:-1]:  # the first and the last are as the data is
        sizes = op.inputs[1].shape.as_list()[-2:]
        if None not in sizes and any(size % 8 for size in sizes):
            padded = [math.ceil(size / 8) * 8 for size in sizes]
            waste = 1 - math.prod(sizes) / math.prod(padded)
            message = (
                f"{op.type} from {sizes[0]} to {sizes[1]} channels: {waste:.0%} of its weights is "
                "padding. Multiples of 8 are better, of 128 best"
            )
            yield WARNING, "tiles", message, op


def _variable(op):
    handle = op.inputs[0].op
    while handle.type in ("Enter", "Identity"):
        handle = handle.inputs[0].op
    return handle.name


_RULES = (
    _kernels,
    _augmentation,
    _dynamic_shapes,
    _float64,
    _batch,
    _infeed,
    _sums,
    _lost_updates,
    _captures,
    _tiles,
)
