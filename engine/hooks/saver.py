"""Saves checkpoints while a model trains."""

from __future__ import annotations

import tensorflow as tf


class SaverHook(tf.estimator.CheckpointSaverHook):
    """A CheckpointSaverHook that does not save the variables it starts with.

    Such a checkpoint is not needed and delays every start. Saves are at multiples of `save_steps`,
    also after a resume, and at the end.
    """

    def __init__(self, model_dir, save_steps, check, steps_per_run=1):
        """Initializes the hook.

        Args:
          model_dir: folder to save in.
          save_steps: steps between checkpoints.
          check: function of `(session, step)`, called before each save; raises to prevent it.
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
        """Writes the graph for TensorBoard, and schedules the next save."""
        self._summary_writer.add_graph(session.graph)
        step = session.run(self._global_step_tensor)
        self._timer.update_last_triggered_step(step - step % self._save_steps)
