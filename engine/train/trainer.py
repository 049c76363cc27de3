"""Trains with an Estimator in one or several sessions, on one machine or in a cluster."""

from __future__ import annotations

import tempfile

from common.errors import RunError
from engine.checkpoints import find, trained_on
from engine.distribute import tf_config
from engine.hooks import nan_guard, progress, results, saver
from engine.hooks.preemption import SignalHandler
from engine.hooks.profiling import ProfileHook
from engine.train import data_service_watch, schedules


class Trainer:
    """Trains with the hooks that save checkpoints, log, record results and handle signals.

    Attributes:
      interruption: handles SIGTERM, SIGINT and SIGHUP.
    """

    def __init__(self, estimator, settings, state, train_input_fn):
        """Initializes the trainer.

        Args:
          estimator: an Estimator or TPUEstimator.
          settings: `RunSettings`.
          state: `TrainingState`.
          train_input_fn: function from the global step that a session starts at to its input_fn.
        """
        self._estimator, self._train_input_fn = estimator, train_input_fn
        self._settings, self._state = settings, state
        self.interruption = SignalHandler()
        train = settings.train
        self._record = results.TrainRecordHook(settings, state)
        self._data_record = trained_on.TrainedOnHook(
            settings.model_dir, settings.pipeline, resumes=settings.checkpoint is not None
        )
        self._progress = progress.ProgressHook(
            lambda step: schedules.learning_rate(
                settings.params, step, train.steps, train.batch_size
            ),
            train.batch_size,
            train.steps,
            state.clock,
            state.counter,
        )
        self._profile = []
        if train.profile_steps:
            self._profile = [ProfileHook(train.profile_steps, settings.model_dir, state.counter)]

    def train(self, start_step, end_step, listeners=()):
        """Trains in one session.

        Args:
          start_step: global step of the latest checkpoint.
          end_step: global step at which to stop.
          listeners: CheckpointSaverListeners; ignored in a cluster.
        """
        input_fn = self._train_input_fn(start_step)
        with data_service_watch.watched(self._settings.train.data_service):
            if self._settings.task.in_cluster:
                tf_config.train(self._estimator, input_fn, end_step, self._hooks())
            else:
                self._estimator.train(
                    input_fn, self._hooks(), max_steps=end_step, saving_listeners=listeners
                )
        if self.interruption.signal is not None:
            self.report()
            self.interruption.exit_if_requested(" to resume")
        step = self._state.counter.step
        if step < end_step and self._settings.task.is_synchronous:
            raise RunError(
                f"another process stopped the training at step {step} of {end_step}. Start all "
                "again to resume"
            )

    def _hooks(self):
        """Returns the hooks of a session; counters and checks of a step come before the saver."""
        settings, state = self._settings, self._state
        counting = [state.counter, self._progress]
        nan_hook, stop = nan_guard.NanGuardHook(settings.model_dir), self.interruption.hook()

        def check(session, step):
            state.lock.check()
            nan_hook.check_variables(session, step)

        def save_in(folder):
            train, schedule = settings.train, settings.evaluation.schedule
            steps = train.save_checkpoints_steps
            return saver.SaverHook(folder, steps, check, train.iterations_per_loop, schedule)

        if settings.task.is_chief:
            records = [self._record, self._data_record, *self._profile]
            saves = save_in(settings.model_dir)
            return [state.lock.hook(), *counting, *records, nan_hook, saves, stop]
        if settings.task.is_synchronous:
            # Saving all-reduces variables, so all workers must save; only the chief's is kept.
            self._scratch = tempfile.TemporaryDirectory()  # removed with this object
            return [*counting, nan_hook, save_in(self._scratch.name), stop]
        return [*counting, nan_hook, stop]

    def report(self):
        """Prints the duration of the training and the checkpoint."""
        if self._settings.task.is_chief:
            for hook in self._profile:
                hook.report()
            print(self._record.describe())
            print(f"saved {find.latest(self._settings.model_dir)}")
