"""Resolves flags into `RunSettings`, before any graph is built or any file is written."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import re
import secrets
from fractions import Fraction

import tensorflow as tf

from common import files, folders
from common.errors import UsageError
from common.strict_flags import MAX_INTEGER
from engine.checkpoints import (
    checkpoint_files,
    ensemble,
    find,
    metric_direction,
    recovery,
    released,
    trained_on,
    warm_start,
)
from engine.checkpoints.model_dir_lock import BEST_LOCK, TRAIN_LOCK, ModelDirLock
from engine.cli import (
    changed_flags,
    class_balance,
    early_checks,
    hparams,
    pipelines,
    runtime,
    startup,
    unused_flags,
)
from engine.cli.flags import (
    BEST_METRIC_MODES,
    FLAGS,
    TRAINING_MODES,
    as_flagfile,
    batch_sizes,
    eval_splits,
    is_own_dataset,
    is_param_of_command_line,
    oversample_exponent,
    splits_read,
)
from engine.distribute.tf_config import Task
from engine.evaluation import host_metrics
from engine.evaluation.predictions import check_output
from engine.hooks import memory_check, results
from engine.hooks.eval_schedule import EvalSchedule
from engine.hooks.progress import Clock, StepCounter
from engine.run_settings import (
    EvalSettings,
    ExportSettings,
    PredictSettings,
    RunSettings,
    TrainingState,
    TrainSettings,
)
from engine.train import host_loop, own_step, tpu_embeddings
from input_fns import kinds
from input_fns.core import data_service, predictions, repair
from models import registry, targets
from models.model import ModelError

_SINGLE_PROCESS = Task()
# Properties of a data set that its labels define.
_OF_LABELS = {"num_classes", "num_tags", *targets.PROPERTIES}
# A comment of flags.cfg, before the seed that a run without --seed has drawn.
_ORDER_SEED = "# seed of the order of the examples: "


def resolve(
    iterations_per_loop: int = 1,
    use_tpu: bool = False,
    task: Task = _SINGLE_PROCESS,
    in_loops: bool = False,
    reads_files: bool = True,
) -> tuple[RunSettings, TrainingState]:
    """Resolves and validates the flags, and locks model_dir.

    Args:
      iterations_per_loop: steps per session.run on a TPU.
      use_tpu: True if the Estimator runs on a TPU.
      task: task of this process in a cluster.
      in_loops: True if an Estimator runs several steps per session.run (`engine.train.host_loop`).
      reads_files: False on a remote TPU, which cannot call the reader of --input files.

    Returns:
      The settings and the training state. The caller releases `state.lock`.

    Raises:
      UsageError, DataError, ModelError: a flag is invalid, or names a missing file, split or model.
    """
    if not use_tpu:
        iterations_per_loop = 1
    unused_flags.check()
    if task.is_chief:
        unused_flags.report()
    lock = _lock(task)
    try:
        settings = _resolve(
            host_loop.MAX_STEPS if in_loops else iterations_per_loop, use_tpu, task, lock
        )
        if settings.prediction.examples.reads_files and not reads_files:
            raise UsageError(
                "--input files are read by this process, which a remote TPU cannot call. Use "
                "run_cpu.py, or convert the files with prepare_data.py"
            )
        if FLAGS.skip_bad_records and settings.is_training and FLAGS.dataset != kinds.SYNTHETIC:
            settings = _without_bad_records(settings)
    except BaseException:
        lock.release()
        raise
    if in_loops:
        train = settings.train
        stops = train.save_checkpoints_steps, train.summary_steps
        schedule = settings.evaluation.schedule
        counter = host_loop.LoopCounter(*stops, end=train.steps, schedule=schedule)
    else:
        counter = StepCounter(iterations_per_loop, task.alone)
    return settings, TrainingState(startup.STARTED, Clock(), counter, lock)


def _resolve(iterations_per_loop, use_tpu, task, lock):
    model = registry.find(FLAGS.model)
    if FLAGS.mode in ("predict", "export"):
        model = model.predicting(FLAGS.predictions)
    is_training = FLAGS.mode in TRAINING_MODES
    splits = splits_read(is_evaluator=task.type == "evaluator")
    # Of a model that does not fit the data, the hyperparameters are not the fault to name.
    requested = functools.partial(hparams.resolve, model, FLAGS.params, None, FLAGS.precision)
    pipeline = pipelines.from_flags(splits, requested, model.features)
    dataset = pipeline.data
    features = dict.fromkeys((*dataset.features, *pipeline.features))
    num_classes = len(dataset.all_class_names)
    registry.check_data(FLAGS.model, dataset.name, features, _labels(dataset, model), num_classes)
    params = hparams.resolve(model, FLAGS.params, pipeline.properties, FLAGS.precision)
    if FLAGS.precision == "bfloat16":
        runtime.check_bfloat16()
    if use_tpu:
        tpu_embeddings.check(model, params)
    if is_training or FLAGS.mode == "check":
        own_step.check(model, params, FLAGS.accumulate_steps, use_tpu)
    for split in splits:
        early_checks.check_split(dataset, split)
    if is_training or FLAGS.mode == "check":
        class_balance.check_oversample(FLAGS.oversample, pipeline, params)
        params = class_balance.with_class_weights(
            params, pipeline, FLAGS.train_split, task.is_chief
        )
        if task.trains:
            _check_training_data(model, params, pipeline)
    _check_top_k(dataset)
    prediction = PredictSettings(
        FLAGS.predict_batch_size, FLAGS.predict_output, *_prediction(model, params, pipeline)
    )
    _check_cluster(task, is_training)
    best_metric, best_direction = _best_metric(model, params, pipeline)
    lock.lock_existing()
    members = _members()
    checkpoint = None if members else _checkpoint(is_training, task, model, params, pipeline)
    for path in members or filter(None, [checkpoint]):
        trained_on.check(path, FLAGS.model_dir, pipeline)
    if members:
        model, params = ensemble.model_of(model, params, len(members))
        checkpoint = ensemble.write(FLAGS.model_dir, members)
    seed = _order_seed(checkpoint)
    settings = RunSettings(
        mode=FLAGS.mode,
        model=model,
        params=params,
        pipeline=pipeline,
        splits=tuple(splits),
        model_dir=FLAGS.model_dir,
        checkpoint=checkpoint,
        start_step=find.read_step(checkpoint),
        use_tpu=use_tpu,
        task=task,
        seed=seed,
        graph_seed=FLAGS.seed,
        flagfile=_flagfile(dataset, seed, is_training),
        train=TrainSettings(
            split=FLAGS.train_split,
            batch_size=FLAGS.train_batch_size,
            steps=_train_steps(dataset),
            accumulate_steps=FLAGS.accumulate_steps,
            iterations_per_loop=iterations_per_loop,
            save_checkpoints_steps=FLAGS.save_checkpoints_steps,
            keep_checkpoint_max=FLAGS.keep_checkpoint_max,
            warm_start_from=_warm_start(is_training, checkpoint, model, params, pipeline),
            warm_start_include=FLAGS.warm_start_include,
            summary_steps=FLAGS.summary_steps,
            profile_steps=FLAGS.profile,
            data_service=tuple(FLAGS.data_service) if is_training and task.trains else (),
            oversample=oversample_exponent(),
        ),
        evaluation=EvalSettings(
            splits=eval_splits(),
            own_split=_own_split(dataset),
            schedule=_schedule(dataset, task),
            max_examples=FLAGS.max_eval_examples if FLAGS.mode != "predict" else 0,
            batch_size=FLAGS.eval_batch_size,
            best_metric=best_metric,
            best_direction=best_direction,
            early_stop_evals=FLAGS.early_stop_evals,
            timeout_secs=FLAGS.eval_timeout_secs,
        ),
        prediction=prediction,
        export=ExportSettings(FLAGS.export_dir, FLAGS.export_top_k, FLAGS.export_check),
    )
    if is_training:
        _check_warmup(params["warmup_steps"], settings.train.steps)
        _check_micro_batches(FLAGS.train_batch_size, FLAGS.accumulate_steps)
    _check_memory(settings)
    _check_data_service(settings)
    _check_folders(settings)
    return settings


def _labels(dataset, model):
    """Returns the names of the labels; None if a check of them is impossible or not needed."""
    labels = {name.partition("/")[0] for name in dataset.labels}
    if dataset.num_classes and not labels:
        labels = {"label"}
    # A model of as many outputs as the data has classes fits no other labels, even to predict.
    decide_outputs = not _OF_LABELS.isdisjoint(model.dataset_properties)
    is_unneeded = FLAGS.mode in ("predict", "export") and not (labels and decide_outputs)
    return None if is_own_dataset(FLAGS.dataset) or is_unneeded else labels


def _check_training_data(model, params, pipeline):
    # The training names a broken record, or skips it.
    with contextlib.suppress(tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        model.check_training_data(params, pipeline, FLAGS.train_split)


def _lock(task):
    names = []
    if FLAGS.mode in TRAINING_MODES and task.is_chief:
        names.append(TRAIN_LOCK)
    evaluates_all = FLAGS.mode == "train_and_eval" and not task.in_cluster
    keeps_best = evaluates_all or FLAGS.mode == "continuous_eval" or task.type == "evaluator"
    if FLAGS.best_metric and keeps_best:
        names.append(BEST_LOCK)
    return ModelDirLock(FLAGS.model_dir, FLAGS.mode, tuple(names))


def _check_top_k(data):
    limit, noun = data.kind.top_k_limit(data)
    if FLAGS.export_top_k > limit:
        raise UsageError(f"--export_top_k={FLAGS.export_top_k}, but {data.name} has {limit} {noun}")


def _prediction(model, params, pipeline):
    """Returns the examples to predict and, for --mode=predict, the writer of the predictions."""
    split = eval_splits()[0]
    if FLAGS.mode != "predict":
        return predictions.SplitExamples(pipeline, split), None
    if not FLAGS.input and host_metrics.has_files(model, params, pipeline):
        examples = predictions.SplitExamples(pipeline, split, pipeline.host_input_fn(split))
        batch_size = FLAGS.predict_batch_size
        writer = host_metrics.FilesWriter(model, params, pipeline, split, batch_size)
    else:
        examples = predictions.examples_of(pipeline, split, FLAGS.input)
        writer = predictions.writer_of(pipeline, examples, FLAGS.overlay_dir)
    if FLAGS.predict_output:
        check_output(FLAGS.predict_output, writer)
    return examples, writer


def _own_split(dataset):
    """Returns the split whose evaluations are named "eval": that of the training in model_dir.

    It is the split of the evaluations there, else that of the run that keeps the best checkpoint,
    else that of the training's flags.
    """
    found = results.evaluated_split(FLAGS.model_dir)
    if not found and FLAGS.mode not in BEST_METRIC_MODES and folders.is_file(_flags_cfg()):
        found = _last_in_flags_cfg("--eval_splits?=([^,\n]+)") or FLAGS["eval_split"].default
    return found if found in dataset.splits else eval_splits()[0]


def _flags_cfg():
    """Returns the path of the flags of the training in model_dir."""
    return os.path.join(FLAGS.model_dir, "flags.cfg")


def _last_in_flags_cfg(pattern):
    """Returns the group of the last line that begins with a regular expression; "" without one."""
    found = []
    with contextlib.suppress(ValueError):  # not a text file: it only repeats the flags
        found = re.findall(f"^{pattern}", files.read_text(_flags_cfg()), re.M)
    return found[-1] if found else ""


def _schedule(dataset, task):
    """Returns the `EvalSchedule` of --eval_every_steps, _epochs or _minutes."""
    if FLAGS.mode not in BEST_METRIC_MODES and not task.in_cluster:
        return EvalSchedule()
    if FLAGS.eval_every_epochs is None:
        steps, minutes = Fraction(FLAGS.eval_every_steps or 0), FLAGS.eval_every_minutes or 0.0
        return EvalSchedule(steps, minutes if FLAGS.mode == "train_and_eval" else 0.0)
    num_examples = dataset.split(FLAGS.train_split).num_examples
    return EvalSchedule(
        Fraction(str(FLAGS.eval_every_epochs)) * num_examples / FLAGS.train_batch_size
    )


def _best_metric(model, params, pipeline):
    """Returns the name and the direction of --best_metric; "" and "" if it is not used."""
    if not FLAGS.best_metric or FLAGS.mode in ("eval", "predict", "export"):
        return "", ""
    directions = model.metric_directions
    declared = dict(directions(params) if callable(directions) else directions)
    for metric in model.host_metrics(params, pipeline):
        declared.update(getattr(metric, "directions", {}))
    return metric_direction.resolve(FLAGS.best_metric, declared)


def _check_warmup(warmup_steps, train_steps):
    """Checks that training reaches its learning rate; a recipe may be tried for a few steps."""
    if warmup_steps <= train_steps:
        return
    line = (
        f"warmup_steps={warmup_steps} is more than the {train_steps} steps of this training, which "
        "ends before its learning rate is reached"
    )
    if is_param_of_command_line("warmup_steps"):
        raise UsageError(f"--params: {line}. Set a smaller one, or train longer (--train_steps)")
    print(line)


def _check_micro_batches(batch_size, accumulate_steps):
    if batch_size % accumulate_steps:
        below = batch_size // accumulate_steps * accumulate_steps
        raise UsageError(
            f"--train_batch_size={batch_size} is not divisible by --accumulate_steps="
            f"{accumulate_steps}. Use {f'{below} or ' if below else ''}{below + accumulate_steps}"
        )


def _check_memory(settings):
    # On a TPU or in a cluster this process holds a part of each batch; a check feeds none.
    if (
        settings.use_tpu
        or settings.task.in_cluster
        or settings.mode == "check"
        or settings.is_trained
    ):
        return
    known = settings.mode in ("predict", "export") and not FLAGS.input
    num_predicted = settings.dataset.split(settings.evaluation.split).num_examples if known else 0
    memory_check.check(settings.pipeline, batch_sizes(), num_predicted)


def _check_data_service(settings):
    addresses = settings.train.data_service
    if addresses and not settings.is_trained:
        input_fn = settings.local_train_input_fn(settings.seed)
        params = {**settings.params, "batch_size": settings.train.batch_size}
        data_service.check_input(input_fn, params, len(addresses))
        data_service.check_answers(addresses)


def _check_cluster(task, is_training):
    if task.is_synchronous and FLAGS.seed is None:
        raise UsageError("training by several processes needs --seed, equal for all of them")
    if not task.in_cluster:
        return
    if not is_training:
        raise UsageError(
            f"--mode={FLAGS.mode} does not support a cluster. Unset TF_CONFIG, or use --mode=train "
            "or --mode=train_and_eval"
        )
    if FLAGS.eval_every_minutes:
        raise UsageError(
            "--eval_every_minutes is not supported in a cluster, whose evaluator does not know the "
            "time of training. Use --eval_every_steps or --eval_every_epochs"
        )
    if FLAGS.early_stop_evals:
        raise UsageError(
            "--early_stop_evals is not supported in a cluster, whose evaluator cannot stop the "
            "other processes. Remove the flag"
        )


def _members():
    """Returns the checkpoints of --checkpoint=ensemble:A,B; [] without an ensemble."""
    is_used = FLAGS.mode in ("eval", "predict", "export")
    parts = checkpoint_files.ensemble_parts(FLAGS.checkpoint) if is_used else []
    return [find.find_checkpoint(FLAGS.model_dir, part) for part in parts]


def _checkpoint(is_training, task, model, params, pipeline):
    if is_training and task.is_chief:
        return recovery.recover(FLAGS.model_dir, FLAGS.keep_checkpoint_max)
    if is_training and task.type == "worker":
        return find.latest(FLAGS.model_dir)
    if is_training:
        return None  # evaluators wait for a checkpoint, parameter servers get values from the chief
    if FLAGS.mode in ("continuous_eval", "check"):
        return None  # continuous_eval waits for a checkpoint, check needs none
    if found := released.find(FLAGS.checkpoint):
        _check_files_beside("checkpoint", found, ".*", model, params, pipeline)
        return released.add_step(found, FLAGS.model_dir)
    return find.find_checkpoint(FLAGS.model_dir, FLAGS.checkpoint)


def _order_seed(checkpoint):
    """Returns the seed of the order of the examples: without --seed, that of the resumed run.

    Another seed would resume inside of an epoch of another order, which has examples twice.
    """
    if FLAGS.seed is not None:
        return FLAGS.seed
    if checkpoint is not None and folders.is_file(_flags_cfg()):
        found = _last_in_flags_cfg(f"{_ORDER_SEED}([0-9]{{1,10}})$")
        if found:
            return int(found) % 2**31
    return secrets.randbits(31)


def _flagfile(dataset, seed, is_training):
    """Returns the text of flags.cfg."""
    text = as_flagfile()
    if is_training:
        text += f"{changed_flags.TRAINING_DATA}={dataset.split(FLAGS.train_split).identity}\n"
    return text + (f"{_ORDER_SEED}{seed}\n" if FLAGS.seed is None else "")


def _warm_start(is_training, checkpoint, model, params, pipeline):
    if not is_training or not FLAGS.warm_start_from:
        return None
    if checkpoint is not None:
        print(f"--warm_start_from is ignored: training resumes from {checkpoint}")
        return None
    found = warm_start.find_checkpoint(FLAGS.warm_start_from)
    include = FLAGS.warm_start_include
    _check_files_beside("warm_start_from", found, include, model, params, pipeline)
    return found


def _check_files_beside(flag, checkpoint, include, model, params, pipeline):
    """Raises `ModelError` if files beside a checkpoint contradict the run; see `Model`."""
    try:
        model.check_warm_start(checkpoint, include, params, pipeline)
    except ModelError as error:
        raise ModelError(f"--{flag}: {error}") from error


def _train_steps(dataset):
    if FLAGS.train_epochs is None:
        return FLAGS.train_steps or 0
    if FLAGS.mode in ("eval", "predict", "export"):
        return 0  # unused; the training split may be missing
    if FLAGS.train_epochs <= 0:
        raise UsageError(f"--train_epochs={FLAGS.train_epochs} must be above 0")
    # Exact, as the schedule of evaluations: 1.1 * 50,000 is 55000.00000000001.
    examples = Fraction(str(FLAGS.train_epochs)) * dataset.split(FLAGS.train_split).num_examples
    steps = math.ceil(examples / FLAGS.train_batch_size)
    if steps > MAX_INTEGER:
        raise UsageError(
            f"--train_epochs={FLAGS.train_epochs} is more than {MAX_INTEGER} training steps"
        )
    return steps


def _without_bad_records(settings):
    """Returns the settings with a copy of the training split without unreadable records.

    Called last: it writes the repaired shards.
    """
    folder = os.path.join(settings.model_dir, "repaired")
    data, skipped = repair.without_bad_records(
        settings.dataset, settings.train.split, folder, FLAGS.skip_bad_records
    )
    train = dataclasses.replace(settings.train, skipped_records=skipped, steps=_train_steps(data))
    schedule = _schedule(data, settings.task)
    evaluation = dataclasses.replace(settings.evaluation, schedule=schedule)
    pipeline = settings.pipeline.with_data(data)
    return dataclasses.replace(settings, pipeline=pipeline, train=train, evaluation=evaluation)


def _check_folders(settings):
    if settings.mode == "check" or (settings.is_trained and settings.mode == "train"):
        return
    if settings.mode != "export":
        files.require_writable("model_dir", settings.model_dir)
    if settings.export.dir and settings.mode in ("export", "train_and_eval"):
        files.require_writable("export_dir", settings.export.dir)
    if settings.mode == "predict" and settings.prediction.output:
        files.require_writable("predict_output", os.path.dirname(settings.prediction.output) or ".")
    if settings.mode == "predict" and FLAGS.overlay_dir:
        files.require_writable("overlay_dir", FLAGS.overlay_dir)
