"""Trains, evaluates, predicts and exports a model with tf.estimator.Estimator, on CPU or GPU.

python run_cpu.py --flagfile=configs/digits.cfg --data_dir=data/digits --model_dir=runs/digits
python run_cpu.py --flagfile=runs/digits/flags.cfg --mode=predict
"""

import sys

from engine.cli import startup, supervisor

if __name__ == "__main__":
    # Before the seconds of TensorFlow's import: a typo is answered at once.
    flag_values = startup.start(sys.argv, __doc__, "engine.cli.flags", "engine.cli.cpu_flags")
    supervisor.start(sys.argv, flag_values)

import tensorflow as tf

from engine.checkpoints import ema, verify, warm_start
from engine.cli import modes, run_settings, runtime
from engine.cli.cpu_flags import FLAGS
from engine.cli.run_settings import Job
from engine.distribute import strategy, tf_config
from engine.evaluation import gallery, metrics
from engine.hooks import results, summaries
from engine.serving import signatures
from engine.train import forward, host_loop, optimizers, schedules, train_step
from models.model import Model

ModeKeys = tf.estimator.ModeKeys


def build_model_fn(model: Model, run: Job):
    """Returns the model_fn of an Estimator around the model's inference function."""

    def model_fn(features, labels, mode, params):
        if mode == ModeKeys.TRAIN:
            spec = train_spec(features, labels, params)
        elif mode == ModeKeys.EVAL:
            spec = eval_spec(features, labels, params)
        else:
            spec = predict_spec(features, params)
        if run.checkpoint:
            verify.check_variables(run.checkpoint, params, mode == ModeKeys.TRAIN)
        return spec

    def build_step(features, labels, params):
        global_step = tf.compat.v1.train.get_or_create_global_step()
        with tf.name_scope("learning_rate"):
            learning_rate = schedules.learning_rate(
                params, global_step, run.train_steps, run.train_batch_size
            )
        optimizer = optimizers.create(params, learning_rate)
        step = train_step.train_step(
            model, features, labels, params, optimizer, run.accumulate_steps
        )
        metrics.require_metric(
            run.best_metric, model, labels, step.eval_outputs, run.pipeline.corpus_metrics
        )

        def summary():
            # The metrics of workers in step would sum up over all of them.
            metrics = (
                {} if run.task.is_synchronous else model.metrics(labels, step.eval_outputs, None)
            )
            scalars = {"loss": step.loss, "learning_rate": learning_rate}
            return summaries.of_step(features, scalars, metrics)

        return step, summary

    def train_spec(features, labels, params):
        if isinstance(features, host_loop.Batches):
            step, summary = host_loop.repeat(
                features,
                run.counter,
                run.summary_steps,
                lambda features, labels: build_step(features, labels, params),
            )
        else:
            step, summarize = build_step(features, labels, params)
            summary = summarize()
        if run.warm_start_from:
            warm_start.init_from_checkpoint(
                run.warm_start_from, run.warm_start_include, step.model_variables
            )
        hook = summaries.TrainSummaryHook(
            summary,
            run.train_batch_size,
            run.summary_steps,
            run.model_dir,
            run.clock,
            run.counter,
        )
        return tf.estimator.EstimatorSpec(
            ModeKeys.TRAIN,
            loss=step.loss,
            train_op=step.op,
            training_hooks=[hook] if run.task.is_chief else [],
        )

    def eval_spec(features, labels, params):
        outputs = forward.infer(model, features, params, training=False)
        losses = model.loss(labels, outputs, params)
        weights = features["weight"]
        return tf.estimator.EstimatorSpec(
            ModeKeys.EVAL,
            loss=metrics.mean_loss(model, labels, losses, weights),
            eval_metric_ops=metrics.metrics(
                model, labels, model.eval_outputs(labels, outputs), losses, weights
            ),
            scaffold=ema.scaffold(params),
            evaluation_hooks=gallery.hooks(
                features,
                labels,
                lambda: model.predictions(outputs),
                run.dataset.class_names,
                results.evaluation_dir(run.model_dir, run.checkpoint),
            ),
        )

    def predict_spec(features, params):
        def predict(features):
            return model.predictions(forward.infer(model, features, params, training=False))

        predictions = predict(features)
        return tf.estimator.EstimatorSpec(
            ModeKeys.PREDICT,
            predictions=predictions,
            export_outputs=signatures.export_outputs(
                features, predictions, predict, run.pipeline, run.export_top_k
            ),
            scaffold=ema.scaffold(params),
        )

    return model_fn


def build_estimator(run: Job, strategy_config=None) -> tf.estimator.Estimator:
    """Returns the Estimator of a job; `strategy_config` is of `strategy.run_config_args`."""
    config = tf.estimator.RunConfig(
        model_dir=run.model_dir,
        tf_random_seed=run.graph_seed,
        keep_checkpoint_max=run.keep_checkpoint_max,
        # Checkpoints, curves and progress are the business of engine/cli/modes.py.
        save_checkpoints_steps=None,
        save_checkpoints_secs=None,
        save_summary_steps=None,
        log_step_count_steps=None,
        **(strategy_config or {}),
    )
    return tf.estimator.Estimator(build_model_fn(run.model, run), config=config, params=run.params)


def build_input_fns(run: Job) -> modes.InputFns:
    """Returns the input_fns of a job; the batch size, which TPUEstimator sets, is set here."""

    def with_batch_size(input_fn, batch_size):
        def with_context(params, input_context=None):
            given = {"input_context": input_context} if input_context else {}
            with tf.name_scope("input"):
                return input_fn({**params, **given, "batch_size": batch_size})

        return with_context

    data = run.pipeline
    # Workers draw their batches each in an order of its own, unless they share every batch.
    seed = run.seed + (0 if run.task.is_synchronous else run.task.worker)

    def train(start_step):
        input_fn = data.train_input_fn(run.train_split, seed, start_step)
        input_fn = with_batch_size(input_fn, run.train_batch_size)
        in_loops = isinstance(run.counter, host_loop.LoopCounter)
        return host_loop.of_dataset(input_fn) if in_loops else input_fn

    return modes.InputFns(
        train=train,
        evaluate=with_batch_size(data.eval_input_fn(run.eval_split), run.eval_batch_size),
        predict=with_batch_size(run.predict_input_fn(), run.predict_batch_size),
    )


def main() -> None:
    """Does what the flags say."""
    runtime.prepare()
    task = tf_config.from_environment(FLAGS.strategy == "multi_worker_mirrored")
    run = run_settings.from_flags(task=task, in_loops=task.alone and FLAGS.strategy == "none")
    with run.ownership:
        if run.params.get("precision") == "bfloat16" and not runtime.supports_bfloat16():
            print(
                "--precision=bfloat16: this CPU has no instructions for it, and float32 is faster"
            )
        config = None
        if run.trains and run.task.trains:
            config = strategy.run_config_args(
                FLAGS.strategy, FLAGS.replicas, run.train_batch_size, run.accumulate_steps
            )
        modes.run(build_estimator(run, config), run, build_input_fns(run))


if __name__ == "__main__":
    startup.run(main)
