"""tf.contrib.util."""

from __future__ import annotations

NAMES = {
    "v1": "make_ndarray make_tensor_proto constant_value=get_static_value",
}
