"""Trains, evaluates, predicts and exports a model with TPUEstimator, on a Cloud TPU.

python run_tpu.py --tpu=NAME --flagfile=configs/digits.cfg --data_dir=gs://... --model_dir=gs://...
python run_tpu.py --tpu=emulator --flagfile=configs/digits.cfg --data_dir=... --model_dir=...
"""

import contextlib
import functools
import sys

from engine.cli import startup, supervisor, tensorflow_import

if __name__ == "__main__":
    # Parse flags before the import of TensorFlow, which takes seconds.
    flag_values = startup.start(sys.argv, __doc__, "engine.cli.flags", "tpu.connect.flags")
    from engine.cli import early_checks
    from tpu.connect.flags import restart_flags

    # With a TPU, `connection.connect` reports all that is wrong with it and with local paths.
    if flag_values.mode == "check" or flag_values.tpu in ("emulator", "pjrt"):
        startup.check(early_checks.check)
    supervisor.start(sys.argv, flag_values, restart_flags())
    tensorflow_import.import_tensorflow()

import tensorflow as tf

from engine import model_fns
from engine.checkpoints import ema
from engine.cli import flags, modes, resolve_flags
from engine.cli.flags import FLAGS
from engine.distribute import tf_config
from engine.hooks import summaries
from engine.run_settings import RunSettings, TrainingState
from engine.train import tpu_embeddings
from engine.train.train_step import train_step
from tpu.connect import connection
from tpu.connect import flags as tpu_flags
from tpu.connect.connection import Connection

ModeKeys = tf.estimator.ModeKeys
tf_tpu = tf.compat.v1.estimator.tpu


def build_model_fn(settings: RunSettings, state: TrainingState):
    """Returns the model_fn of a TPUEstimator around the model's inference function.

    On a TPU it builds the program of one core: features and labels are the per-core batch.
    TPUEstimator sets `params["use_tpu"]`.
    """

    def model_fn(features, labels, mode, params):
        scaffold_fn = ema.scaffold_fn(params)
        if mode == ModeKeys.PREDICT:
            predictions, signatures = model_fns.predict(settings, features, params)
            return tf_tpu.TPUEstimatorSpec(
                mode, predictions, export_outputs=signatures, scaffold_fn=scaffold_fn
            )
        if mode == ModeKeys.EVAL:
            graph = model_fns.evaluate(settings, features, labels, params)
            return tf_tpu.TPUEstimatorSpec(
                mode,
                loss=graph.loss,
                eval_metrics=(graph.metric_fn, graph.tensors),
                evaluation_hooks=graph.hooks,
                scaffold_fn=scaffold_fn,
            )
        step = train_step(settings.model, features, labels, params, settings.train)
        model_fns.check_training(settings, features, labels, params, step)

        def initialize_on_host():
            tables = tpu_embeddings.check_variables(settings, params)
            model_fns.warm_start(settings, params, step, tables)
            return tf.compat.v1.train.Scaffold()

        scalars, every = model_fns.train_scalars(step), settings.train.summary_steps
        return tf_tpu.TPUEstimatorSpec(
            mode,
            loss=step.loss,
            train_op=step.op,
            host_call=summaries.host_call(scalars, step.op, settings.model_dir, every),
            training_hooks=[summaries.RateSummaryHook(settings, state)],
            scaffold_fn=initialize_on_host,
        )

    return model_fn


def build_estimator(settings: RunSettings, state: TrainingState, tpu: Connection, on_host=False):
    """Returns the TPUEstimator of a run; `on_host` on the CPU of this host, although it has a TPU.

    It divides global batches by the number of cores.
    """
    use_tpu = tpu.use_tpu and not on_host
    tpu_config = tf_tpu.TPUConfig(
        iterations_per_loop=settings.train.iterations_per_loop,
        per_host_input_for_training=tf_tpu.InputPipelineConfig.PER_HOST_V2,
    )
    cluster = tpu.resolver if use_tpu else None
    return tf_tpu.TPUEstimator(
        build_model_fn(settings, state),
        config=tf_tpu.RunConfig(tpu_config=tpu_config, cluster=cluster, **settings.run_config()),
        params=settings.params,
        use_tpu=use_tpu,
        train_batch_size=settings.train.batch_size,
        eval_batch_size=settings.evaluation.batch_size,
        predict_batch_size=settings.prediction.batch_size,
        export_to_tpu=FLAGS.export_to_tpu,
        embedding_config_spec=tpu_embeddings.config_spec(settings) if use_tpu else None,
    )


def build_input_fns(settings: RunSettings) -> modes.InputFns:
    """Returns the input_fns of a run; TPUEstimator calls them once per host."""

    def train(start_step):
        input_fn = settings.train_input_fn(settings.seed, start_step)
        return tpu_embeddings.add_ids(input_fn, tpu_embeddings.tables_of(settings))

    return modes.InputFns(
        train=train,
        evaluate=settings.eval_input_fn,
        predict=settings.predict_input_fn(),
        host=settings.host_input_fn,
    )


@contextlib.contextmanager
def opened():
    """Yields the arguments of `modes.run` for the mode of the flags; a check exits instead."""
    tf_config.refuse_cluster()
    request = tpu_flags.request(
        FLAGS.mode, flags.paths(), flags.batch_sizes(), FLAGS.accumulate_steps, flags.evaluates()
    )
    if FLAGS.mode == "check":
        import run_check  # needed by this mode only

        sys.exit(run_check.run(request, build_estimator, build_input_fns))
    steps = 1
    if FLAGS.use_tpu != "false" and FLAGS.mode in flags.TRAINING_MODES:
        steps = tpu_flags.iterations_per_loop(FLAGS.save_checkpoints_steps)
    with connection.connect(request) as tpu:
        task = tf_config.of_host(tpu.process_id, tpu.num_processes)
        settings, state = resolve_flags.resolve(
            steps, tpu.use_tpu, task, reads_files=not tpu.is_remote
        )
        with state.lock:
            build = functools.partial(build_estimator, settings, state, tpu)
            estimator = tpu_embeddings.pair_with_host(settings, build)
            yield estimator, settings, state, build_input_fns(settings)


def main() -> None:
    """Runs the mode that the flags select."""
    modes.run_program(opened)


if __name__ == "__main__":
    startup.run(main, connection.TPUError)
