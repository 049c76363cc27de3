"""tf.contrib.eager."""

from __future__ import annotations

NAMES = {
    "v1": "GradientTape enable_eager_execution executing_eagerly py_func=py_function",
    "tensorflow.python.ops.resource_variable_ops": "Variable=ResourceVariable",
    "tensorflow.python.eager.context": "in_eager_mode=executing_eagerly num_gpus",
}
