"""The modes of the wrappers: train, eval, train_and_eval, continuous_eval, predict and export."""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
from collections.abc import Callable

import tensorflow as tf

from common.errors import UsageError
from engine import model_fns
from engine.checkpoints import best as best_checkpoint
from engine.checkpoints import find
from engine.checkpoints.best import BestCheckpoint
from engine.checkpoints.checkpoint_files import BEST_DIR
from engine.cli import changed_flags, run_errors, runtime, startup
from engine.cli.flags import FLAGS
from engine.distribute import tf_config
from engine.evaluation import predictions
from engine.evaluation.evaluator import Evaluator
from engine.hooks import results
from engine.hooks.eval_schedule import EvalTimer
from engine.run_settings import RunSettings, TrainingState
from engine.serving import export
from engine.train.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class InputFns:
    """The input_fns of a run, as the Estimator of the wrapper calls them."""

    # Function from the global step that training starts at to its input_fn.
    train: Callable[[int], Callable]
    evaluate: Callable[[str], Callable]  # function from a split to the input_fn of its evaluation
    predict: Callable  # input_fn of --mode=predict
    # Function from a split to the input_fn of the predictions that host metrics need.
    host: Callable[[str], Callable]


def run_program(opened: Callable) -> None:
    """Runs the mode of the flags in this process.

    Args:
      opened: returns a context manager of the arguments of `run`.
    """
    startup.require_parsed(FLAGS)
    runtime.prepare()
    with opened() as arguments:
        gc.freeze()  # exclude imported modules from garbage collection
        run(*arguments)


# A strategy would convert the model_fn with AutoGraph, which hides the origin of its errors.
@tf.autograph.experimental.do_not_convert
def run(estimator, settings: RunSettings, state: TrainingState, input_fns: InputFns) -> str | None:
    """Runs `settings.mode`; returns the path of an export."""
    if settings.is_training and settings.checkpoint and settings.task.is_chief:
        _tell_changed_flags(settings)
    if settings.is_trained:
        print(
            f"{settings.model_dir} is already at step {settings.start_step} of --train_steps="
            f"{settings.train.steps}: nothing to train"
        )
        if settings.task.is_chief and settings.start_step == settings.train.steps:
            skipped = settings.train.skipped_records
            results.complete(settings.model_dir, settings.start_step, skipped)
        if settings.mode == "train" or settings.task.in_cluster:
            return None
    if settings.mode not in _MODES:
        raise UsageError(f"--mode={settings.mode} is only available in run_tpu.py")
    if settings.mode == "train_and_eval":
        model_fns.check_top_k(settings)
    if settings.task.type == "ps":
        tf_config.serve_parameters(estimator.config, settings.train.steps)
        return None
    mode = _evaluate_cluster if settings.task.type == "evaluator" else _MODES[settings.mode]
    with run_errors.data_errors(settings), run_errors.checkpoint_errors(settings):
        return mode(estimator, settings, state, input_fns)


def _tell_changed_flags(settings):
    """Prints what a training that resumes changes.

    Raises:
      UsageError: it ends where it resumes; see `_refuse_changed_flags`.
    """
    if settings.is_trained:
        _refuse_changed_flags(settings)
    changed = changed_flags.describe(settings.model_dir, settings.flagfile)
    if changed:
        print(
            f"{settings.model_dir} was trained with other flags: now {changed}. For a training "
            "from its start use another --model_dir"
        )


def _refuse_changed_flags(settings):
    """Raises `UsageError` if a training that has ended had other hyperparameters or data.

    Its results would be taken for those of the others.
    """
    changed = changed_flags.describe(settings.model_dir, settings.flagfile, of_weights=True)
    if changed:
        raise UsageError(
            f"{settings.model_dir} is trained, at step {settings.start_step} of --train_steps="
            f"{settings.train.steps}, with other hyperparameters or data: now {changed}. Train "
            "with them in another --model_dir"
        )


def train(estimator, settings, state, input_fns):
    """Trains up to the global step `settings.train.steps`."""
    trainer = Trainer(estimator, settings, state, input_fns.train)
    with trainer.interruption.installed():
        trainer.train(settings.start_step, settings.train.steps)
    trainer.report()


def evaluate(estimator, settings, state, input_fns):
    """Evaluates `settings.checkpoint` and prints its reports."""
    del state
    Evaluator(estimator, settings, input_fns).evaluate(settings.checkpoint, print_reports=True)


def train_and_eval(estimator, settings, state, input_fns):
    """Trains, evaluates, keeps the best checkpoint, stops early, and exports at the end.

    Resumes an interrupted run, including the evaluation of its last checkpoint and the export.
    Returns the path of the export; None without one.
    """
    evaluator, best = Evaluator(estimator, settings, input_fns), _BestAndEarlyStopping(settings)
    schedule, start, end = settings.evaluation.schedule, settings.start_step, settings.train.steps
    timer = EvalTimer(schedule, settings.model_dir, state.clock, start)
    trainer = Trainer(estimator, settings, state, input_fns.train)

    def evaluate_if_due(step):
        is_due = timer.is_due(step) or step >= end
        if trainer.interruption.signal is not None or not is_due:
            return False  # the run that resumes evaluates this checkpoint if it is due
        return evaluate_and_decide()

    def evaluate_and_decide():
        with state.clock.pause(), trainer.interruption.exiting_at_once():
            stop = best.update(evaluator.evaluate(find.latest(settings.model_dir)))
        timer.restart()
        return stop

    with trainer.interruption.installed():
        stop = False
        if settings.checkpoint and not settings.task.in_cluster:
            stop = (
                evaluate_and_decide() if _lacks_evaluation(settings, best) else best.should_stop()
            )
            if stop:
                _refuse_changed_flags(settings)
        if not stop and not settings.is_trained:
            if settings.use_tpu:
                # A TPU holds one session at a time: train up to a checkpoint, then evaluate it.
                every = settings.train.save_checkpoints_steps
                while start < end and not stop:
                    next_checkpoint = (start // every + 1) * every
                    at = schedule.next_step(start) if schedule.every_steps else next_checkpoint
                    at = min(at, end)
                    trainer.train(start, at)
                    gc.collect()
                    start, stop = at, evaluate_if_due(at)
            else:
                trainer.train(start, end, [_EvaluatingListener(start, evaluate_if_due)])
            trainer.report()
    return None if settings.task.in_cluster else _export_after_training(estimator, settings)


def _lacks_evaluation(settings, best):
    """Whether a checkpoint is due that was not evaluated, or that ends training on other data.

    Training may have been interrupted between saving the checkpoint and its evaluation.
    """
    step, schedule = settings.start_step, settings.evaluation.schedule
    if schedule.every_steps:
        is_due = schedule.next_step(step - 1) == step
    else:
        # If minutes have passed when training was interrupted, its next checkpoint is evaluated.
        every = settings.train.save_checkpoints_steps
        is_due = step % every == 0 and not schedule.every_minutes
    if not (settings.is_trained or is_due):
        return False
    for split in settings.evaluation.splits:
        section = results.read_evaluation(settings, split, settings.checkpoint)
        data = settings.dataset.split(split).identity
        if not section or (settings.is_trained and section.get("data", data) != data):
            return True
    return not best.has_seen(settings.start_step)


def _evaluate_cluster(estimator, settings, state, input_fns):
    """Evaluates the checkpoints of a cluster's chief; exports like train_and_eval."""
    continuous_eval(estimator, settings, state, input_fns)
    if settings.mode == "train_and_eval":
        return _export_after_training(estimator, settings)
    return None


def continuous_eval(estimator, settings, state, input_fns):
    """Evaluates new checkpoints as scheduled, until the one of train_steps or a time-out."""
    evaluator, best = Evaluator(estimator, settings, input_fns), _BestAndEarlyStopping(settings)
    timer = EvalTimer(settings.evaluation.schedule, settings.model_dir, state.clock)
    for checkpoint in find.checkpoints_iterator(
        settings.model_dir, settings.evaluation.timeout_secs
    ):
        state.lock.lock_new()
        try:
            step = find.read_step(checkpoint)
            is_last = settings.train.steps and step >= settings.train.steps
            if not timer.is_due(step) and not is_last:
                continue
            stop = best.update(evaluator.evaluate(checkpoint), checkpoint)
        except (tf.errors.NotFoundError, ValueError) as error:
            if tf.io.gfile.exists(f"{checkpoint}.index"):
                raise
            reason = type(error).__name__
            print(f"{checkpoint} was removed before its evaluation ended: {reason}")
            continue
        if stop or is_last:
            return
    seconds = settings.evaluation.timeout_secs
    print(f"no new checkpoint in {settings.model_dir} for {seconds} s (--eval_timeout_secs)")


def predict(estimator, settings, state, input_fns):
    """Writes the predictions of a split or of `--input`."""
    del state
    predict_fn = functools.partial(
        estimator.predict, input_fns.predict, yield_single_examples=False
    )
    predictions.write(settings, predict_fn)


def _export(estimator, settings, state, input_fns):
    del state, input_fns
    return export.export_saved_model(estimator, settings, settings.checkpoint)


def _export_after_training(estimator, settings):
    """Exports the best checkpoint, or the latest, unless it was exported before.

    Returns the path of the export; None without --export_dir.
    """
    if not settings.export.dir:
        return None
    which = "best" if settings.evaluation.best_metric else "latest"
    if which == "best" and best_checkpoint.read(settings.model_dir).get("step", 0) < 0:
        raise UsageError(
            f"--best_metric={settings.evaluation.best_metric} was NaN in every evaluation, so no "
            "checkpoint is the best one to export. Export the last one with --mode=export "
            "--checkpoint=latest, or use another metric"
        )
    checkpoint = find.find_checkpoint(settings.model_dir, which)
    step = find.read_step(checkpoint)
    path = results.read(settings.model_dir, step).get("export", "")
    if os.path.dirname(path) == settings.export.dir.rstrip("/") and tf.io.gfile.exists(path):
        print(f"{checkpoint} was exported before: {path}")
        return path
    path = export.export_saved_model(estimator, settings, checkpoint)
    results.write(settings.model_dir, step, "export", path)
    return path


class _BestAndEarlyStopping:
    """Keeps the best checkpoint (`--best_metric`); early stopping (`--early_stop_evals`)."""

    def __init__(self, settings):
        self._settings = settings
        self._best = None
        metric, direction = settings.evaluation.best_metric, settings.evaluation.best_direction
        if metric:
            split = settings.evaluation.split
            self._best = BestCheckpoint(
                settings.model_dir, metric, direction, self._metrics_at, split
            )
            folder = f"{settings.model_dir}/{BEST_DIR}"
            print(f"--best_metric will keep {self._best.criterion} in {folder}")

    def _metrics_at(self, step):
        name = results.evaluation_name(self._settings, self._settings.evaluation.split)
        return results.read(self._settings.model_dir, step).get(name, {})

    def update(self, metrics, checkpoint=None):
        """Adds the metrics of a checkpoint, by default the latest; returns `should_stop()`."""
        if self._best is None:
            return False
        checkpoint = checkpoint or find.latest(self._settings.model_dir)
        self._best.update(checkpoint, find.read_step(checkpoint), metrics)
        return self.should_stop()

    def has_seen(self, step):
        """Whether the checkpoint of `step` was the last to be compared with the best one."""
        return self._best is None or self._best.last_step == step

    def should_stop(self):
        """Whether the metric has not improved for `early_stop_evals` evaluations, the patience."""
        settings = self._settings.evaluation
        patience = settings.early_stop_evals
        if self._best is None or not patience or self._best.evals_without_gain < patience:
            return False
        print(f"early stopping: {patience} evaluations without a better {settings.best_metric}")
        return True


class _EvaluatingListener(tf.estimator.CheckpointSaverListener):
    """Evaluates checkpoints that the training session saves, and keeps that session open."""

    def __init__(self, start_step, evaluate_if_due):
        self._start_step = start_step
        self._evaluate_if_due = evaluate_if_due

    def after_save(self, session, global_step):
        """Returns whether training should stop. The checkpoint of the start is not evaluated."""
        return False if global_step == self._start_step else self._evaluate_if_due(global_step)


_MODES = {
    "train": train,
    "eval": evaluate,
    "train_and_eval": train_and_eval,
    "continuous_eval": continuous_eval,
    "predict": predict,
    "export": _export,
}
