"""TPU embeddings of a program: memory of the tables, ids per step and duplicated ids."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tpu.check.graph_builder import CheckedMode
from tpu.connect import topology
from tpu.connect.topology import Topology
from tpu.graph.variables import EMBEDDING_SLOTS

_MAX_BATCHES = 16  # of input_fn, to count ids


@dataclasses.dataclass(frozen=True)
class TableUse:
    """An embedding table.

    Attributes:
      name: its name.
      rows: number of rows.
      width: number of columns.
      slots: number of slot variables, each of the shape of the table.
      ids_per_step: mean ids of all its features in a global batch; None if not counted.
      duplicates: share of ids that repeat another one among the `_MAX_BATCHES` first batches of
        input_fn, at most a global batch; None if not counted.
    """

    name: str
    rows: int
    width: int
    slots: int
    ids_per_step: float | None = None
    duplicates: float | None = None

    @property
    def num_bytes(self) -> int:
        """Memory of the float32 table and its slots."""
        return self.rows * self.width * 4 * (1 + self.slots)


def find_tables(checked: CheckedMode) -> list[TableUse]:
    """Returns the tables of a mode, "train" or "eval"; evaluation needs no slots."""
    with checked.context() as context:
        config = context.embedding_config
    tables = config.tpu_embedding.config_proto.table_descriptor if config else ()
    found = []
    for table in tables:
        optimizer = table.optimization_parameters.WhichOneof("parameters")
        slots = EMBEDDING_SLOTS.get(optimizer, 2)
        found.append(TableUse(table.name, table.vocabulary_size, table.dimension, slots))
    return found


def count_ids(tables, checked: CheckedMode) -> list[TableUse]:
    """Returns tables with `ids_per_step` and `duplicates`, from the first batches of input_fn.

    Args:
      tables: of `find_tables`.
      checked: the mode; input_fn returns a dict of features, dense (id 0 is missing if there is a
        combiner) or sparse, and optionally labels.

    Raises:
      Any exception of input_fn.
    """
    with checked.on_slice(), tf.Graph().as_default():
        with checked.estimator._ctx.with_mode(checked.mode) as context:
            embedding = context.embedding_config.tpu_embedding
            batch, step = context.batch_size_for_input_fn, context.global_batch_size
        features = checked.next_batch()
        features = features[0] if isinstance(features, (tuple, list)) else features
        ids = {name: _ids(features[name]) for name in embedding.feature_to_config_dict}
        num_batches = min(_MAX_BATCHES, -(-step // batch))
        found = _read(ids, num_batches)
    counted = []
    for table in tables:
        config = embedding.table_to_config_dict[table.name]
        names = embedding.table_to_features_dict[table.name]
        is_sparse = {name: isinstance(features[name], tf.SparseTensor) for name in names}
        read = [
            values if is_sparse[name] or config.combiner is None else values[values != 0]
            for name in names
            for values in found[name]
        ]
        every = np.concatenate(read) if read else np.zeros(0)
        examples = batch * max(1, len(found[names[0]]))
        duplicates = 1 - len(np.unique(every)) / len(every) if len(every) else 0.0
        per_step = len(every) / examples * step
        counted.append(
            dataclasses.replace(table, ids_per_step=per_step, duplicates=float(duplicates))
        )
    return counted


def explain_memory(tables, tpu_topology: Topology, step_bytes: int = 0) -> str:
    """Returns why tables do not fit the memory of a slice; "" if they fit.

    Tables are sharded evenly over the cores of the slice, each of which needs `step_bytes` for the
    rest of the step.
    """
    total = sum(table.num_bytes for table in tables)
    if not tables or not tpu_topology.hbm_gib or _fits(total, tpu_topology, step_bytes):
        return ""
    largest = max(tables, key=lambda table: table.num_bytes)
    rest = f", of which the step needs {_gib(step_bytes)}" if step_bytes > 2**20 else ""
    slots = f"{largest.slots} slot{'s' if largest.slots != 1 else ''}"
    count = f"{len(tables)} table{'s' if len(tables) > 1 else ''}"
    return (
        f"TPU embeddings do not fit: {count} of {sum(table.rows for table in tables):,} rows need "
        f"{_gib(total)} with slots, {_gib(total / tpu_topology.num_cores)} on each of "
        f"{tpu_topology.num_cores} cores, which have {tpu_topology.hbm_gib} GiB{rest}. The largest "
        f"is '{largest.name}': {largest.rows:,} rows x {largest.width} x 4 bytes x (1 + {slots}) = "
        f"{_gib(largest.num_bytes)}. {_advise(total, tpu_topology, step_bytes)}"
    )


def _advise(total, tpu_topology, step_bytes):
    slices = [topology.find(name) for name in topology.names()]
    slices = [one for one in slices if one.generation == tpu_topology.generation]
    fitting = [one.name for one in slices if _fits(total, one, step_bytes)]
    if not fitting:
        return f"No {tpu_topology.generation} slice holds them. Use fewer rows or a smaller width"
    return f"Use {fitting[0]} or larger, fewer rows, or an optimizer with fewer slots"


def _fits(total, tpu_topology, step_bytes):
    return total / tpu_topology.num_cores + step_bytes <= tpu_topology.hbm_gib * 2**30


def _gib(number):
    return f"{number / 2**30:,.2f} GiB"


def _ids(feature):
    return tf.reshape(feature.values if isinstance(feature, tf.SparseTensor) else feature, [-1])


def _read(tensors, num_batches):
    """Returns `{name: [ids of a batch, [n]]}` of up to `num_batches` batches."""
    found = {name: [] for name in tensors}
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS))
        for _ in range(num_batches):
            try:
                batch = session.run(tensors)
            except tf.errors.OutOfRangeError:
                break
            for name, ids in batch.items():
                found[name].append(ids)
    return found
