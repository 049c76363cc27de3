"""tf.contrib.util."""

from __future__ import annotations

NAMES = {
    "tensorflow.python.framework.meta_graph": "ops_used_by_graph_def stripped_op_list_for_graph",
    "v1": "make_ndarray make_tensor_proto constant_value=get_static_value",
}
