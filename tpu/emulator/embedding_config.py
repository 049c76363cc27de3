"""Configuration of TPU embeddings, parsed from a TPUEmbeddingConfiguration.

TPUEmbedding serializes its configuration into the operations that load tables, receive activations
and send gradients. Features are in the order of their tables.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2 as parameters_pb2
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2 as config_pb2

from tpu.emulator import embedding_optimizers

_MOD = config_pb2.TPUEmbeddingConfiguration.MOD


@dataclasses.dataclass(frozen=True)
class Table:
    """An embedding table.

    Attributes:
      name: its name.
      rows: number of rows; TPUEmbedding pads it to the number of hosts.
      width: number of columns.
      optimizer: the name of an optimizer, such as "adagrad".
      parameters: the OptimizationParameters message.
    """

    name: str
    rows: int
    width: int
    optimizer: str
    parameters: parameters_pb2.OptimizationParameters

    def learning_rate(self, dynamic) -> float:
        """Returns the learning rate of a step; `dynamic` are the values of learning_rate_fn."""
        rate = self.parameters.learning_rate
        if rate.WhichOneof("learning_rate") == "dynamic":
            return np.float32(dynamic[rate.dynamic.tag])
        return np.float32(rate.constant)


@dataclasses.dataclass(frozen=True)
class Feature:
    """A lookup into a table.

    Attributes:
      table: index of its table.
      batch: examples per core.
      length: maximum sequence length; 0 for a feature with a combiner.
    """

    table: int
    batch: int
    length: int

    @property
    def num_bags(self) -> int:
        """Number of vectors that a core receives, [batch] or [batch * length]."""
        return self.batch * (self.length or 1)

    def shape(self, width: int) -> tuple[int, ...]:
        """Returns the shape of the activations, [batch, width] or [batch, length, width]."""
        return (self.batch, self.length, width) if self.length else (self.batch, width)


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of the TPU embeddings of a program.

    Attributes:
      tables: the tables.
      features: the features, in the order of their tables.
      num_hosts: number of hosts over which tables are partitioned.
      num_cores: number of cores.
      is_mod: True for partition_strategy "mod", False for "div".
      is_pipelined: True for pipeline_execution_with_tensor_core.
    """

    tables: tuple[Table, ...]
    features: tuple[Feature, ...]
    num_hosts: int
    num_cores: int
    is_mod: bool
    is_pipelined: bool

    def rows_of(self, table: Table, ids):
        """Returns the rows of ids, [n] int64, in the concatenated partitions of a table.

        "div" partitions are contiguous. With "mod", host h has the ids with id % num_hosts == h.
        """
        if not self.is_mod:
            return ids
        hosts = np.arange(self.num_hosts)
        sizes = (table.rows - hosts + self.num_hosts - 1) // self.num_hosts
        starts = np.cumsum(sizes) - sizes
        return starts[ids % self.num_hosts] + ids // self.num_hosts


def parse(serialized: bytes) -> Config:
    """Returns the `Config` of a serialized TPUEmbeddingConfiguration.

    Raises:
      NotImplementedError: an option that is not emulated.
    """
    proto = config_pb2.TPUEmbeddingConfiguration.FromString(serialized)
    return Config(
        tables=tuple(_table(descriptor) for descriptor in proto.table_descriptor),
        features=tuple(_feature(descriptor) for descriptor in proto.feature_descriptor),
        num_hosts=proto.num_hosts,
        num_cores=proto.num_tensor_cores,
        is_mod=proto.sharding_strategy == _MOD,
        is_pipelined=proto.pipeline_execution_with_tensor_core,
    )


def _table(descriptor):
    parameters = descriptor.optimization_parameters
    optimizer = parameters.WhichOneof("parameters")
    where = f"TPU embedding table '{descriptor.name}'"
    if optimizer not in embedding_optimizers.RULES:
        raise NotImplementedError(
            f"{where}: the optimizer '{optimizer}' is not emulated. Use StochasticGradientDescent, "
            "Adagrad, Adam or FtrlParameters, or run the program on a TPU"
        )
    disabled = parameters_pb2.GradientAccumulationStatus.DISABLED
    is_sequential = parameters.gradient_accumulation_status == disabled
    if is_sequential and optimizer != "stochastic_gradient_descent":
        raise NotImplementedError(
            f"{where}: use_gradient_accumulation=False is not emulated: duplicated ids are updated "
            "one by one in an order that only the TPU knows. Remove it"
        )
    if parameters.weight_decay_factor:
        raise NotImplementedError(
            f"{where}: weight_decay_factor={parameters.weight_decay_factor:g} is not emulated. "
            "Remove it, or run the program on a TPU"
        )
    rows, width = descriptor.vocabulary_size, descriptor.dimension
    return Table(descriptor.name, rows, width, optimizer, parameters)


def _feature(descriptor):
    batch, *length = descriptor.input_shape
    return Feature(descriptor.table_id, batch, length[0] if length else 0)
