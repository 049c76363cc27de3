"""train, eval, train_and_eval, continuous_eval, predict and export, for any Estimator."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
from typing import Callable

import tensorflow as tf

from common.errors import RunError, UsageError
from engine.checkpoints import find
from engine.checkpoints.best import BEST_DIR, BestCheckpoint
from engine.cli.run_settings import Job
from engine.distribute import tf_config
from engine.evaluation import confusion_matrix, predictions
from engine.evaluation.evaluator import Evaluator
from engine.hooks import results
from engine.serving import export
from engine.train.trainer import Trainer
from input_fns import DataError, inspection
from input_fns import dataset_info as datasets


@dataclasses.dataclass(frozen=True)
class InputFns:
    """The input_fns of a job, as the wrapper's Estimator calls them.

    Attributes:
      train: from the global step that a training starts at to its input_fn.
      evaluate, predict: input_fns.
    """

    train: Callable[[int], Callable]
    evaluate: Callable
    predict: Callable


# A strategy would rewrite the model_fn for control flow that it has not, and hide its errors.
@tf.autograph.experimental.do_not_convert
def run(estimator, job: Job, input_fns: InputFns) -> None:
    """Does what `job.mode` says."""
    if job.done:
        print(
            f"{job.model_dir} is at step {job.start_step} already: nothing to train up to step "
            f"{job.train_steps}"
        )
        if job.task.is_chief and job.start_step == job.train_steps:
            results.complete(job.model_dir, job.start_step, job.skipped_records)
        if job.mode == "train" or job.task.in_cluster:
            return
    if job.mode not in _MODES:
        raise UsageError(f"--mode={job.mode} is run_tpu.py's")
    if job.task.type == "ps":
        tf_config.serve_parameters(estimator.config, job.train_steps)
        return
    gc.freeze()  # what was imported stays: no collection has to look at it again
    mode = _evaluate_for_cluster if job.task.type == "evaluator" else _MODES[job.mode]
    with _clear_data_errors(job), _clear_checkpoint_errors(job):
        mode(estimator, job, input_fns)


def train(estimator, job, input_fns):
    """Trains up to the global step `job.train_steps`."""
    trainer = Trainer(estimator, job, input_fns.train)
    with trainer.interruption.installed():
        trainer.go(job.start_step, job.train_steps)
    trainer.report()


def evaluate(estimator, job, input_fns):
    """Evaluates `job.checkpoint`; of a classifier prints the figures of each class too."""
    metrics = Evaluator(estimator, job, input_fns).evaluate(job.checkpoint)
    if "confusion_matrix" in metrics:
        print(confusion_matrix.text(metrics["confusion_matrix"], job.dataset.class_names), end="")


def train_and_eval(estimator, job, input_fns):
    """Trains, evaluates every checkpoint, keeps the best, stops early; then may export.

    What an earlier run was stopped before is done too: the evaluation of its last checkpoint, and
    the export.
    """
    evaluator, keeper = Evaluator(estimator, job, input_fns), _Keeper(job)
    trainer = Trainer(estimator, job, input_fns.train)

    def evaluate_and_decide():
        if trainer.interruption.signal is not None:
            return False  # the run that goes on from here evaluates it
        with job.clock.pause(), trainer.interruption.exiting_at_once():
            return keeper.should_stop(evaluator.evaluate(find.latest(job.model_dir)))

    with trainer.interruption.installed():
        stop = False
        if not job.task.in_cluster and job.checkpoint:
            lacks = _lacks_evaluation(job, keeper)
            stop = evaluate_and_decide() if lacks else keeper.has_seen_enough()
        if not stop and not job.done:
            _train_and_decide(estimator, job, trainer, evaluate_and_decide)
            trainer.report()
    if not job.task.in_cluster:
        _export_if_asked(estimator, job)


def _lacks_evaluation(job, keeper):
    """Whether a run that nobody stopped would have evaluated the checkpoint that is resumed."""
    if not job.done and job.start_step % job.save_checkpoints_steps:
        return False
    found = results.of_evaluation(job.model_dir, job.checkpoint)
    return found.get("split") != job.eval_split or not keeper.has_seen(job.start_step)


def _train_and_decide(estimator, job, trainer, evaluate_and_decide):
    if job.task.in_cluster:
        trainer.go(job.start_step, job.train_steps)
    elif isinstance(estimator, tf.compat.v1.estimator.tpu.TPUEstimator):
        _in_turns(trainer, job, evaluate_and_decide)
    else:
        listener = _EvaluatingListener(job.start_step, evaluate_and_decide)
        trainer.go(job.start_step, job.train_steps, [listener])


def _evaluate_for_cluster(estimator, job, input_fns):
    """Evaluates what a chief saves, up to the end; then may export, as train_and_eval does."""
    continuous_eval(estimator, job, input_fns)
    if job.mode == "train_and_eval":
        _export_if_asked(estimator, job)


def _in_turns(trainer, job, evaluate_and_decide):
    """A TPU holds one session at a time: trains up to a checkpoint, evaluates it, and so on."""
    step, stop = job.start_step, False
    while step < job.train_steps and not stop:
        every = job.save_checkpoints_steps
        end_step = min((step // every + 1) * every, job.train_steps)
        trainer.go(step, end_step)
        gc.collect()
        step, stop = end_step, evaluate_and_decide()


def continuous_eval(estimator, job, input_fns):
    """Evaluates each checkpoint as it comes, until the one of train_steps or a time-out."""
    evaluator, keeper = Evaluator(estimator, job, input_fns), _Keeper(job)
    for checkpoint in find.checkpoints_iterator(job.model_dir, job.eval_timeout_secs):
        job.ownership.lock_new()
        try:
            metrics = evaluator.evaluate(checkpoint)
            stop = keeper.should_stop(metrics, checkpoint)
            step = find.read_step(checkpoint)
        except (tf.errors.NotFoundError, ValueError) as error:
            if tf.io.gfile.exists(f"{checkpoint}.index"):
                raise
            reason = type(error).__name__
            print(f"{checkpoint} was removed before it was evaluated and kept: {reason}")
            continue
        if stop or (job.train_steps and step >= job.train_steps):
            return
    print(f"no new checkpoint in {job.model_dir} for {job.eval_timeout_secs} s: the end")


def predict(estimator, job, input_fns):
    """Writes the predictions of every example of the split, in order, or of every line of text."""
    if job.text_input is not None:
        from engine.evaluation import translation  # sacreBLEU is not installed with every other

        translation.write_file(estimator, job, input_fns.predict)
    else:
        predictions.write_file(estimator, job, input_fns.predict)


def _export_if_asked(estimator, job):
    """Exports the best checkpoint, or the latest, unless an earlier run has done so."""
    if not job.export_dir:
        return
    checkpoint = find.find_checkpoint(job.model_dir, "best" if job.best_metric else "latest")
    step = find.read_step(checkpoint)
    path = results.read(job.model_dir, step).get("export", "")
    if os.path.dirname(path) == job.export_dir.rstrip("/") and tf.io.gfile.exists(path):
        print(f"{checkpoint} was exported before: {path}")
        return
    path = _export(estimator, job, checkpoint)
    results.write(job.model_dir, step, "export", path)


def _export(estimator, job, checkpoint):
    path = export.export_saved_model(estimator, job, checkpoint)
    print(f"try it: {export.command_line(job.pipeline, path)}")
    return path


class _Keeper:
    """Keeps the best checkpoint and tells when to stop, if the job wants either."""

    def __init__(self, job):
        self._job = job
        self._best = None
        if job.best_metric:
            self._best = BestCheckpoint(job.model_dir, job.best_metric, self._metrics_of_step)
            print(f"kept in {job.model_dir}/{BEST_DIR}: {self._best.criterion}")

    def _metrics_of_step(self, step):
        return results.read(self._job.model_dir, step).get("eval", {})

    def should_stop(self, metrics, checkpoint=None):
        """Takes the metrics of a checkpoint; returns whether training should end."""
        if self._best is None:
            return False
        checkpoint = checkpoint or find.latest(self._job.model_dir)
        self._best.update(checkpoint, find.read_step(checkpoint), metrics)
        return self.has_seen_enough()

    def has_seen(self, step):
        """Whether the checkpoint of that step was judged last, if any is to be."""
        return self._best is None or self._best.last_step == step

    def has_seen_enough(self):
        """Returns, and says, whether enough evaluations have brought no better checkpoint."""
        patience = self._job.early_stop_evals
        if self._best is None or not patience or self._best.evals_without_gain < patience:
            return False
        print(f"early stop: {patience} evaluations without a better {self._job.best_metric}")
        return True


class _EvaluatingListener(tf.estimator.CheckpointSaverListener):
    """Evaluates what the training session has just saved, and lets that session live on."""

    def __init__(self, start_step, evaluate_and_decide):
        self._start_step = start_step
        self._evaluate_and_decide = evaluate_and_decide

    def after_save(self, session, global_step):
        """Returns whether training should end. The checkpoint of the start is not evaluated."""
        return False if global_step == self._start_step else self._evaluate_and_decide()


@contextlib.contextmanager
def _clear_data_errors(job):
    """Turns what TensorFlow says of a broken record into the shard and the place."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        if job.picture_input is not None:
            raise DataError(
                f"--input: TensorFlow cannot decode a picture that Pillow reads: {error.message}"
            ) from error
        _check_not_replaced(job, error)
        print("the input may be broken: reading every record", flush=True)
        for problem in inspection.problems(job.dataset, job.splits):
            raise DataError(f"{problem} (prepare_data.py --mode=inspect lists all)") from error
        raise
    except tf.errors.NotFoundError as error:
        _check_not_replaced(job, error)
        raise


def _check_not_replaced(job, error):
    """Raises RunError if the files that this run reads are not those of data_dir any more."""
    data = job.dataset
    shards = [shard for name in job.splits for shard in data.split(name).shards]
    if not data.data_dir or not all(shard.name for shard in shards):
        return  # synthetic, or the user's own
    try:
        now = {
            shard
            for split in datasets.read(data.data_dir).splits.values()
            for shard in split.shards
        }
    except DataError:
        now = set()
    if not {shard for shard in shards if not shard.path} <= now:
        what = f"the data set in {data.data_dir} was replaced or removed while this run read it"
    elif datasets.broken_shards(data, job.splits):
        what = (
            f"{data.data_dir}: {datasets.broken_shards(data, job.splits)[0]} since this run began"
        )
    else:
        return
    raise RunError(f"{what}. What was saved is kept; the same command resumes from it") from error


@contextlib.contextmanager
def _clear_checkpoint_errors(job):
    """Replaces the error about a checkpoint that a training removed while it was used."""
    try:
        yield
    except (tf.errors.OpError, ValueError) as error:
        given = job.checkpoint
        if job.trains or given is None or tf.io.gfile.exists(f"{given}.index"):
            raise
        raise RunError(
            f"{given} was removed while it was used, probably by the training in that folder, "
            "which keeps --keep_checkpoint_max of them. Run the same command again"
        ) from error


_MODES = {
    "train": train,
    "eval": evaluate,
    "train_and_eval": train_and_eval,
    "continuous_eval": continuous_eval,
    "predict": predict,
    "export": lambda estimator, job, input_fns: _export(estimator, job, job.checkpoint),
}
