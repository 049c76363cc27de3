"""A training whose numbers are no longer finite ends, and leaves no checkpoint of them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.python.training.saving import saveable_object_util

from common.errors import RunError
from engine.hooks.progress import global_step

_NAMED = 5


class FiniteHook(tf.estimator.SessionRunHook):
    """Ends a training at the first loss that is NaN or infinite.

    It must come before the hook that saves: by itself tf.estimator may save the step that went
    wrong as the newest checkpoint, and then say so. The loss is fetched in every run, as the
    Estimator's own hook does it. On a TPU it is that of the last step of a loop.
    """

    def __init__(self, model_dir: str):
        """Takes where the checkpoints are."""
        self._model_dir = model_dir

    def begin(self):
        """Comes when the Estimator has put its loss into the graph."""
        self._loss = tf.compat.v1.losses.get_losses()[-1]
        with tf.name_scope("finite"):
            self._names, self._are_finite = finite_variables()

    def before_run(self, run_context):
        """Asks for the loss."""
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        """Raises `RunError` if it is not finite."""
        if not np.isfinite(run_values.results):
            session = run_context.session
            self.fail(session, global_step(session), f"the loss is {run_values.results}")

    def check_variables(self, session, step) -> None:
        """Raises `RunError` if a variable is not finite; a loss may tell one step later."""
        if not session.run(self._are_finite).all():
            self.fail(session, step, "variables are not finite")

    def fail(self, session, step, what):
        """Says what went wrong, in which variables, and what is kept."""
        are_finite = session.run(self._are_finite)
        bad = [name for name, is_finite in zip(self._names, are_finite) if not is_finite]
        more = f" and {len(bad) - _NAMED} more" if bad[_NAMED:] else ""
        variables = f"not finite: {', '.join(bad[:_NAMED])}{more}" if bad else "all variables are"
        kept = tf.train.latest_checkpoint(self._model_dir) or "there is none"
        raise RunError(
            f"at step {step} {what}; {variables}. The newest checkpoint is of before: {kept}. A "
            "lower learning_rate, a longer warmup_steps or clip_norm may help"
        )


def finite_variables():
    """Returns the names of all variables of numbers, and a bool tensor: whether each is finite."""
    variables = [v for v in tf.compat.v1.global_variables() if v.dtype.base_dtype.is_floating]
    finite = []
    for variable in variables:
        value = variable.read_value()
        # Where a saver takes them: on the host of a TPU or GPU.
        with tf.device(saveable_object_util.set_cpu0(variable.device)):
            finite.append(tf.reduce_all(tf.math.is_finite(value)))
    return [variable.op.name for variable in variables], tf.stack(finite)
