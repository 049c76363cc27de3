"""Runs programs of the TensorFlow 1.x days on TensorFlow 2.15: `python -m tpu emulate --tf1`.

    from tpu import tf1

    tf1.install()
    runpy.run_path("their_program.py", run_name="__main__")

After `install`, `import tensorflow as tf` in a program means tf.compat.v1 with v2 behavior disabled
and with the parts of tf.contrib that TPUEstimator programs used. Libraries still get 2.15.
"""

from tpu.tf1.imports import install, old_names

__all__ = ["install", "old_names"]
