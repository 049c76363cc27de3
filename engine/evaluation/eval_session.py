"""`Estimator.evaluate` of one checkpoint after another, by one graph in one session.

The Estimator makes both anew each time: for a small network that takes as long as to evaluate some
ten thousand images.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import op_selector
from tensorflow_estimator.python.estimator import estimator as tf_estimator


class EvalSession:
    """The evaluation graph of an Estimator and its session, both made with the first checkpoint.

    Not for a TPUEstimator, which builds its graph for a TPU system that training needs too.
    """

    def __init__(self, estimator: tf.estimator.Estimator, input_fn):
        """Takes the Estimator, and an input_fn that gives the same data set in every pass."""
        self._estimator, self._input_fn = estimator, input_fn
        self._graph = self._session = None

    def evaluate(self, steps, hooks, checkpoint_path, name=None):
        """Does what `Estimator.evaluate` does: returns the metrics, and writes them as events.

        Args:
          steps: batches of a pass.
          hooks: SessionRunHooks of this pass. They must not add to the graph.
          checkpoint_path: of the model.
          name: of the evaluation, whose events are in `estimator.eval_dir(name)`; None for no name.
        """
        if self._graph is None:
            self._graph = self._build()
        with self._graph.as_default() as graph:
            if self._session is None or self._draws:
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
        # What draws random numbers begins anew with a new session only.
        run = op_selector.get_backward_walk_ops([self._update], control_inputs=True)
        self._draws = any("seed2" in op.node_def.attr for op in run)
        return graph


class _Session(tf.compat.v1.Session):
    """A session that ends with its object, and not with the MonitoredSession of one pass."""

    def close(self):
        """Does nothing."""


class _StopHook(tf.estimator.SessionRunHook):
    """Ends a pass, which begins anew where MonitoredSession recovers from an error."""

    def __init__(self, steps):
        self._steps = steps

    def after_create_session(self, session, coord):
        """Begins to count."""
        self._left = self._steps

    def after_run(self, run_context, run_values):
        """Counts a batch."""
        self._left -= 1
        if not self._left:
            run_context.request_stop()


class _Restored(tf.compat.v1.train.SessionCreator):
    """Gives a session with the variables of a checkpoint, and with metrics at zero."""

    def __init__(self, session, scaffold, checkpoint_path):
        self._session, self._scaffold, self._checkpoint_path = session, scaffold, checkpoint_path

    def create_session(self):
        """Returns the session."""
        self._scaffold.saver.restore(self._session, self._checkpoint_path)
        self._session.run(self._scaffold.local_init_op)
        return self._session
