"""Private names of TensorFlow that moved since 1.15, put back for old programs and for tf_slim.

tensorflow.python was never an API, yet old optimizers and layers import from it, and tf_slim 1.1
uses names that 2.14 and 2.15 moved. Only additions.
"""

from __future__ import annotations

import contextlib
import importlib

_PYTHON = "tensorflow.python"

# {module of 1.15: {module of 2.15: "name old=new"}}
_MOVED = {
    "data.ops.dataset_ops": {"data.ops.options": "Options"},
    "distribute.distribute_lib": {"distribute.distribute_utils": "get_loss_reduction"},
    "framework.graph_util_impl": {
        "framework.convert_to_constants": "convert_variables_to_constants"
    },
    "framework.ops": {
        "framework.indexed_slices": """IndexedSlices IndexedSlicesValue
            convert_to_tensor_or_indexed_slices""",
        "framework.tensor": "Tensor",
        "framework.tensor_conversion": "convert_to_tensor_v2",
        "framework.tensor_conversion_registry": "register_tensor_conversion_function",
        "framework.stack": "default_session",
    },
    "framework.tensor_util": {"ops.shape_util": "maybe_set_static_shape shape_tensor"},
    "ops.array_ops": {"ops.array_ops_stack": "parallel_stack stack unstack"},
    "ops.control_flow_ops": {
        "ops.cond": "cond",
        "ops.control_flow_assert": "Assert",
        "ops.control_flow_case": "case",
        "ops.control_flow_switch_case": "switch_case",
        "ops.while_loop": "while_loop",
    },
    "ops.nn_impl": {"ops.nn_impl_distribute": "compute_average_loss"},
    "ops.random_ops": {"ops.random_crop_ops": "random_crop"},
    "ops.variable_scope": {
        "ops.ref_variable": "default_variable_creator",
        "ops.variable_v1": "variable=VariableV1",
    },
    "ops.variables": {
        "ops.ref_variable": "RefVariable",
        "ops.state_ops": "is_variable_initialized",
        "ops.variable_v1": "VariableV1",
    },
    "tpu.tpu": {"tpu.tpu_replication": "TPUReplicateContext outside_compilation"},
    "util.nest": {"util.nest": "is_sequence=is_nested"},
}


@contextlib.contextmanager
def names():
    """Provides the moved names in a `with` block."""
    with contextlib.ExitStack() as stack:
        for old, sources in _MOVED.items():
            owner = importlib.import_module(f"{_PYTHON}.{old}")
            for source, moved in sources.items():
                module = importlib.import_module(f"{_PYTHON}.{source}")
                for entry in moved.split():
                    name, _, new_name = entry.partition("=")
                    if not hasattr(owner, name):
                        setattr(owner, name, getattr(module, new_name or name))
                        stack.callback(delattr, owner, name)
        yield
