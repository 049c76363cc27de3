"""The tables of TPU embeddings: lookups, and one update per step, with NumPy.

Each core looks up the ids of its batch and returns the gradients of the activations. Once all cores
have done so, the gradients of all cores and features are summed per row, and the optimizer updates
each row once.
"""

from __future__ import annotations

import dataclasses
import threading

import numpy as np

from tpu.emulator import embedding_config, embedding_optimizers


@dataclasses.dataclass
class Lookup:
    """The ids of a feature in the batch of a core.

    Attributes:
      bags: [n] int64, index of the vector in the activations to which an id belongs.
      rows: [n] int64, rows of the table.
      factors: [n] float32, by which the rows are multiplied: weights and combiner.
    """

    bags: np.ndarray
    rows: np.ndarray
    factors: np.ndarray


class EmbeddingTables:
    """The TPU embeddings of a graph.

    Attributes:
      config: the `embedding_config.Config`; None before `configure`.
      combiners: the combiner of each feature, "sum", "mean" or "sqrtn".
    """

    def __init__(self):
        self.config = None
        self.combiners = None
        self._serialized = None
        self._arrays = {}  # {name of the table: [table, slot, ...]}
        self._lookups, self._gradients = {}, {}  # by core
        self._delayed = None  # updates of the step before, if pipelined
        self._lock = threading.Lock()

    def configure(self, serialized: bytes):
        """Parses the configuration; all operations of a graph must have the same."""
        if self._serialized is None:
            self.config = embedding_config.parse(serialized)
            self._serialized = serialized
        elif serialized != self._serialized:
            raise NotImplementedError(
                "a graph with two configurations of TPU embeddings is not emulated. Use one "
                "TPUEmbedding per graph"
            )

    # ---- Hosts ----

    def load(self, name, shard, num_shards, *parameters):
        """Sets the rows of a host.

        Args:
          name: name of the table.
          shard: index of the host.
          num_shards: number of hosts.
          *parameters: the rows of the table and of each slot, [rows of the host, width] float32.
        """
        with self._lock:
            self._lookups, self._gradients, self._delayed = {}, {}, None
            table = next(table for table in self.config.tables if table.name == name)
            if name not in self._arrays:
                shape = (table.rows, table.width)
                self._arrays[name] = [np.zeros(shape, np.float32) for _ in parameters]
            start, end = _partition(table.rows, shard, num_shards)
            for array, values in zip(self._arrays[name], parameters):
                array[start:end] = values

    def retrieve(self, name, shard, num_shards):
        """Returns the rows of a host in the table and its slots, after all updates."""
        with self._lock:
            if self._delayed is not None:
                self._update(*self._delayed)
                self._delayed = None
            arrays = self._arrays[name]
            start, end = _partition(len(arrays[0]), shard, num_shards)
            return [array[start:end].copy() for array in arrays]

    # ---- Cores ----

    def receive(self, core, *enqueued):
        """Returns the activations of each feature for a core.

        Args:
          core: index of the core.
          *enqueued: samples, ids and weights of the first feature, then of the next; see `_bags`.

        Returns:
          [batch, width] or [batch, length, width] float32 per feature.
        """
        lookups, activations = [], []
        for i, feature in enumerate(self.config.features):
            table = self.config.tables[feature.table]
            lookup = self._lookup(feature, table, self.combiners[i], enqueued[3 * i : 3 * i + 3])
            vectors = self._arrays[table.name][0][lookup.rows] * lookup.factors[:, None]
            sums = np.zeros((feature.num_bags, table.width), np.float32)
            np.add.at(sums, lookup.bags, vectors)
            lookups.append(lookup)
            activations.append(sums.reshape(feature.shape(table.width)))
        self._lookups[core] = lookups
        return activations

    def send(self, core, *gradients_and_rates):
        """Keeps the gradients of a core until `update`; returns 0, an int32.

        Args:
          core: index of the core.
          *gradients_and_rates: the gradient of the activations of each feature, then the dynamic
            learning rates.
        """
        self._gradients[core] = gradients_and_rates
        return np.int32(0)

    def update(self):
        """Updates the tables with the gradients of all cores; returns 0, an int32.

        If pipelined, lookups of the next step miss the update of this step, as on a TPU, where
        they run at the same time as this step.
        """
        with self._lock:
            updates = self._sum_gradients()
            if not self.config.is_pipelined:
                self._update(*updates)
                return np.int32(0)
            before, self._delayed = self._delayed, updates
            if before is not None:
                self._update(*before)
        return np.int32(0)

    def _sum_gradients(self):
        """Returns ({table: (rows, gradients)}, learning rates)."""
        features, rates = self.config.features, ()
        rows, values = {}, {}
        for core in range(self.config.num_cores):
            sent = self._gradients.pop(core)
            rates = sent[len(features) :]
            for feature, lookup, gradient in zip(features, self._lookups.pop(core), sent):
                width = self.config.tables[feature.table].width
                gradient = gradient.reshape(feature.num_bags, width)
                values.setdefault(feature.table, []).append(
                    gradient[lookup.bags] * lookup.factors[:, None]
                )
                rows.setdefault(feature.table, []).append(lookup.rows)
        sums = {}
        for table, parts in values.items():
            found, inverse = np.unique(np.concatenate(rows[table]), return_inverse=True)
            total = np.zeros((len(found), parts[0].shape[1]), np.float32)
            np.add.at(total, inverse, np.concatenate(parts))
            sums[table] = found, total
        return sums, rates

    def _update(self, sums, rates):
        for index, (rows, gradients) in sums.items():
            table = self.config.tables[index]
            rate = table.learning_rate(rates)
            embedding_optimizers.update(table, self._arrays[table.name], rows, gradients, rate)

    def _lookup(self, feature, table, combiner, enqueued):
        samples, ids, weights = enqueued
        bags, ids, kept = _bags(feature, table, samples, ids)
        invalid = (ids < 0) | (ids >= table.rows)
        if invalid.any():
            raise ValueError(
                f"id {ids[invalid][0]} is not in TPU embedding table '{table.name}' of "
                f"{table.rows} rows. Correct the ids in input_fn"
            )
        weights = np.ones(len(ids), np.float32) if not weights.size else weights.ravel()[kept]
        factors = weights
        if not feature.length and combiner != "sum":
            sums = np.zeros(feature.num_bags, np.float32)
            np.add.at(sums, bags, weights**2 if combiner == "sqrtn" else weights)
            sums = np.sqrt(sums) if combiner == "sqrtn" else sums
            factors = weights / np.where(sums[bags] == 0, 1, sums[bags])
        return Lookup(bags, self.config.rows_of(table, ids), factors.astype(np.float32))


def _bags(feature, table, samples, ids):
    """Returns the bag and the id of each id that is looked up, and a mask of those in `ids`.

    Args:
      feature: the `embedding_config.Feature`.
      table: its table.
      samples: empty for dense ids, [batch + 1] row splits for ragged ids, or [n, 2 or 3] indices
        (example, position) for sparse ids; int64.
      ids: [n] int64; [batch] or [batch, k] for dense ids.
    """
    if samples.ndim == 2 and samples.shape[1]:
        examples, positions = samples[:, 0], samples[:, 1]
    elif samples.size:
        sizes = np.diff(samples)
        examples = np.repeat(np.arange(len(sizes)), sizes)
        positions = np.arange(len(examples)) - samples[examples]
    else:
        if ids.size % feature.batch and not feature.length:
            raise ValueError(
                f"{ids.size} ids for {feature.batch} examples per core in TPU embedding table "
                f"'{table.name}'. Dense ids need one id per example; without a combiner, "
                "TPUEstimator drops id 0 of rank 1 ids"
            )
        size = max(1, ids.size // feature.batch)
        examples, positions = np.divmod(np.arange(ids.size), size)
    ids = ids.ravel()
    if len(examples) != len(ids) or (examples >= feature.batch).any():
        raise ValueError(
            f"{len(ids)} ids with {len(examples)} sample indices for {feature.batch} examples per "
            f"core in TPU embedding table '{table.name}'"
        )
    kept = positions < feature.length if feature.length else np.ones(len(ids), bool)
    bags = examples * feature.length + positions if feature.length else examples
    return bags[kept], ids[kept], kept


def _partition(rows, shard, num_shards):
    """Returns the first row of a host and the end; the first hosts have one row more."""
    size, more = divmod(rows, num_shards)
    start = shard * size + min(shard, more)
    return start, start + size + (shard < more)
