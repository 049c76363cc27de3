"""tf.contrib.learn: only the mode keys; the rest became tf.estimator."""

from __future__ import annotations

__all__ = ["ModeKeys"]


class ModeKeys:
    """Modes of a model_fn."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
