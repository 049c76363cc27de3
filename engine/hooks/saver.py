"""Saves checkpoints while a model trains."""

from __future__ import annotations

import tensorflow as tf


class SaverHook(tf.estimator.CheckpointSaverHook):
    """The Estimator's own hook, but for what that one saves before the first step.

    A checkpoint of what was just initialised or restored tells nothing new, and it would delay the
    start of every run.
    """

    def __init__(self, model_dir, save_steps, check, steps_per_run=1):
        """Takes what it needs.

        Args:
          model_dir: the folder.
          save_steps: steps between checkpoints.
          check: `(session, step)`, raises if the variables are not worth saving.
          steps_per_run: steps in one session.run.
        """
        super().__init__(model_dir, save_steps=save_steps)
        self._set_steps_per_run(steps_per_run)
        self._save_steps = save_steps
        self._check = check

    def _save(self, session, step):
        self._check(session, step)
        return super()._save(session, step)

    def after_create_session(self, session, coord):
        """Gives TensorBoard the graph; sets the steps of saves, which are those of a whole run."""
        self._summary_writer.add_graph(session.graph)
        step = session.run(self._global_step_tensor)
        self._timer.update_last_triggered_step(step - step % self._save_steps)
