"""tf.contrib.learn: mode keys, RunConfig, and `monitors` as hooks; the rest became tf.estimator."""

from __future__ import annotations

import time

import tensorflow as tf

v1 = tf.compat.v1
__all__ = [
    "ModeKeys",
    "NanLoss",
    "PrintTensor",
    "RunConfig",
    "StepCounter",
    "SummarySaver",
    "ValidationMonitor",
    "replace_monitors_with_hooks",
]
_DEFAULT = object()


class ModeKeys:
    """Modes of a model_fn."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"

    @classmethod
    def validate(cls, key):
        """Raises ValueError for an unknown mode."""
        if key not in (cls.TRAIN, cls.EVAL, cls.INFER):
            raise ValueError(f"Invalid mode {key!r}. Valid modes: train, eval, infer.")


class RunConfig(tf.estimator.RunConfig):
    """A tf.estimator.RunConfig from the arguments of tf.contrib.learn.RunConfig."""

    def __init__(
        self,
        master=None,
        num_cores=0,
        log_device_placement=False,
        gpu_memory_fraction=1,
        tf_random_seed=None,
        save_summary_steps=100,
        save_checkpoints_secs=_DEFAULT,
        save_checkpoints_steps=None,
        keep_checkpoint_max=5,
        keep_checkpoint_every_n_hours=10000,
        log_step_count_steps=100,
        protocol=None,
        evaluation_master="",
        model_dir=None,
        session_config=None,
        session_creation_timeout_secs=7200,
    ):
        if save_checkpoints_secs is _DEFAULT:
            save_checkpoints_secs = 600 if save_checkpoints_steps is None else None
        self.tf_config = v1.ConfigProto(
            log_device_placement=log_device_placement,
            inter_op_parallelism_threads=num_cores,
            intra_op_parallelism_threads=num_cores,
            gpu_options=v1.GPUOptions(per_process_gpu_memory_fraction=gpu_memory_fraction),
        )
        super().__init__(
            model_dir=model_dir,
            tf_random_seed=tf_random_seed,
            save_summary_steps=save_summary_steps,
            save_checkpoints_secs=save_checkpoints_secs,
            save_checkpoints_steps=save_checkpoints_steps,
            session_config=session_config or self.tf_config,
            keep_checkpoint_max=keep_checkpoint_max,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps,
            protocol=protocol,
            session_creation_timeout_secs=session_creation_timeout_secs,
        )
        if master is not None:
            self._master = master
        self._evaluation_master = evaluation_master or self._evaluation_master


class ValidationMonitor(tf.estimator.SessionRunHook):
    """Evaluates the new checkpoint, if there is one, every N steps of a training.

    Attributes:
      early_stopped: whether it stopped the training.
      best_step: step at which the metric of early stopping was best.
      best_value: the best value of that metric.
      best_metrics: all metrics of the evaluation with the best value.
    """

    def __init__(
        self,
        x=None,
        y=None,
        input_fn=None,
        batch_size=None,
        eval_steps=None,
        every_n_steps=100,
        metrics=None,
        hooks=None,
        early_stopping_rounds=None,
        early_stopping_metric="loss",
        early_stopping_metric_minimize=True,
        name=None,
        check_interval_secs=5,
    ):
        if input_fn is None or any(value is not None for value in (x, y, batch_size, metrics)):
            raise ValueError(
                "ValidationMonitor of tf.estimator needs input_fn, and cannot have x, y, "
                "batch_size or metrics"
            )
        self._evaluation = {"steps": eval_steps, "hooks": hooks, "name": name}
        self._input_fn = input_fn
        self._every_n_steps = every_n_steps
        self._patience = early_stopping_rounds
        self._metric = early_stopping_metric
        self._sign = 1 if early_stopping_metric_minimize else -1
        self._interval = check_interval_secs
        self._estimator = self._path = self._next_step = self._next_time = None
        self.early_stopped = False
        self.best_step = self.best_value = self.best_metrics = None

    def set_estimator(self, estimator):
        """Sets the Estimator that is trained."""
        self._estimator = estimator

    def begin(self):
        """Looks up the global step."""
        if self._estimator is None:
            raise ValueError(
                "ValidationMonitor has no Estimator: pass it through replace_monitors_with_hooks"
            )
        self._global_step = v1.train.get_global_step()

    def before_run(self, run_context):
        """Returns a request for the global step."""
        return tf.estimator.SessionRunArgs(self._global_step)

    def after_run(self, run_context, run_values):
        """Evaluates a new checkpoint if this many steps and seconds have passed."""
        # The step of the fetched tensor may be that before or after the update.
        step = int(run_context.session.run(self._global_step))
        if self._next_step is None:
            self._next_step = int(run_values.results)
        if step < self._next_step or not self._is_due():
            return
        self._next_step = step + self._every_n_steps
        path = tf.train.latest_checkpoint(self._estimator.model_dir)
        if path is not None and path != self._path:
            self._path = path
            found = self._estimator.evaluate(self._input_fn, **self._evaluation)
            if self._patience is not None and self._is_patience_over(step, found):
                self.early_stopped = True
                run_context.request_stop()

    def _is_due(self):
        now = time.monotonic()
        if self._interval is not None:
            if self._next_time is not None and now < self._next_time:
                return False
            self._next_time = now + self._interval
        return True

    def _is_patience_over(self, step, found):
        if self._metric not in found:
            raise ValueError(
                f"ValidationMonitor: unknown early_stopping_metric {self._metric!r}; valid are "
                f"{', '.join(sorted(found))}"
            )
        value = found[self._metric]
        if self.best_step is None or self._sign * value < self._sign * self.best_value:
            self.best_step, self.best_value, self.best_metrics = step, value, dict(found)
        return step - self.best_step >= self._patience


def replace_monitors_with_hooks(monitors_or_hooks, estimator):
    """Returns a list of hooks; a ValidationMonitor gets the Estimator.

    Raises:
      ValueError: a monitor that is not a hook.
    """
    hooks = list(monitors_or_hooks or ())
    others = [hook for hook in hooks if not isinstance(hook, tf.estimator.SessionRunHook)]
    if others:
        kinds = ", ".join(sorted({type(other).__name__ for other in others}))
        raise ValueError(
            f"Monitors of tf.contrib.learn are not available with --tf1: {kinds}. Derive them from "
            "tf.train.SessionRunHook."
        )
    for hook in hooks:
        if isinstance(hook, ValidationMonitor):
            hook.set_estimator(estimator)
    return hooks


def PrintTensor(tensor_names, every_n=100, first_n=1):  # noqa: N802
    """Returns a hook that logs tensors every N steps; `first_n` is ignored."""
    del first_n
    return v1.train.LoggingTensorHook(tensor_names, every_n_iter=every_n)


def SummarySaver(  # noqa: N802
    summary_op, save_steps=100, output_dir=None, summary_writer=None, scaffold=None
):
    """Returns a hook that writes summaries."""
    return v1.train.SummarySaverHook(
        save_steps=save_steps,
        output_dir=output_dir,
        summary_writer=summary_writer,
        scaffold=scaffold,
        summary_op=summary_op,
    )


def StepCounter(every_n_steps=100, output_dir=None, summary_writer=None):  # noqa: N802
    """Returns a hook that counts steps per second."""
    return v1.train.StepCounterHook(
        every_n_steps, output_dir=output_dir, summary_writer=summary_writer
    )


def NanLoss(loss_tensor, every_n_steps=100, fail_on_nan_loss=True):  # noqa: N802
    """Returns a hook that stops the training if the loss is NaN, after each step."""
    del every_n_steps
    return v1.train.NanTensorHook(loss_tensor, fail_on_nan_loss)
