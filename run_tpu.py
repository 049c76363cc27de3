"""Trains, evaluates, predicts and exports a model with TPUEstimator, on a Cloud TPU.

python run_tpu.py --tpu=NAME --flagfile=configs/digits.cfg --data_dir=gs://... --model_dir=gs://...
python run_tpu.py --tpu=emulator --flagfile=configs/digits.cfg --data_dir=... --model_dir=...
"""

import sys

from engine.cli import startup, supervisor, tensorflow_import

if __name__ == "__main__":
    # Parse flags before the import of TensorFlow, which takes seconds.
    flag_values = startup.start(sys.argv, __doc__, "engine.cli.flags", "tpu.connect.flags")
    from engine.cli import early_checks
    from tpu.connect.flags import restart_flags

    # With a TPU, `connection.connect` reports all that is wrong with it and with local paths.
    if flag_values.mode == "check" or flag_values.tpu == "emulator":
        startup.check(early_checks.check)
    supervisor.start(sys.argv, flag_values, restart_flags())
    tensorflow_import.import_tensorflow()

import tensorflow as tf

from common.errors import UsageError
from engine import model_fns
from engine.checkpoints import ema, verify
from engine.cli import flags, modes, resolve_flags, runtime
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


def build_model_fn(settings: RunSettings, state: TrainingState):
    """Returns the model_fn of a TPUEstimator around the model's inference function.

    On a TPU it builds the program of one core: features and labels are the per-core batch.
    TPUEstimator sets `params["use_tpu"]`.
    """

    def model_fn(features, labels, mode, params):
        if mode == ModeKeys.PREDICT:
            predictions, export_outputs = model_fns.predict(settings, features, params)
            return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
                mode,
                predictions=predictions,
                export_outputs=export_outputs,
                scaffold_fn=ema.scaffold_fn(params),
            )
        if mode == ModeKeys.EVAL:
            graph = model_fns.evaluate(settings, features, labels, params)
            return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
                mode,
                loss=graph.loss,
                eval_metrics=(graph.metric_fn, graph.tensors),
                evaluation_hooks=graph.hooks,
                scaffold_fn=ema.scaffold_fn(params),
            )
        step = train_step(settings.model, features, labels, params, settings.train)
        model_fns.check_training(settings, features, labels, params, step)

        def scaffold_fn():
            # Initializers run on the host.
            tables = tpu_embeddings.variables(_tpu_tables(settings))
            model_fns.warm_start(settings, step, tables)
            if tables and settings.checkpoint:
                verify.check_variables(settings.checkpoint, params, training=True)
            return tf.compat.v1.train.Scaffold()

        rate_hook = summaries.RateSummaryHook(settings, state)
        scalars = model_fns.train_scalars(step)
        return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
            mode,
            loss=step.loss,
            train_op=step.op,
            host_call=summaries.host_call(
                scalars, step.op, settings.model_dir, settings.train.summary_steps
            ),
            training_hooks=[rate_hook],
            scaffold_fn=scaffold_fn,
        )

    return model_fn


def _tpu_tables(settings):
    """Returns the embedding tables of the model that are TPU embeddings in training."""
    return tpu_embeddings.find_tables(settings.model, settings.params) if settings.use_tpu else []


def _embedding_config_spec(settings):
    """Returns the EmbeddingConfigSpec of a run; None if it does not train or has no tables."""
    if not (_tpu_tables(settings) and (settings.is_training or settings.mode == "check")):
        return None
    input_fn = settings.pipeline.train_input_fn(settings.train.split, settings.seed)
    with tf.Graph().as_default():
        element_spec = input_fn({**settings.params, "batch_size": 1}).element_spec
    return tpu_embeddings.config_spec(settings.model, settings.params, element_spec)


def build_estimator(
    settings: RunSettings, state: TrainingState, tpu: Connection, on_host: bool = False
):
    """Returns the TPUEstimator of a run. It divides global batches by the number of cores.

    Args:
      settings: settings of the run.
      state: state of the training.
      tpu: the TPU, if there is one.
      on_host: whether to run on the CPU of this host although there is a TPU.
    """
    use_tpu = tpu.use_tpu and not on_host
    tpu_config = tf.compat.v1.estimator.tpu.TPUConfig(
        iterations_per_loop=settings.train.iterations_per_loop,
        per_host_input_for_training=tf.compat.v1.estimator.tpu.InputPipelineConfig.PER_HOST_V2,
    )
    return tf.compat.v1.estimator.tpu.TPUEstimator(
        build_model_fn(settings, state),
        config=tf.compat.v1.estimator.tpu.RunConfig(
            tpu_config=tpu_config,
            cluster=tpu.resolver if use_tpu else None,
            **settings.run_config(),
        ),
        params=settings.params,
        use_tpu=use_tpu,
        train_batch_size=settings.train.batch_size,
        eval_batch_size=settings.evaluation.batch_size,
        predict_batch_size=settings.prediction.batch_size,
        export_to_tpu=FLAGS.export_to_tpu,
        embedding_config_spec=_embedding_config_spec(settings) if use_tpu else None,
    )


def build_input_fns(settings: RunSettings) -> modes.InputFns:
    """Returns the input_fns of a run; TPUEstimator calls them once per host."""

    def train(start_step):
        input_fn = settings.pipeline.train_input_fn(settings.train.split, settings.seed, start_step)
        return tpu_embeddings.add_ids(input_fn, _tpu_tables(settings))

    return modes.InputFns(
        train=train,
        evaluate=settings.eval_input_fn,
        predict=settings.predict_input_fn(),
        host=settings.host_input_fn,
    )


def main() -> None:
    """Runs the mode that the flags select."""
    runtime.prepare()
    if tf_config.from_environment().in_cluster:
        raise UsageError(
            "TF_CONFIG describes a cluster, which only run_cpu.py supports. Unset TF_CONFIG: the "
            "hosts of a TPU do not need it"
        )
    request = tpu_flags.request(
        FLAGS.mode,
        flags.paths(),
        flags.batch_sizes(),
        FLAGS.accumulate_steps,
        flags.evaluates(),
    )
    if FLAGS.mode == "check":
        import run_check  # needed by this mode only

        sys.exit(run_check.run(request, build_estimator, build_input_fns))
    iterations_per_loop = 1
    if FLAGS.use_tpu != "false" and FLAGS.mode in flags.TRAINING_MODES:
        iterations_per_loop = tpu_flags.iterations_per_loop(FLAGS.save_checkpoints_steps)
    with connection.connect(request) as tpu:
        settings, state = resolve_flags.resolve(
            iterations_per_loop if tpu.use_tpu else 1, tpu.use_tpu
        )
        with state.lock:
            if tpu.is_remote and settings.prediction.file_input is not None:
                raise UsageError(
                    "--input files are read by this process, which a remote TPU cannot call. Use "
                    "run_cpu.py, or convert the files with prepare_data.py"
                )
            estimator = build_estimator(settings, state, tpu)
            if _tpu_tables(settings):
                host = build_estimator(settings, state, tpu, on_host=True)
                estimator = tpu_embeddings.TrainOnTpu(estimator, host)
            modes.run(estimator, settings, state, build_input_fns(settings))


if __name__ == "__main__":
    startup.run(main, connection.TPUError)
