"""What a run is asked to do, checked before any graph is built and before anything is written."""

from __future__ import annotations

import dataclasses
import math
import os
import secrets
from typing import TYPE_CHECKING, Any

from common import files
from common.errors import UsageError
from common.strict_flags import MAX_INTEGER
from engine.checkpoints import find, recovery, trained_on
from engine.checkpoints.model_dir_lock import BEST_LOCK, TRAIN_LOCK, Ownership
from engine.cli import hparams, memory_check, pipelines
from engine.cli.flags import FLAGS, TRAINING_MODES, batch_sizes
from engine.distribute.tf_config import Task
from engine.evaluation import predictions
from engine.evaluation.image_input import PictureInput
from engine.hooks.progress import Clock, StepCounter
from engine.train import host_loop
from input_fns import repair, synthetic
from input_fns.dataset_info import DatasetInfo
from input_fns.pipeline import Pipeline
from models import registry
from models.model import Model

if TYPE_CHECKING:
    # SentencePiece and sacreBLEU are not installed everywhere: only jobs with text import it.
    from engine.evaluation.translation import TextInput


_ALONE = Task()


@dataclasses.dataclass(frozen=True)
class Job:
    """The flags, resolved: objects where flags have names, numbers where they have choices.

    Attributes:
      params: every hyperparameter.
      skipped_records: of the split that is trained on, because they cannot be read.
      splits: those that are read; a file of text is none.
      checkpoint: in training the one that is resumed, else the one that is used; None for none.
      start_step: the global step of `checkpoint`.
      text_input: what prediction and BLEU translate; None where there is no text.
      picture_input: what prediction reads in the place of a split of images, or None.
      warm_start_from: checkpoint that a new training begins with, or None.
      train_steps: the global step at which training ends; 0 where nobody said, or nobody asks.
      iterations_per_loop: steps of one session.run: on a TPU; elsewhere the most of them.
      uses_tpu: whether the Estimator computes on a TPU, be it an emulated one.
      task: what this process is in a cluster.
      ownership: the locks of model_dir, to be released when the job is done.
      counter: of the global step; where it is a `loop.LoopCounter`, the Estimator trains in loops.
      seed: of the order of the examples; `graph_seed` is the same, or None where none was given.
      The other attributes are the flags of that name; batch sizes are global.
    """

    mode: str
    model: Model
    pipeline: Pipeline
    params: dict[str, Any]
    model_dir: str
    export_dir: str
    train_split: str
    eval_split: str
    splits: list[str]
    skipped_records: int
    checkpoint: str | None
    start_step: int
    text_input: TextInput | None
    picture_input: PictureInput | None
    warm_start_from: str | None
    warm_start_include: str
    predict_output: str
    export_top_k: int
    export_check: bool
    train_steps: int
    train_batch_size: int
    eval_batch_size: int
    predict_batch_size: int
    accumulate_steps: int
    save_checkpoints_steps: int
    iterations_per_loop: int
    uses_tpu: bool
    task: Task
    keep_checkpoint_max: int
    best_metric: str
    early_stop_evals: int
    eval_timeout_secs: int
    summary_steps: int
    profile: int
    seed: int
    graph_seed: int | None
    clock: Clock
    counter: StepCounter
    ownership: Ownership

    @property
    def dataset(self) -> DatasetInfo:
        """What the pipeline reads."""
        return self.pipeline.data

    def predict_input_fn(self):
        """Returns the input_fn of prediction."""
        if self.text_input is not None:
            return self.pipeline.rows_input_fn(self.text_input.rows)
        if self.picture_input is not None:
            return self.pipeline.files_input_fn(self.picture_input.files)
        return self.pipeline.predict_input_fn(self.eval_split)

    @property
    def trains(self) -> bool:
        """Whether this job changes the model."""
        return self.mode in TRAINING_MODES

    @property
    def done(self) -> bool:
        """Whether training has nothing left to do."""
        return self.trains and self.start_step >= self.train_steps


def from_flags(
    iterations_per_loop: int = 1,
    uses_tpu: bool = False,
    task: Task = _ALONE,
    in_loops: bool = False,
) -> Job:
    """Resolves the flags.

    Args:
      iterations_per_loop: of the Job.
      uses_tpu: of the Job.
      task: of the Job.
      in_loops: whether an Estimator trains as `engine.train.host_loop` does.

    Raises:
      UsageError, DataError, ModelError: something asked for is not there or cannot be done.
    """
    ownership = _ownership(task)
    try:
        job = _resolve(iterations_per_loop, uses_tpu, task, ownership)
        if FLAGS.skip_bad_records and job.trains and FLAGS.dataset != synthetic.NAME:
            job = _without_bad_records(job)
    except BaseException:
        ownership.release()
        raise
    return _in_loops(job) if in_loops else job


def _ownership(task):
    names = []
    if FLAGS.mode in TRAINING_MODES and task.is_chief:
        names.append(TRAIN_LOCK)
    evaluates_all = FLAGS.mode == "train_and_eval" and not task.in_cluster
    keeps_best = evaluates_all or FLAGS.mode == "continuous_eval" or task.type == "evaluator"
    if FLAGS.best_metric and keeps_best:
        names.append(BEST_LOCK)
    return Ownership(FLAGS.model_dir, FLAGS.mode, tuple(names))


def _resolve(iterations_per_loop, uses_tpu, task, ownership):
    model = registry.find(FLAGS.model)
    trains = FLAGS.mode in TRAINING_MODES
    evaluates = FLAGS.mode != "train" or task.type == "evaluator"
    splits = [FLAGS.train_split] if trains or FLAGS.mode == "check" else []
    splits += [FLAGS.eval_split] if evaluates and not FLAGS.input else []
    pipeline = pipelines.from_flags(splits)
    dataset = pipeline.data
    missing = [name for name in model.features if name not in dataset.features]
    if missing:
        raise UsageError(
            f"--model={FLAGS.model} needs {' and '.join(model.features)}, but the data set "
            f"{dataset.name} holds {', '.join(dataset.features)}"
        )
    vocab_size = dataset.text.vocab_size if dataset.text else 0
    params = hparams.resolve(model, FLAGS.params, dataset.num_classes, FLAGS.precision, vocab_size)
    for split in splits:
        dataset.split(split)
    _check_prediction(pipeline)
    picture_input = _picture_input(pipeline)
    _check_cluster(task, trains)
    ownership.take_existing()
    checkpoint = _checkpoint(trains, task)
    if checkpoint is not None:
        trained_on.check(checkpoint, FLAGS.model_dir, pipeline)
    job = Job(
        model=model,
        pipeline=pipeline,
        params=params,
        skipped_records=0,
        splits=splits,
        checkpoint=checkpoint,
        start_step=find.step_of(checkpoint),
        text_input=_text_input(pipeline) if evaluates else None,
        picture_input=picture_input,
        warm_start_from=_warm_start(trains, checkpoint),
        predict_output=FLAGS.predict_output,
        train_steps=_train_steps(dataset),
        iterations_per_loop=iterations_per_loop,
        uses_tpu=uses_tpu,
        task=task,
        seed=secrets.randbits(31) if FLAGS.seed is None else FLAGS.seed,
        graph_seed=FLAGS.seed,
        clock=Clock(),
        counter=StepCounter(iterations_per_loop, task.alone),
        ownership=ownership,
        **{name: getattr(FLAGS, name) for name in _SAME_AS_FLAG},
    )
    if job.trains:
        _check_parts(job.train_batch_size, job.accumulate_steps)
    _check_batches(job)
    _check_folders(job)
    return job


_SAME_AS_FLAG = (
    "mode",
    "model_dir",
    "export_dir",
    "export_top_k",
    "export_check",
    "train_split",
    "eval_split",
    "warm_start_include",
    "train_batch_size",
    "eval_batch_size",
    "predict_batch_size",
    "accumulate_steps",
    "save_checkpoints_steps",
    "keep_checkpoint_max",
    "best_metric",
    "early_stop_evals",
    "eval_timeout_secs",
    "summary_steps",
    "profile",
)


def _check_prediction(pipeline):
    data = pipeline.data
    if FLAGS.export_text and not data.text:
        raise UsageError(f"--export_text is for text, and {data.name} holds none")
    if FLAGS.input and not (data.text or hasattr(pipeline, "files_input_fn")):
        raise UsageError(f"--input={FLAGS.input}: {data.name} is no data set of pictures or text")
    if FLAGS.export_top_k > data.num_classes:
        raise UsageError(
            f"--export_top_k={FLAGS.export_top_k}, but {data.name} has {data.num_classes} classes"
        )
    endings = (".txt",) if data.text else (".jsonl", ".npz")
    if FLAGS.predict_output and not FLAGS.predict_output.endswith(endings):
        raise UsageError(
            f"--predict_output={FLAGS.predict_output} must end in {' or '.join(endings)}"
        )
    if FLAGS.predict_output:
        predictions.check_output(FLAGS.predict_output)


def _text_input(pipeline):
    if not pipeline.corpus_metrics or FLAGS.mode in ("export", "check"):
        return None
    from engine.evaluation import translation

    if FLAGS.input:
        return translation.of_file(FLAGS.input, pipeline)
    return translation.of_split(pipeline, FLAGS.eval_split)


def _picture_input(pipeline):
    if not FLAGS.input or pipeline.data.text:
        return None
    stored = pipeline.data.features["image"]
    image_size = stored.shape[:2] if stored.encoding == "raw" else None
    return PictureInput(FLAGS.input, image_size, stored.shape[-1])


def _check_parts(batch_size, parts):
    if batch_size % parts:
        below = batch_size // parts * parts
        raise UsageError(
            f"--accumulate_steps={parts} cuts no batch of {batch_size} into equal parts; "
            f"{below or parts} or {below + parts} would do"
        )


def _check_batches(job):
    # Of a TPU or a cluster this process holds a part; a check builds, but feeds nothing.
    if job.uses_tpu or job.task.in_cluster or job.mode == "check" or job.done:
        return
    known = job.mode in ("predict", "export") and not FLAGS.input
    num_predicted = job.dataset.split(job.eval_split).num_examples if known else 0
    memory_check.check(job.pipeline, batch_sizes(), num_predicted)


def _check_cluster(task, trains):
    if not task.in_cluster:
        return
    if not trains:
        raise UsageError(
            f"TF_CONFIG describes a cluster, which trains: --mode={FLAGS.mode} is for one process"
        )
    if task.in_step and FLAGS.seed is None:
        raise UsageError("--strategy=multi_worker_mirrored needs --seed, the same for all workers")
    if FLAGS.early_stop_evals:
        raise UsageError("--early_stop_evals: the evaluator of a cluster cannot stop the others")


def _checkpoint(trains, task):
    if trains and task.is_chief:
        return recovery.newest_good(FLAGS.model_dir, FLAGS.keep_checkpoint_max)
    if trains and task.type == "worker":
        return find.latest(FLAGS.model_dir)
    if trains:
        return None  # an evaluator waits for one, a parameter server is given its values
    if FLAGS.mode in ("continuous_eval", "check"):
        return None  # the one waits for one, the other needs none
    return find.find(FLAGS.model_dir, FLAGS.checkpoint)


def _warm_start(trains, checkpoint):
    if not trains or not FLAGS.warm_start_from:
        return None
    if checkpoint is not None:
        print(f"warm start: not needed, {FLAGS.model_dir} is resumed from its own {checkpoint}")
        return None
    return find.find_warm_start(FLAGS.warm_start_from)


def _train_steps(dataset):
    if FLAGS.train_epochs is None:
        return FLAGS.train_steps or 0
    if FLAGS.mode in ("eval", "predict", "export"):
        return 0  # they have no use for it, and need no split to train on
    examples = FLAGS.train_epochs * dataset.split(FLAGS.train_split).num_examples
    steps = math.ceil(min(examples / FLAGS.train_batch_size, 2 * MAX_INTEGER))
    if not 0 < steps <= MAX_INTEGER:
        what = "no step" if not steps else f"more than {MAX_INTEGER} steps"
        raise UsageError(f"--train_epochs={FLAGS.train_epochs} is {what} of training")
    return steps


def _without_bad_records(job):
    """Reads all that is trained on; comes last, because it writes what it repairs."""
    folder = os.path.join(job.model_dir, "repaired")
    data, skipped = repair.without_bad_records(
        job.dataset, job.train_split, folder, FLAGS.skip_bad_records
    )
    return dataclasses.replace(
        job,
        pipeline=dataclasses.replace(job.pipeline, data=data),
        skipped_records=skipped,
        train_steps=_train_steps(data),
    )


def _in_loops(job):
    stops = job.save_checkpoints_steps, job.summary_steps
    counter = host_loop.LoopCounter(*stops, end=job.train_steps)
    return dataclasses.replace(job, counter=counter, iterations_per_loop=host_loop.MOST_STEPS)


def _check_folders(job):
    if job.mode == "check" or (job.done and job.mode == "train"):
        return
    if job.mode != "export":
        files.require_writable("model_dir", job.model_dir)
    if job.export_dir and job.mode in ("export", "train_and_eval"):
        files.require_writable("export_dir", job.export_dir)
    if job.mode == "predict" and job.predict_output:
        files.require_writable("predict_output", os.path.dirname(job.predict_output) or ".")
