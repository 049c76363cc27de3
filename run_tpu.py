"""Trains, evaluates, predicts and exports a model with TPUEstimator, on a Cloud TPU.

python run_tpu.py --tpu=NAME --flagfile=configs/digits.cfg --data_dir=gs://... --model_dir=gs://...
python run_tpu.py --tpu=emulator --flagfile=configs/digits.cfg --data_dir=... --model_dir=...
"""

import sys

from engine.cli import startup, supervisor

if __name__ == "__main__":
    # Before the seconds of TensorFlow's import: a typo is answered at once.
    supervisor.start(
        sys.argv, startup.start(sys.argv, __doc__, "engine.cli.flags", "tpu.connect.flags")
    )

import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import ema, find
from engine.cli import flags, modes, run_settings, runtime
from engine.cli.flags import FLAGS
from engine.cli.run_settings import Job
from engine.distribute import tf_config
from engine.evaluation import metrics
from engine.hooks import summaries
from engine.serving import signatures
from engine.train import forward, optimizers, schedules, train_step
from models.layers import device
from models.model import Model
from tpu.connect import connection
from tpu.connect import flags as tpu_flags
from tpu.connect.connection import Connection

ModeKeys = tf.estimator.ModeKeys


def build_model_fn(model: Model, run: Job):
    """Returns the model_fn of a TPUEstimator around the model's inference function.

    On a TPU it builds the program of one core: features and labels are that core's part of the
    global batch. TPUEstimator sets `params["use_tpu"]`.
    """

    def model_fn(features, labels, mode, params):
        if mode == ModeKeys.TRAIN:
            spec = train_spec(features, labels, params)
        elif mode == ModeKeys.EVAL:
            spec = eval_spec(features, labels, params)
        else:
            spec = predict_spec(features, params)
        if run.checkpoint:
            find.check_fits(run.checkpoint, params, mode == ModeKeys.TRAIN)
        return spec

    def train_spec(features, labels, params):
        global_step = tf.compat.v1.train.get_or_create_global_step()
        learning_rate = schedules.learning_rate(
            params, global_step, run.train_steps, run.train_batch_size
        )
        optimizer = optimizers.create(params, learning_rate)
        if params["use_tpu"]:
            # Sums the gradients over the cores.
            optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)
        step = train_step.train_step(
            model, features, labels, params, optimizer, run.accumulate_steps
        )
        metrics.require_metric(
            run.best_metric, model, labels, step.eval_outputs, run.pipeline.corpus_metrics
        )

        def scaffold_fn():
            # Not in the program of a core: what initialises variables runs on the host.
            if run.warm_start_from and not find.latest(run.model_dir):
                find.warm_start(run.warm_start_from, run.warm_start_include, step.model_variables)
            return tf.compat.v1.train.Scaffold()

        # A TPU computes no summaries and no streaming metrics: the host gets the numbers.
        scalars = {"loss": step.loss, "learning_rate": learning_rate}
        hook = summaries.RateSummaryHook(
            run.train_batch_size,
            run.summary_steps,
            run.model_dir,
            run.clock,
            run.counter,
        )
        return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
            ModeKeys.TRAIN,
            loss=step.loss,
            train_op=step.op,
            host_call=summaries.host_call(scalars, step.op, run.model_dir, run.summary_steps),
            training_hooks=[hook],
            scaffold_fn=scaffold_fn,
        )

    def eval_spec(features, labels, params):
        outputs = forward.infer(model, features, params, training=False)
        with device.scope(params):
            losses = model.loss(labels, outputs, params)
        weights = features["weight"]
        tensors = [labels, model.eval_outputs(labels, outputs), losses, weights]

        def metric_fn(*flat):
            # On the host, with the tensors of all cores put together.
            return metrics.metrics(model, *tf.nest.pack_sequence_as(tensors, flat))

        return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
            ModeKeys.EVAL,
            loss=metrics.mean_loss(model, labels, losses, weights),
            eval_metrics=(metric_fn, tf.nest.flatten(tensors)),
            scaffold_fn=ema.scaffold_fn(params),
        )

    def predict_spec(features, params):
        def predict(features):
            return model.predictions(forward.infer(model, features, params, training=False))

        predictions = predict(features)
        return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
            ModeKeys.PREDICT,
            predictions=predictions,
            export_outputs=signatures.export_outputs(
                features, predictions, predict, run.pipeline, run.export_top_k
            ),
            scaffold_fn=ema.scaffold_fn(params),
        )

    return model_fn


def build_estimator(run: Job, tpu: Connection) -> tf.compat.v1.estimator.tpu.TPUEstimator:
    """Returns the TPUEstimator of a job. It takes global batch sizes and cuts them by itself."""
    tpu_config = tf.compat.v1.estimator.tpu.TPUConfig(
        iterations_per_loop=run.iterations_per_loop,
        per_host_input_for_training=tf.compat.v1.estimator.tpu.InputPipelineConfig.PER_HOST_V2,
    )
    config = tf.compat.v1.estimator.tpu.RunConfig(
        tpu_config=tpu_config,
        cluster=tpu.resolver,
        model_dir=run.model_dir,
        tf_random_seed=run.graph_seed,
        keep_checkpoint_max=run.keep_checkpoint_max,
        # Checkpoints, curves and progress are the business of engine/cli/modes.py.
        save_checkpoints_steps=None,
        save_checkpoints_secs=None,
        save_summary_steps=None,
        log_step_count_steps=None,
    )
    return tf.compat.v1.estimator.tpu.TPUEstimator(
        build_model_fn(run.model, run),
        config=config,
        params=run.params,
        use_tpu=tpu.use_tpu,
        train_batch_size=run.train_batch_size,
        eval_batch_size=run.eval_batch_size,
        predict_batch_size=run.predict_batch_size,
        export_to_tpu=FLAGS.export_to_tpu,
    )


def build_input_fns(run: Job) -> modes.InputFns:
    """Returns the input_fns of a job; TPUEstimator calls them once a host."""
    data = run.pipeline
    return modes.InputFns(
        train=lambda start_step: data.train_input_fn(run.train_split, run.seed, start_step),
        evaluate=data.eval_input_fn(run.eval_split),
        predict=run.predict_input_fn(),
    )


def _request():
    return tpu_flags.request(
        FLAGS.mode,
        flags.paths(),
        flags.batch_sizes(),
        FLAGS.accumulate_steps,
        flags.evaluates(),
    )


def _iterations_per_loop():
    if FLAGS.use_tpu == "false" or FLAGS.mode not in flags.TRAINING_MODES:
        return 1
    return tpu_flags.iterations_per_loop(FLAGS.save_checkpoints_steps)


def main() -> None:
    """Does what the flags say."""
    runtime.prepare()
    if tf_config.task_of_environment().in_cluster:
        raise UsageError(
            "TF_CONFIG describes a cluster, which run_cpu.py trains on: unset it. The hosts of a "
            "TPU need none"
        )
    if FLAGS.mode == "check":
        import run_check  # what no other mode needs, and no TPU

        sys.exit(run_check.run(_request(), build_estimator, build_input_fns))
    iterations = _iterations_per_loop()
    with connection.connect(_request()) as tpu:
        run = run_settings.from_flags(iterations if tpu.use_tpu else 1, tpu.use_tpu)
        with run.ownership:
            if tpu.is_remote and run.picture_input is not None:
                raise UsageError(
                    "--input of pictures is read by this process, which a remote TPU cannot call: "
                    "use run_cpu.py, or make a data set of them with prepare_data.py"
                )
            modes.run(build_estimator(run, tpu), run, build_input_fns(run))


if __name__ == "__main__":
    startup.run(main, connection.TPUError)
