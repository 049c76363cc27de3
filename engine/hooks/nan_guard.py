"""Stops training at a NaN or infinite loss, before a checkpoint with such values is saved."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.python.training.saving import saveable_object_util

from common.errors import RunError
from engine.hooks.progress import global_step

_MAX_NAMES = 5


class NanGuardHook(tf.estimator.SessionRunHook):
    """Raises `RunError` at the first loss that is NaN or infinite.

    It must come before the hook that saves: tf.estimator's NanTensorHook may raise after the bad
    step was saved as the newest checkpoint. Like that hook it fetches the loss in every
    session.run; on a TPU this is the loss of the last step of the loop.
    """

    def __init__(self, model_dir: str):
        """Stores the folder of the checkpoints, for the error message."""
        self._model_dir = model_dir

    def begin(self):
        """Finds the loss, which Estimator has added to the graph, and builds the check."""
        self._loss = tf.compat.v1.losses.get_losses()[-1]
        with tf.name_scope("finite"):
            self._names, self._are_finite = build_finite_check()

    def before_run(self, run_context):
        """Fetches the loss."""
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        """Raises `RunError` if the loss is not finite."""
        if not np.isfinite(run_values.results):
            session = run_context.session
            self._fail(session, global_step(session), f"the loss is {run_values.results}")

    def check_variables(self, session, step) -> None:
        """Raises `RunError` if a variable is not finite; the loss may show it one step later."""
        if not session.run(self._are_finite).all():
            self._fail(session, step, "variables are not finite")

    def _fail(self, session, step, problem):
        are_finite = session.run(self._are_finite)
        bad = [name for name, is_finite in zip(self._names, are_finite) if not is_finite]
        more = f" and {len(bad) - _MAX_NAMES} more" if bad[_MAX_NAMES:] else ""
        variables = f"{', '.join(bad[:_MAX_NAMES])}{more}" if bad else "none"
        newest = tf.train.latest_checkpoint(self._model_dir) or "there is none"
        raise RunError(
            f"at step {step} {problem}; variables with NaN or infinity: {variables}. The newest "
            f"checkpoint is from before: {newest}. Try a lower learning_rate, a longer "
            "warmup_steps or clip_norm"
        )


def build_finite_check():
    """Returns the names of all floating-point variables, and whether each is finite.

    Returns:
      A list of n names and a bool tensor `[n]`.
    """
    variables = [v for v in tf.compat.v1.global_variables() if v.dtype.base_dtype.is_floating]
    finite = []
    for variable in variables:
        value = variable.read_value()
        # On the host of the TPU or GPU, like the saver: it reads every value there anyway.
        with tf.device(saveable_object_util.set_cpu0(variable.device)):
            finite.append(tf.reduce_all(tf.math.is_finite(value)))
    return [variable.op.name for variable in variables], tf.stack(finite)
