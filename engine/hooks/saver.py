"""Saves checkpoints while a model trains."""

from __future__ import annotations

import tensorflow as tf

from engine.hooks.eval_schedule import EvalSchedule


class SaverHook(tf.estimator.CheckpointSaverHook):
    """A CheckpointSaverHook that does not save the variables it starts with.

    Such a checkpoint is not needed and delays every start. Saves are at multiples of `save_steps`,
    also after a resume, at the steps of a schedule of evaluations, and at the end.
    """

    def __init__(self, model_dir, save_steps, check, steps_per_run=1, schedule=None):
        """Initializes the hook.

        Args:
          model_dir: folder to save in.
          save_steps: steps between checkpoints.
          check: function of `(session, step)`, called before each save; raises to prevent it.
          steps_per_run: steps in one session.run.
          schedule: an `EvalSchedule`, or None.
        """
        super().__init__(model_dir, save_steps=save_steps)
        self._set_steps_per_run(steps_per_run)
        self._timer = _SaveTimer(save_steps, schedule or EvalSchedule())
        self._check = check

    def _save(self, session, step):
        self._check(session, step)
        return super()._save(session, step)

    def after_create_session(self, session, coord):
        """Writes the graph for TensorBoard, and schedules the next save."""
        self._summary_writer.add_graph(session.graph)
        self._timer.update_last_triggered_step(session.run(self._global_step_tensor))


class _SaveTimer:
    """The part of TensorFlow's SecondOrStepTimer that CheckpointSaverHook uses."""

    def __init__(self, save_steps, schedule):
        self._save_steps, self._schedule = save_steps, schedule

    def should_trigger_for_step(self, step):
        """Returns whether `step` has reached the next step to save."""
        return step >= self._next

    def update_last_triggered_step(self, step):
        """Schedules the next save after that of `step`."""
        self._last = step
        multiple = (step // self._save_steps + 1) * self._save_steps
        self._next = min(multiple, self._schedule.next_step(step))

    def last_triggered_step(self):
        """Returns the step of the last save."""
        return self._last
