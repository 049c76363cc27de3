"""`Estimator.evaluate` for many checkpoints, with one graph and one session.

The Estimator builds both again for each evaluation. For a small network this takes as long as the
evaluation of 10,000 images.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import op_selector
from tensorflow_estimator.python.estimator import estimator as tf_estimator


class EvalSession:
    """The evaluation graph and session of an Estimator, created at the first evaluation.

    Does not support TPUEstimator: only one session at a time can use a TPU.
    """

    def __init__(self, estimator: tf.estimator.Estimator, input_fn):
        """Initializes the session; `input_fn` must return the same examples in each evaluation."""
        self._estimator, self._input_fn = estimator, input_fn
        self._graph = self._session = None

    def evaluate(self, steps, hooks, checkpoint_path, name=None):
        """Returns the metrics and writes them as events, like `Estimator.evaluate`.

        Args:
          steps: number of batches.
          hooks: SessionRunHooks of this evaluation. They must not add ops to the graph.
          checkpoint_path: path of the checkpoint.
          name: name of the evaluation; its events are in `estimator.eval_dir(name)`. Or None.
        """
        if self._graph is None:
            self._graph = self._build()
        with self._graph.as_default() as graph:
            if self._session is None or self._is_random:
                self._session = _Session(config=self._estimator.config.session_config, graph=graph)
            restored = _Restored(self._session, self._scaffold, checkpoint_path)
            final = tf.compat.v1.train.FinalOpsHook(self._values)
            hooks = [*self._hooks, *hooks, _StopHook(steps), final]
            with tf.compat.v1.train.MonitoredSession(restored, hooks) as session:
                while not session.should_stop():
                    session.run(self._update)
            metrics = final.final_ops_values
            folder = self._estimator.eval_dir(name)
            step = metrics[tf.compat.v1.GraphKeys.GLOBAL_STEP]
            tf_estimator._write_dict_to_summary(folder, metrics, step)
            tf_estimator._write_checkpoint_path_to_summary(folder, checkpoint_path, step)
        return metrics

    def _build(self):
        with tf.Graph().as_default() as graph:
            scaffold, self._update, self._values, self._hooks = (
                self._estimator._evaluate_build_graph(self._input_fn, hooks=())
            )
            self._scaffold = scaffold or tf.compat.v1.train.Scaffold()
            self._scaffold.finalize()
        # The state of random ops is reset only by a new session.
        ops = op_selector.get_backward_walk_ops([self._update], control_inputs=True)
        self._is_random = any("seed2" in op.node_def.attr for op in ops)
        return graph


class _Session(tf.compat.v1.Session):
    """A session that MonitoredSession does not close after an evaluation."""

    def close(self):
        """Does nothing."""


class _StopHook(tf.estimator.SessionRunHook):
    """Stops after N batches; starts again when MonitoredSession recovers from an error."""

    def __init__(self, steps):
        self._steps = steps

    def after_create_session(self, session, coord):
        """Resets the count."""
        self._left = self._steps

    def after_run(self, run_context, run_values):
        """Counts a batch."""
        self._left -= 1
        if not self._left:
            run_context.request_stop()


class _Restored(tf.compat.v1.train.SessionCreator):
    """Restores a checkpoint into an existing session, and resets the metrics."""

    def __init__(self, session, scaffold, checkpoint_path):
        self._session, self._scaffold, self._checkpoint_path = session, scaffold, checkpoint_path

    def create_session(self):
        """Returns the session."""
        self._scaffold.saver.restore(self._session, self._checkpoint_path)
        self._session.run(self._scaffold.local_init_op)
        return self._session
