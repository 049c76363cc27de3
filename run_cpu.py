"""Trains, evaluates, predicts and exports a model with tf.estimator.Estimator, on CPU or GPU.

python run_cpu.py --flagfile=configs/digits.cfg --data_dir=data/digits --model_dir=runs/digits
python run_cpu.py --flagfile=runs/digits/flags.cfg --mode=predict
"""

import contextlib
import sys

from engine.cli import startup, supervisor, tensorflow_import

if __name__ == "__main__":
    # Parse flags before the import of TensorFlow, which takes seconds.
    flag_values = startup.start(sys.argv, __doc__, "engine.cli.flags", "engine.cli.cpu_flags")
    from engine.cli import early_checks

    startup.check(early_checks.check)
    supervisor.start(sys.argv, flag_values)
    tensorflow_import.import_tensorflow()

import tensorflow as tf

from engine import model_fns
from engine.checkpoints import ema
from engine.cli import modes, resolve_flags, runtime
from engine.cli.cpu_flags import FLAGS
from engine.distribute import strategy, tf_config
from engine.hooks import summaries
from engine.run_settings import RunSettings, TrainingState
from engine.train import host_loop
from engine.train.train_step import train_step
from models.layers import embedding_table

ModeKeys = tf.estimator.ModeKeys


def build_model_fn(settings: RunSettings, state: TrainingState):
    """Returns the model_fn of an Estimator around the model's inference function."""

    def model_fn(features, labels, mode, params):
        if mode == ModeKeys.PREDICT:
            predictions, export_outputs = model_fns.predict(settings, features, params)
            return tf.estimator.EstimatorSpec(
                mode,
                predictions=predictions,
                export_outputs=export_outputs,
                scaffold=ema.scaffold(params),
            )
        if mode == ModeKeys.EVAL:
            graph = model_fns.evaluate(settings, features, labels, params)
            return tf.estimator.EstimatorSpec(
                mode,
                loss=graph.loss,
                eval_metric_ops=graph.metric_fn(*graph.tensors),
                evaluation_hooks=graph.hooks,
                scaffold=ema.scaffold(params),
            )
        with embedding_table.scope(partitioner=settings.task.table_partitioner):
            step = train_step(settings.model, features, labels, params, settings.train)
        model_fns.check_training(settings, features, labels, params, step)
        model_fns.warm_start(settings, params, step)
        summary_hook = summaries.TrainSummaryHook(
            lambda: model_fns.train_summary(settings, features, labels, params, step),
            settings,
            state,
        )
        return tf.estimator.EstimatorSpec(
            mode,
            loss=step.loss,
            train_op=step.op,
            training_hooks=[summary_hook] if settings.task.is_chief else [],
        )

    if isinstance(state.counter, host_loop.LoopCounter):
        return host_loop.decorate_model_fn(model_fn, state.counter, settings.train.summary_steps)
    return model_fn


def build_estimator(settings: RunSettings, state: TrainingState, strategy_config=None):
    """Returns the Estimator of a run; `strategy_config` has RunConfig arguments of a strategy."""
    config = tf.estimator.RunConfig(**settings.run_config(), **(strategy_config or {}))
    model_fn = build_model_fn(settings, state)
    return tf.estimator.Estimator(model_fn, config=config, params=settings.params)


def build_input_fns(settings: RunSettings, state: TrainingState) -> modes.InputFns:
    """Returns the input_fns of a run, with the batch size that TPUEstimator would set."""

    def with_batch_size(input_fn, batch_size):
        def input_fn_with_batch_size(params, input_context=None):
            added = {"input_context": input_context} if input_context else {}
            with tf.name_scope("input"):
                return input_fn({**params, **added, "batch_size": batch_size})

        return input_fn_with_batch_size

    # Asynchronous workers each read the examples in a different order.
    seed = settings.seed + (0 if settings.task.is_synchronous else settings.task.worker)

    def train_input_fn(start_step):
        input_fn = settings.train_input_fn(seed, start_step)
        input_fn = with_batch_size(input_fn, settings.train.batch_size)
        in_loops = isinstance(state.counter, host_loop.LoopCounter)
        return host_loop.decorate_input_fn(input_fn) if in_loops else input_fn

    eval_batch_size = settings.evaluation.batch_size
    predict_batch_size = settings.prediction.batch_size
    return modes.InputFns(
        train=train_input_fn,
        evaluate=lambda split: with_batch_size(settings.eval_input_fn(split), eval_batch_size),
        predict=with_batch_size(settings.predict_input_fn(), predict_batch_size),
        host=lambda split: with_batch_size(settings.host_input_fn(split), predict_batch_size),
    )


@contextlib.contextmanager
def opened():
    """Yields the arguments of `modes.run` for the mode of the flags."""
    task = tf_config.from_environment(FLAGS.strategy)
    in_loops = task.alone and FLAGS.strategy == "none"
    settings, state = resolve_flags.resolve(task=task, in_loops=in_loops)
    with state.lock:
        if settings.params.get("precision") == "bfloat16" and not runtime.supports_bfloat16():
            print("--precision=bfloat16: this CPU has no bfloat16 instructions; float32 is faster")
        strategy_config = None
        train = settings.train
        if settings.is_training and settings.task.trains:
            strategy_config = strategy.run_config_args(
                FLAGS.strategy, FLAGS.replicas, train.batch_size, train.accumulate_steps
            )
        estimator = build_estimator(settings, state, strategy_config)
        yield estimator, settings, state, build_input_fns(settings, state)


def main() -> None:
    """Runs the mode that the flags select."""
    modes.run_program(opened)


if __name__ == "__main__":
    startup.run(main)
