"""tf.contrib.framework."""

from __future__ import annotations

SOURCES = ("tf_slim", "tf_slim.ops.framework_ops", "tf_slim.ops.variables")
NAMES = {
    "v1": "argsort is_tensor nest sort",
    "v1.train": """create_global_step get_global_step get_or_create_global_step init_from_checkpoint
        list_variables load_checkpoint load_variable""",
}
