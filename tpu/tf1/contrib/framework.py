"""tf.contrib.framework."""

from __future__ import annotations

SOURCES = ("tf_slim", "tf_slim.ops.framework_ops", "tf_slim.ops.variables")
NAMES = {
    "tensorflow.python.framework.smart_cond": "smart_case smart_cond smart_constant_value",
    "tensorflow.python.framework.tensor_spec": "BoundedTensorSpec TensorSpec",
    "tensorflow.python.util": "nest",
    "tensorflow.python.util.deprecation": "deprecated deprecated_arg_values deprecated_args",
    "v1": "argsort is_tensor sort",
    "v1.train": """create_global_step get_global_step get_or_create_global_step init_from_checkpoint
        list_variables load_checkpoint load_variable""",
}
