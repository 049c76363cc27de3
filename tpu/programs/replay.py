"""Records the batches that emulated cores train on, and feeds them to an Estimator on the CPU."""

from __future__ import annotations

import contextlib
import functools
from typing import NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util import nest
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

_Structure = tpu_estimator._InputPipeline.InputsStructureRecorder


class Recording:
    """The batches of each core, in the order of the steps.

    Attributes:
      batches: `{core: [list of arrays of each step]}`; arrays are the flat features and labels.
      structure: the features and labels of an input_fn, `{"features": ..., "labels": ...}`.
    """

    def __init__(self):
        self.batches: dict[int, list[list[np.ndarray]]] = {}
        self.structure = None

    @contextlib.contextmanager
    def record(self):
        """A context manager, inside `emulate()`, in which trainings are recorded."""
        real_enqueue, real_flatten = (
            tpu_ops.infeed_enqueue_tuple,
            _Structure.flatten_features_and_labels,
        )

        def enqueue(inputs, shapes, layouts=None, device_ordinal=-1, name=None):
            add = functools.partial(self._add, device_ordinal)
            recorded = tf.numpy_function(add, inputs, [], stateful=True)
            with tf.control_dependencies([recorded]):
                inputs = [tf.identity(tensor) for tensor in inputs]
            return real_enqueue(inputs, shapes, layouts, device_ordinal, name)

        def flatten(recorder, features, labels, signals=None):
            flat = real_flatten(recorder, features, labels, signals)
            self.structure = nest.map_structure(
                lambda tensor: tensor.dtype, recorder._feature_structure
            )
            return flat

        enqueue = mock.patch.object(tpu_ops, "infeed_enqueue_tuple", enqueue)
        flatten = mock.patch.object(_Structure, "flatten_features_and_labels", flatten)
        with enqueue, flatten:
            yield

    @contextlib.contextmanager
    def play(self, sources: dict[int, int]):
        """A context manager, inside `emulate()`, in which cores train on recorded batches again.

        `sources` is `{core: the core whose batches it reads}`.
        """

        def enqueue(inputs, shapes, layouts=None, device_ordinal=-1, name=None):
            batches = iter(self.batches[sources[device_ordinal]])
            dtypes = [tensor.dtype for tensor in inputs]
            read = tf.numpy_function(lambda: next(batches), [], dtypes, stateful=True)
            for tensor, original in zip(read, inputs):
                tensor.set_shape(original.shape)
            return real_enqueue(read, shapes, layouts, device_ordinal, name)

        real_enqueue = tpu_ops.infeed_enqueue_tuple
        with mock.patch.object(tpu_ops, "infeed_enqueue_tuple", enqueue):
            yield

    def _add(self, core, *arrays):
        self.batches.setdefault(core, []).append([np.array(array) for array in arrays])

    def join(self, steps: int, shapes, batch_size: int, cores=None) -> Replay:
        """Returns the first steps with the batches of cores joined.

        Args:
          steps: number of steps.
          shapes: static shapes of the flat features and labels of a global batch; None if unknown.
          batch_size: examples per core.
          cores: the cores; default all. A core may occur more than once.

        Raises:
          ValueError: it is unknown along which axis the cores share a tensor.
        """
        cores = sorted(self.batches) if cores is None else cores
        first = self.batches[cores[0]][0]
        axes = [
            _batch_axis(array.shape, shape, len(cores), batch_size)
            for array, shape in zip(first, shapes or [None] * len(first))
        ]
        batches = [
            [
                np.concatenate(arrays, axis) if len(cores) > 1 else arrays[0]
                for axis, *arrays in zip(axes, *(self.batches[core][step] for core in cores))
            ]
            for step in range(steps)
        ]
        return Replay(self.structure, batches, axes)


class Replay(NamedTuple):
    """Global batches to train on again.

    Attributes:
      structure: see `Recording`.
      batches: flat features and labels of each step.
      axes: the batch axis of each tensor; None if unknown, which a single core allows.
    """

    structure: dict
    batches: list[list[np.ndarray]]
    axes: list[int | None]

    def input_fn(self, params):
        """The input_fn of an Estimator; yields the batches once."""
        del params
        signature = tuple(tf.TensorSpec(a.shape, tf.as_dtype(a.dtype)) for a in self.batches[0])
        dataset = tf.data.Dataset.from_generator(
            lambda: map(tuple, self.batches), output_signature=signature
        )
        return dataset.map(self._pack)

    def _pack(self, *flat):
        packed = nest.pack_sequence_as(self.structure, list(flat))
        return (packed["features"], packed["labels"]) if "labels" in packed else packed["features"]

    def in_another_order(self) -> Replay | None:
        """Returns the batches with their examples in another order; None if an axis is unknown."""
        if None in self.axes:
            return None
        size = self.batches[0][0].shape[self.axes[0]]
        order = np.random.RandomState(1).permutation(size)
        batches = [
            [array.take(order, axis) for array, axis in zip(arrays, self.axes)]
            for arrays in self.batches
        ]
        return self._replace(batches=batches)


def static_shapes(estimator, input_fn) -> list[tf.TensorShape]:
    """Returns the shapes of the flat features and labels that input_fn gives an Estimator."""
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        inputs = estimator._call_input_fn(input_fn, tf.estimator.ModeKeys.TRAIN)
        specs = getattr(inputs, "element_spec", inputs)
        return [spec.shape for spec in nest.flatten(specs) if spec is not None]


def _batch_axis(on_core, in_total, num_cores, batch_size):
    """Returns the axis of the examples, given the shapes of a core's and of the global batch.

    The latter may be None: unknown.
    """
    axes = [axis for axis, size in enumerate(on_core) if size == batch_size]
    if num_cores > 1:
        if in_total is not None:
            sizes = in_total.as_list() if in_total.rank == len(on_core) else []
            axes = axes if sizes else []
            axes = [axis for axis in axes if sizes[axis] in (None, num_cores * batch_size)]
        if len(axes) != 1:
            total = "unknown shape" if in_total is None else f"shape {in_total}"
            raise ValueError(
                f"a tensor of {total} in total and {list(on_core)} per core has no batch "
                f"axis of {batch_size} examples per core"
            )
    return axes[0] if axes else None
