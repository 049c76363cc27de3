"""Makes functions of TensorFlow 2.15 accept calls with the arguments of 1.15.

The table lists the functions whose arguments were renamed, removed or reordered. Calls that are
valid in 2.15 are unchanged: Keras and TensorFlow itself use the same functions. A method that a
program overrides with the arguments of 1.15 is called with these.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class _Change:
    """A function and how its arguments changed.

    Attributes:
      module: module of 2.15 that defines it, below tensorflow.python.
      name: name in the module; "Class.method" for a method.
      parameters: names of the parameters of 1.15 in order, those added by keyword excepted.
      renamed: `{name in 1.15: name in 2.15}`.
      removed: names that 2.15 lacks; they had no effect on results.
      copied: `{name that 2.15 added: name with its value}`.
      replacement: "module.name" of the function of 2.15 with the arguments of 1.15, or None.
      is_old: returns whether a call by position that both releases accept is one of 1.15.
    """

    module: str
    name: str
    parameters: str
    renamed: dict = dataclasses.field(default_factory=dict)
    removed: tuple = ()
    copied: dict = dataclasses.field(default_factory=dict)
    replacement: str | None = None
    is_old: Callable = lambda args: False


def _has(position, kind):
    return lambda args: len(args) > position and isinstance(args[position], kind)


_NEST = "shallow_tree input_tree check_types check_subtrees_length expand_composites"
_CHANGES = (
    _Change(
        "tpu.tpu_replication",
        "TPUReplicateContext.get_replicated_var_handle",
        "self name vars_ is_mirrored",
        copied={"handle_id": "name"},
    ),
    _Change("ops.nn_ops", "top_k", "input k sorted name", is_old=_has(3, str)),
    _Change("ops.script_ops", "numpy_function", "func inp Tout name", is_old=_has(3, str)),
    _Change(
        "tpu.tpu_embedding",
        "StochasticGradientDescentParameters.__init__",
        "self learning_rate clip_weight_min clip_weight_max",
        is_old=lambda args: len(args) > 2 and not isinstance(args[2], bool),
    ),
    _Change(
        "ops.summary_ops_v2", "graph", "param step name", replacement="ops.summary_ops_v2.graph_v1"
    ),
    _Change(
        "ops.math_ops", "_ReductionDims", "x axis reduction_indices", removed=("reduction_indices",)
    ),
    _Change("ops.control_flow_ops", "_Identity", "data name", renamed={"data": "tensor"}),
    _Change("ops.control_flow_ops", "_NextIteration", "data name", renamed={"data": "tensor"}),
    _Change("ops.control_flow_ops", "exit", "data name", renamed={"data": "tensor"}),
    _Change(
        "data.ops.dataset_ops",
        "_VariantDataset.__init__",
        "self dataset_variant structure",
        renamed={"structure": "element_spec"},
    ),
    _Change(
        "data.ops.optional_ops",
        "OptionalSpec.__init__",
        "self value_structure",
        renamed={"value_structure": "element_spec"},
    ),
    _Change("util.nest", "flatten_up_to", _NEST, removed=("check_subtrees_length",)),
    _Change("util.nest", "assert_shallow_structure", _NEST, removed=("check_subtrees_length",)),
    _Change(
        "distribute.cross_device_ops",
        "AllReduceCrossDeviceOps.__init__",
        "self all_reduce_alg num_packs agg_small_grads_max_bytes agg_small_grads_max_group",
        removed=("agg_small_grads_max_bytes", "agg_small_grads_max_group"),
    ),
    _Change(
        "framework.config",
        "set_logical_device_configuration",
        "device virtual_devices",
        renamed={"virtual_devices": "logical_devices"},
    ),
)
# Methods of batch norm that programs override to sum over the cores. 2.15 passes them a mask too.
_OVERRIDDEN = ("_moments", "_calculate_mean_and_var")


@contextlib.contextmanager
def accepted():
    """Accepts calls and overriding methods with the arguments of 1.15 in a `with` block."""
    with contextlib.ExitStack() as stack:
        for change in _CHANGES:
            owner, name, function = _find(f"{change.module}.{change.name}")
            wrapper = _accepting(function, change)
            holders = [owner] if isinstance(owner, type) else _holders(name, function)
            for holder in holders:
                setattr(holder, name, wrapper)
                stack.callback(setattr, holder, name, function)
        stack.enter_context(_accepted_overrides())
        yield


@contextlib.contextmanager
def _accepted_overrides():
    """Lets subclasses of batch norm, if defined in a `with` block, override methods of 1.15."""
    from keras.src.layers.normalization import batch_normalization

    base = batch_normalization.BatchNormalizationBase

    def init_subclass(cls, **kwargs):
        super(base, cls).__init_subclass__(**kwargs)
        for name in _OVERRIDDEN:
            if name in vars(cls):
                setattr(cls, name, _accepting_mask(vars(cls)[name]))

    base.__init_subclass__ = classmethod(init_subclass)
    try:
        yield
    finally:
        del base.__init_subclass__


def _accepting_mask(method):
    parameters = inspect.signature(method).parameters.values()
    if any(one.name == "mask" or one.kind == one.VAR_KEYWORD for one in parameters):
        return method

    @functools.wraps(method)
    def call(*args, mask=None, **kwargs):  # batch norm of 1.15 ignores masks
        return method(*args, **kwargs)

    return call


def _find(path):
    """Returns (module or class, name, function) for "module.name" or "module.Class.method"."""
    parts = path.split(".")
    length = len(parts) - (2 if parts[-2].lstrip("_")[:1].isupper() else 1)
    owner = importlib.import_module(".".join(["tensorflow.python", *parts[:length]]))
    if length < len(parts) - 1:
        owner = getattr(owner, parts[length])
    return owner, parts[-1], getattr(owner, parts[-1])


def _holders(name, function):
    """Returns the modules of TensorFlow with the function, those of the public API included."""
    return [
        module
        for module_name, module in list(sys.modules.items())
        if module_name.partition(".")[0] == "tensorflow"
        and getattr(module, "__dict__", {}).get(name) is function
    ]


def _accepting(function, change):
    signature = inspect.signature(function)
    parameters = change.parameters.split()

    def binds(*args, **kwargs):
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            return False
        return True

    @functools.wraps(function)
    def call(*args, **kwargs):
        if len(args) > len(parameters) or (binds(*args, **kwargs) and not change.is_old(args)):
            return function(*args, **kwargs)
        given = {**dict(zip(parameters, args)), **kwargs}
        if change.replacement is not None:
            return _find(change.replacement)[2](**given)
        new = {
            change.renamed.get(name, name): value
            for name, value in given.items()
            if name not in change.removed
        }
        for name, source in change.copied.items():
            if source in given:
                new.setdefault(name, given[source])
        # If neither release accepts a call, TensorFlow's own error is clearer.
        return function(**new) if binds(**new) else function(*args, **kwargs)

    return call
