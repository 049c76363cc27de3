"""`Estimator.evaluate` and `predict` for many checkpoints, with one graph and one session each.

The Estimator builds both again for each call. For a small network this takes as long as the
evaluation of 10,000 images. A TPUEstimator is not supported: only one session at a time can use a
TPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import op_selector
from tensorflow_estimator.python.estimator import estimator as tf_estimator

_PREDICT = tf.estimator.ModeKeys.PREDICT


class _KeptSession:
    """A graph and a session of an Estimator, created at the first use."""

    def __init__(self, estimator: tf.estimator.Estimator, input_fn):
        """Initializes the session; `input_fn` must return the same examples at each use."""
        self._estimator, self._input_fn = estimator, input_fn
        self._graph = self._session = None

    def _build(self):
        """Builds the graph; returns a Scaffold or None, what to run for each batch, and hooks."""
        raise NotImplementedError

    def _in_graph(self):
        """Returns a context with the graph as the default graph."""
        if self._graph is None:
            with tf.Graph().as_default() as graph:
                scaffold, self._fetches, self._hooks = self._build()
                self._scaffold = scaffold or tf.compat.v1.train.Scaffold()
                self._scaffold.finalize()
            # The state of random ops is reset only by a new session.
            fetched = tf.nest.flatten(self._fetches)
            ops = op_selector.get_backward_walk_ops(fetched, control_inputs=True)
            self._is_random = any("seed2" in op.node_def.attr for op in ops)
            self._graph = graph
        return self._graph.as_default()

    def _restored(self, checkpoint_path, hooks):
        """Returns a MonitoredSession of the default graph with the variables of a checkpoint."""
        if self._session is None or self._is_random:
            config = self._estimator.config.session_config
            self._session = _Session(config=config, graph=self._graph)
        creator = _Restored(self._session, self._scaffold, checkpoint_path)
        return tf.compat.v1.train.MonitoredSession(creator, [*self._hooks, *hooks])


class EvalSession(_KeptSession):
    """Evaluates checkpoints."""

    def hook(self, hook_type: type) -> Any:
        """Returns the evaluation hook of a type that the model_fn made, or None."""
        with self._in_graph():
            return next((hook for hook in self._hooks if isinstance(hook, hook_type)), None)

    def evaluate(self, steps, hooks, checkpoint_path, name=None) -> dict[str, Any]:
        """Returns the metrics and writes them as events, like `Estimator.evaluate`.

        Args:
          steps: number of batches.
          hooks: SessionRunHooks of this evaluation. They must not add ops to the graph.
          checkpoint_path: path of the checkpoint.
          name: name of the evaluation; its events are in `estimator.eval_dir(name)`. Or None.
        """
        with self._in_graph():
            final = tf.compat.v1.train.FinalOpsHook(self._values)
            hooks = [*hooks, _StopHook(steps), final]
            with self._restored(checkpoint_path, hooks) as session:
                while not session.should_stop():
                    session.run(self._fetches)
            metrics = final.final_ops_values
            folder = self._estimator.eval_dir(name)
            step = metrics[tf.compat.v1.GraphKeys.GLOBAL_STEP]
            tf_estimator._write_dict_to_summary(folder, metrics, step)
            tf_estimator._write_checkpoint_path_to_summary(folder, checkpoint_path, step)
        return metrics

    def _build(self):
        scaffold, update, self._values, hooks = self._estimator._evaluate_build_graph(
            self._input_fn, hooks=()
        )
        return scaffold, update, hooks


class PredictSession(_KeptSession):
    """Predicts with checkpoints."""

    def predict(self, hooks, checkpoint_path) -> Iterator[dict[str, Any]]:
        """Yields the predictions of each batch, like `Estimator.predict`.

        Args:
          hooks: SessionRunHooks of this prediction. They must not add ops to the graph.
          checkpoint_path: path of the checkpoint.
        """
        with self._in_graph(), self._restored(checkpoint_path, hooks) as session:
            while not session.should_stop():
                yield session.run(self._fetches)

    def _build(self):
        estimator, graph = self._estimator, tf.compat.v1.get_default_graph()
        tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
        estimator._create_and_assert_global_step(graph)
        features, input_hooks = estimator._get_features_from_input_fn(self._input_fn, _PREDICT)
        spec = estimator._call_model_fn(features, None, _PREDICT, estimator.config)
        return spec.scaffold, spec.predictions, [*input_hooks, *spec.prediction_hooks]


class _Session(tf.compat.v1.Session):
    """A session that MonitoredSession does not close at its end."""

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
