"""One training: in one session or in several, alone or as a part of a cluster."""

from __future__ import annotations

import tempfile

from engine.checkpoints import find, trained_on
from engine.distribute import tf_config
from engine.hooks import nan_guard, progress, results, saver
from engine.hooks.preemption import SignalHandler
from engine.hooks.profiling import ProfileHook
from engine.train import schedules


class Trainer:
    """Trains by an Estimator, with the hooks that save, record, judge and stop.

    Attributes:
      interruption: handles SIGTERM, SIGINT and SIGHUP.
    """

    def __init__(self, estimator, job, train_input_fn):
        """Takes a function from the global step that a session starts at to its input_fn."""
        self._estimator, self._job, self._train_input_fn = estimator, job, train_input_fn
        self.interruption = SignalHandler()
        self._record = results.TrainRecordHook(
            job.model_dir, job.train_batch_size, job.skipped_records, job.clock
        )
        self._data_record = trained_on.TrainedOnHook(job.model_dir, job.pipeline)
        self._progress = progress.ProgressHook(
            lambda step: schedules.learning_rate(
                job.params, step, job.train_steps, job.train_batch_size
            ),
            job.train_batch_size,
            job.train_steps,
            job.clock,
            job.counter,
        )
        self._profile = []
        if job.profile:
            self._profile = [ProfileHook(job.profile, job.model_dir, job.counter)]

    def go(self, start_step, end_step, listeners=()):
        """Trains in one session; `listeners` are told of every checkpoint of a process alone."""
        job, input_fn = self._job, self._train_input_fn(start_step)
        if job.task.in_cluster:
            tf_config.train(self._estimator, input_fn, end_step, self._hooks())
        else:
            self._estimator.train(
                input_fn, self._hooks(), max_steps=end_step, saving_listeners=listeners
            )
        if self.interruption.signal is not None:
            self.report()
            name = self.interruption.signal.name
            print(f"stopped by {name}; run the same command again to resume")
            self.interruption.exit_if_requested()

    def _hooks(self):
        """Returns the hooks of a session: what counts and judges a step, then what may save it."""
        job = self._job
        tells = [job.counter, self._progress]
        finite, stop = nan_guard.NanGuardHook(job.model_dir), self.interruption.hook()

        def check(session, step):
            job.ownership.check()
            finite.check_variables(session, step)

        def save_in(folder):
            return saver.SaverHook(
                folder, job.save_checkpoints_steps, check, job.iterations_per_loop
            )

        if job.task.is_chief:
            saves = save_in(job.model_dir)
            records = [self._record, self._data_record]
            return [job.ownership.hook(), *tells, *records, *self._profile, finite, saves, stop]
        if job.task.is_synchronous:
            # A save sums up over all workers: each must make it, and only the chief's is kept.
            self._scratch = tempfile.TemporaryDirectory()  # removed with this object
            return [*tells, finite, save_in(self._scratch.name), stop]
        return [*tells, finite, stop]

    def report(self):
        """Prints how long it took, and what was saved."""
        if self._job.task.is_chief:
            for hook in self._profile:
                hook.report()
            print(self._record.describe())
            print(f"saved {find.latest(self._job.model_dir)}")
