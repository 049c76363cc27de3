"""A TPUEstimator with TPU embeddings, and the same training in NumPy (float64).

The prediction of an example is the sum of the products of its activations and the weights of their
feature. The loss is half the mean of the squared errors.
"""

import dataclasses

import numpy as np
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding

from tpu.connect import topology

tf1 = tf.compat.v1
V1 = tf1.estimator.tpu.InputPipelineConfig.PER_HOST_V1
V2 = tf1.estimator.tpu.InputPipelineConfig.PER_HOST_V2
STEPS = 20
BATCH = 2  # examples per core
MAX_IDS = 5
DENSE_RATE = 0.05


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows, width and combiner of a table."""

    rows: int
    width: int
    combiner: str | None


@dataclasses.dataclass(frozen=True)
class Feature:
    """Table, weights and maximum sequence length of a feature."""

    table: str
    weight: str | None = None
    length: int = 0


# The smallest table has fewer rows than there are hosts.
TABLES = {
    "genre": Table(3, 2, None),
    "item": Table(30, 4, "sqrtn"),
    "tag": Table(11, 3, "sum"),
    "user": Table(21, 4, "mean"),
}
FEATURES = {
    "bought": Feature("item", "amount"),
    "genre": Feature("genre"),
    "history": Feature("item", length=3),
    "tags": Feature("tag"),
    "viewed": Feature("item"),
    "watched": Feature("user"),
}


def initial(name):
    """Returns the first values of a table in the order of its checkpoint, [rows, width]."""
    table = TABLES[name]
    random = np.random.RandomState(list(TABLES).index(name))
    return random.uniform(-1, 1, (table.rows, table.width)).astype(np.float32)


def batches(num_cores):
    """Returns {name: [STEPS, num_cores, BATCH, ...]}; missing ids are -1.

    Few different ids per table: they repeat in an example, a core and a global batch.
    """
    random, found = np.random.RandomState(7), {}
    shape = (STEPS, num_cores, BATCH)
    for name, feature in FEATURES.items():
        rows = TABLES[feature.table].rows
        if TABLES[feature.table].combiner is None:
            found[name] = random.randint(0, rows, shape)
            continue
        ids = random.randint(0, rows, (*shape, MAX_IDS)) // random.randint(1, 3)
        sizes = random.randint(0, MAX_IDS + 1, (*shape, 1))  # a sixth of the bags is empty
        found[name] = np.where(np.arange(MAX_IDS) < sizes, ids, -1)
    found["amount"] = random.uniform(0.5, 2, (*shape, MAX_IDS)).astype(np.float32)
    found["label"] = random.uniform(-1, 1, shape).astype(np.float32)
    return found


def make_input_fn(num_hosts, cores_per_host, pipeline=V2, change=lambda data: data):
    """Returns an input_fn of the batches of its host; `change` edits them."""

    def input_fn(params):
        host = params["context"].current_host if num_hosts > 1 else 0
        cores = slice(host * cores_per_host, (host + 1) * cores_per_host)
        data = change(batches(num_hosts * cores_per_host))
        batch = BATCH if pipeline is V2 else BATCH * cores_per_host
        assert params["batch_size"] == batch
        data = {k: v[:, cores].reshape(-1, batch, *v.shape[3:]) for k, v in data.items()}
        return tf.data.Dataset.from_tensor_slices(data).map(_to_features)

    return input_fn


def _to_features(batch):
    features = {}
    for name, feature in FEATURES.items():
        ids = tf.cast(batch[name], tf.int64)
        if ids.shape.rank == 1:
            features[name] = tf.cast(ids, tf.int32)
            continue
        where = tf.where(ids >= 0)
        shape = ids.shape.as_list()
        features[name] = tf.SparseTensor(where, tf.gather_nd(ids, where), shape)
        if feature.weight:
            weights = tf.gather_nd(batch[feature.weight], where)
            features[feature.weight] = tf.SparseTensor(where, weights, shape)
    return features, batch["label"]


def weights_shape(feature):
    """Returns the shape of the weights of a feature."""
    width = TABLES[feature.table].width
    return (feature.length, width) if feature.length else (width,)


def model_fn(features, labels, mode, params):
    predicted = 0.0
    for name in FEATURES:
        values = initial_weights(name)
        weights = tf1.get_variable(f"dense/{name}", initializer=values, use_resource=True)
        products = features[name] * weights
        predicted += tf.reduce_sum(products, list(range(1, products.shape.rank)))
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions={"value": predicted})
    loss = tf.reduce_mean((predicted - labels) ** 2) / 2
    optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(DENSE_RATE))
    train_op = optimizer.minimize(loss, tf1.train.get_global_step())
    metrics = (lambda p: {"mean": tf1.metrics.mean(p)}, [predicted])
    return tf1.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metrics=metrics
    )


def initial_weights(name):
    """Returns the first values of the weights of a feature."""
    random = np.random.RandomState(100 + list(FEATURES).index(name))
    return random.uniform(-1, 1, weights_shape(FEATURES[name])).astype(np.float32)


def make_estimator(folder, slice_name, optimizer, pipeline=V2, iterations=10, rates=None, **spec):
    """Returns a TPUEstimator.

    Args:
      folder: its model_dir.
      slice_name: name of the slice.
      optimizer: optimization parameters of all tables.
      pipeline: per_host_input_for_training.
      iterations: iterations_per_loop.
      rates: `{table: function from the step to a learning rate}`.
      **spec: further arguments of EmbeddingConfigSpec.
    """
    tables = {}
    for name, table in TABLES.items():

        def initializer(shape, dtype=None, partition_info=None, name=name):
            first = partition_info.var_offset[0] if partition_info else 0
            values = initial(name)[first : first + int(shape[0])]
            return tf.constant(values if len(values) else np.zeros(shape, np.float32))

        tables[name] = tpu_embedding.TableConfig(
            table.rows,
            table.width,
            initializer,
            table.combiner,
            learning_rate_fn=(rates or {}).get(name),
        )
    features = {
        name: tpu_embedding.FeatureConfig(feature.table, feature.length, feature.weight)
        for name, feature in FEATURES.items()
    }
    tpu_config = tf1.estimator.tpu.TPUConfig(
        iterations_per_loop=iterations, per_host_input_for_training=pipeline
    )
    batch = BATCH * topology.find(slice_name).num_cores
    return tf1.estimator.tpu.TPUEstimator(
        model_fn,
        config=tf1.estimator.tpu.RunConfig(
            model_dir=str(folder), tpu_config=tpu_config, master="grpc://tpu"
        ),
        params={},
        train_batch_size=batch,
        eval_batch_size=batch,
        predict_batch_size=batch,
        embedding_config_spec=tf1.estimator.tpu.experimental.EmbeddingConfigSpec(
            optimization_parameters=optimizer,
            table_to_config_dict=tables,
            feature_to_config_dict=features,
            **spec,
        ),
    )
