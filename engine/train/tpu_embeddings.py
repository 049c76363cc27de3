"""Embedding tables as TPU embeddings: configuration, ids and activations.

TPUEstimator keeps the tables outside the program of a core: the hosts enqueue ids, the program
receives activations and sends gradients, and a table is updated by an optimizer of the TPU. Its
variables and slots are on the hosts, partitioned over them, under the names that run_cpu.py gives
them, so that either program loads the checkpoints of the other.

TPU embeddings only train. Evaluation, prediction and export read the variables on the CPU of the
host (`TrainOnTpu`): TPUEstimator does not predict with TPU embeddings.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding

from common.errors import UsageError
from engine.checkpoints import ema, verify
from engine.run_settings import RunSettings
from engine.train import optimizers
from input_fns.core.records import no_autograph

# Names of the ids in the features of an input_fn, then of the activations.
_PREFIX = "tpu_embedding/"
# Of the variables by which TPUEstimator finds the gradients of activations.
_DUMMIES = "tpu_embedding_dummy_table_variables"
_RATE = "learning_rate_of_tpu_embedding_"  # collection, followed by the name of the table


def find_tables(model, params) -> list:
    """Returns the tables of a model that are TPU embeddings on a TPU."""
    rows = params.get("tpu_embedding_rows", 0)
    return [table for table in model.embedding_tables(params) if 0 < rows <= table.rows]


def tables_of(settings: RunSettings) -> list:
    """Returns the tables that are TPU embeddings in the training of a run."""
    return find_tables(settings.model, settings.params) if settings.use_tpu else []


def check(model, params) -> None:
    """Raises `UsageError` for hyperparameters that TPU embeddings do not support."""
    for table in find_tables(model, params):
        where = f"tpu_embedding_rows: the TPU embedding '{table.name}'"
        kind = optimizers.table_optimizer(params, table)
        if kind not in optimizers.TABLE_OPTIMIZERS:
            raise UsageError(
                f"{where} cannot use optimizer={kind}. Use one of "
                f"{', '.join(optimizers.TABLE_OPTIMIZERS)}, or tpu_embedding_rows=0"
            )
        if not params["lazy_embeddings"]:
            raise UsageError(
                f"{where} updates the rows of a batch only. Set lazy_embeddings=true, or "
                "tpu_embedding_rows=0"
            )
        if params["clip_norm"]:
            raise UsageError(
                f"{where} has no part in the global norm of the gradients. Set clip_norm=0, or "
                "tpu_embedding_rows=0"
            )
        if not re.fullmatch(params["trainable"], table.name):
            raise UsageError(
                f"{where} cannot be frozen. Let trainable={params['trainable']} match it, or set "
                "tpu_embedding_rows=0"
            )


# ---- The Estimator ----


def config_spec(settings: RunSettings):
    """Returns the EmbeddingConfigSpec of a run; None if it does not train or has no tables."""
    tables, params = tables_of(settings), settings.params
    if not (tables and (settings.is_training or settings.mode == "check")):
        return None
    input_fn = settings.pipeline.train_input_fn(settings.train.split, settings.seed)
    with tf.Graph().as_default():
        element_spec = input_fn({**params, "batch_size": 1}).element_spec
    lengths = _lengths(tables, element_spec)
    return tf.compat.v1.estimator.tpu.experimental.EmbeddingConfigSpec(
        table_to_config_dict={
            table.name: tpu_embedding.TableConfig(
                table.rows,
                table.width,
                table.make_initializer(),
                table.combiner,
                learning_rate_fn=_learning_rate_fn(table.name),
                optimization_parameters=_parameters(params, table),
            )
            for table in tables
        },
        feature_to_config_dict={
            _PREFIX + name: tpu_embedding.FeatureConfig(table.name, lengths[name])
            for table in tables
            for name in table.lookups
        },
        pipeline_execution_with_tensor_core=params["tpu_embedding_pipelining"],
    )


def _lengths(tables, element_spec):
    """Returns `{name of a lookup: ids per example}`; 0 for one vector per example."""
    with tf.Graph().as_default():
        features = tf.nest.map_structure(
            lambda spec: tf.compat.v1.placeholder(spec.dtype, spec.shape), element_spec[0]
        )
        ids = {n: find(features) for table in tables for n, find in table.lookups.items()}
    is_sequence = {
        name: table.combiner is None and ids[name].shape.rank == 2
        for table in tables
        for name in table.lookups
    }
    return {name: ids[name].shape.as_list()[1] if is_sequence[name] else 0 for name in ids}


def _parameters(params, table):
    """Returns the optimization parameters of a table. `_learning_rate_fn` replaces the rate."""
    rate = params["learning_rate"]
    kind = optimizers.table_optimizer(params, table)
    if kind == "sgd":
        return tpu_embedding.StochasticGradientDescentParameters(rate)
    if kind == "adagrad":
        return tpu_embedding.AdagradParameters(rate)  # the same initial accumulator as on a CPU
    return tpu_embedding.AdamParameters(
        rate,
        beta1=params["beta1"],
        beta2=params["beta2"],
        epsilon=params["epsilon"],
        sum_inside_sqrt=False,
    )


def _learning_rate_fn(name):
    # TPUEstimator gives the global step, which may be that before or after this step.
    def learning_rate(global_step):
        del global_step
        return tf.compat.v1.get_collection(_RATE + name)[-1]

    return learning_rate


@dataclasses.dataclass(frozen=True)
class TrainOnTpu:
    """A TPUEstimator with TPU embeddings, for training, and one on the CPU for other modes."""

    tpu: Any  # the TPUEstimator that trains
    host: Any  # a TPUEstimator with `use_tpu=False` of the same model_dir

    def __getattr__(self, name):
        """Returns an attribute of the Estimator of the CPU."""
        return getattr(self.host, name)

    def train(self, *args, **kwargs):
        """Trains on the TPU."""
        return self.tpu.train(*args, **kwargs)


def pair_with_host(settings: RunSettings, build_estimator):
    """Returns the TPUEstimator of a run, a `TrainOnTpu` if it has TPU embeddings.

    Args:
      settings: settings of the run.
      build_estimator: `(on_host) -> TPUEstimator`.
    """
    estimator = build_estimator(on_host=False)
    if not tables_of(settings):
        return estimator
    return TrainOnTpu(estimator, build_estimator(on_host=True))


# ---- The input_fn ----


def add_ids(input_fn, tables):
    """Returns `input_fn` with the ids of TPU embeddings among the features, as SparseTensors."""
    if not tables:
        return input_fn

    @no_autograph
    def add(features, labels):
        added = {
            _PREFIX + name: _to_sparse(find(features))
            for table in tables
            for name, find in table.lookups.items()
        }
        return {**features, **added}, labels

    def input_fn_with_ids(params):
        return input_fn(params).map(add).prefetch(1)

    return input_fn_with_ids


def _to_sparse(ids):
    """Returns ids, `[batch]` or `[batch, k]`, as a SparseTensor without the missing ones."""
    if ids.shape.rank == 1:
        ids = ids[:, tf.newaxis]
    where = tf.where(ids >= 0)
    return tf.SparseTensor(where, tf.gather_nd(ids, where), ids.shape.as_list())


# ---- The program of a core ----


def split_activations(features):
    """Returns features without activations, and `{name of a lookup: activations}`.

    The latter include the lengths of sequences, which TPUEstimator adds under other names.
    """
    names = [name for name in features if name.startswith(_PREFIX)]
    activations = {name.removeprefix(_PREFIX): features[name] for name in names}
    return {n: value for n, value in features.items() if n not in names}, activations


def dummy_names():
    """Returns the names of the variables of TPUEstimator that stand for TPU embeddings."""
    return {variable.op.name for variable in tf.compat.v1.get_collection(_DUMMIES)}


def set_learning_rates(params, tables, learning_rate) -> None:
    """Sets the learning rates of this step for TPU embeddings.

    Args:
      params: all hyperparameters.
      tables: of `find_tables`.
      learning_rate: float32 scalar tensor.
    """
    for table in tables:
        rate = learning_rate * optimizers.learning_rate_factor(params, table.name)
        if optimizers.table_optimizer(params, table) == "adam":
            rate *= optimizers.adam_bias_correction(params)  # the TPU has none
        tf.compat.v1.add_to_collection(_RATE + table.name, rate)


def check_variables(settings: RunSettings, params):
    """Returns the variables of the tables of a run, which exist on the host only, without slots.

    Raises:
      UsageError: the checkpoint to resume from is of a different model.
    """
    names = {table.name for table in tables_of(settings)}
    found = tf.compat.v1.global_variables()
    variables = [variable for variable in found if ema.saved_name(variable) in names]
    if variables and settings.checkpoint:
        verify.check_variables(settings.checkpoint, params, training=True)
    return variables
