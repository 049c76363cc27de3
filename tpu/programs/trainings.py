"""Trainings of an Estimator on emulated cores and on the CPU, all from the same initial values."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import random
import re
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_summary_ops
from tensorflow.python.summary.writer import writer as summary_writer

from tpu.programs import calls
from tpu.programs.program import log
from tpu.programs.replay import static_shapes

# Names of the trainings that every comparison has.
ON_CORES = "on emulated cores"
ON_CPU = "on the CPU"
REORDERED = "on the CPU in another order"
REPEATED = "on the CPU again"
# A variable that the checkpoint of the first training lacks.
_MISSING = re.compile(r"Key (\S+) not found in checkpoint")
_FIRST_CHECKPOINT = "model.ckpt-0"
# Training loops without a new global_step: more than any program accumulates gradients.
_MAX_UNCHANGED_LOOPS = 1000
# Signature of the real constructor, which the emulator replaces.
_CONSTRUCTOR = inspect.signature(calls.TPUEstimator.__init__)


@contextlib.contextmanager
def constructor_arguments():
    """A context manager in which each TPUEstimator keeps the arguments of its constructor."""
    cls, attribute = calls.TPUEstimator, "_arguments_for_comparison"
    original = cls.__init__

    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        arguments = _CONSTRUCTOR.bind(self, *args, **kwargs).arguments
        del arguments["self"]
        arguments.pop("model_dir", None)
        setattr(self, attribute, {**arguments, "params": self.params})

    with mock.patch.object(cls, "__init__", init):
        yield


class Trainings:
    """Trainings of copies of an Estimator, all from the same initial values.

    Attributes:
      steps: training steps.
    """

    def __init__(self, call, recording, steps, folder):
        self._call, self._recording, self._folder = call, recording, folder
        self.steps = steps

    @property
    def num_replicas(self) -> int:
        """Number of replicas that have read batches."""
        return len(self._recording.batches)

    @property
    def has_embeddings(self) -> bool:
        """True if the program uses TPU embeddings."""
        return self._call.estimator._ctx._embedding_config_spec is not None

    @property
    def _batch_size(self):
        """Examples per core."""
        return self._call.estimator._ctx._train_batch_size // self.num_replicas

    @functools.cached_property
    def first(self):
        """The initial values of the variables, `{name: array}`."""
        return _variables(os.path.join(self._folder, ON_CORES, _FIRST_CHECKPOINT))

    def run(self, where, input_fn, use_tpu=False, is_one_core=False, steps=None):
        """Trains and returns the variables, `{name: array}`.

        Args:
          where: name of the training; that on emulated cores is the first.
          input_fn: input_fn.
          use_tpu: True to train on the emulated cores.
          is_one_core: True if input_fn returns the batches of one core.
          steps: training steps, if fewer.
        """
        steps = steps or self.steps
        log(f"training {steps} steps {where}")
        model_dir = os.path.join(self._folder, where)
        if where != ON_CORES:
            _copy_first_checkpoint(os.path.join(self._folder, ON_CORES), model_dir)
        estimator = self._call.estimator
        changes: dict[str, Any] = {"train_batch_size": self._batch_size} if is_one_core else {}
        copied = rebuild(estimator, model_dir, steps, use_tpu, **changes)
        random.seed(1)
        np.random.seed(1)
        try:
            with _event_files_in(model_dir):
                copied.train(input_fn, hooks=[_ProgressHook()], max_steps=steps)
        except tf.errors.NotFoundError as error:
            missing = _MISSING.search(str(error))
            if missing is None or where == ON_CORES:
                raise
            raise ValueError(
                f"variable '{missing[1]}' exists with use_tpu={use_tpu} only: the models differ"
            ) from error
        return _variables(tf.train.latest_checkpoint(model_dir))

    def play(self, where, find_source):
        """Trains cores on recorded batches; `find_source(core, number)` names whose they read."""
        cores = sorted(self._recording.batches)
        sources = {core: find_source(core, len(cores)) for core in cores}
        with self._recording.play(sources):
            return self.run(where, self._call.arguments["input_fn"], use_tpu=True)

    def join(self, same_batch=False):
        """Returns a `Replay` of the batches of all replicas, or of as many copies of the first.

        Raises:
          ValueError: the batches cannot be joined.
        """
        cores = [0] * self.num_replicas if same_batch else None
        return self._recording.join(self.steps, self._shapes, self._batch_size, cores)

    @functools.cached_property
    def _shapes(self):
        """Static shapes of the flat features and labels of a global batch, or None."""
        on_cpu = rebuild(self._call.estimator, self._folder, self.steps, use_tpu=False)
        try:
            return static_shapes(on_cpu, self._call.arguments["input_fn"])
        except Exception:  # an input_fn with state may raise the second time
            return None

    def own(self, core):
        """Returns a `Replay` of the batches of one core."""
        return self._recording.join(self.steps, None, self._batch_size, [core])


class _ProgressHook(tf.estimator.SessionRunHook):
    """Ends a training whose global_step nothing increments, which would never end."""

    def begin(self):
        self._step, self._last, self._unchanged = tf.compat.v1.train.get_global_step(), None, 0

    def after_run(self, run_context, run_values):
        del run_values
        step = run_context.session.run(self._step)
        self._unchanged = self._unchanged + 1 if step == self._last else 0
        self._last = step
        if self._unchanged >= _MAX_UNCHANGED_LOOPS:
            raise ValueError(
                f"global_step is still {step} after {self._unchanged:,} training loops: the "
                "training never ends. Pass it to minimize or apply_gradients"
            )


@contextlib.contextmanager
def _event_files_in(folder):
    """A context manager in which all writers of summaries write into a folder.

    host_call knows the model_dir of the program, whose event files a comparison must not change.
    """
    create_v2, create_v1 = (
        gen_summary_ops.create_summary_file_writer,
        summary_writer.EventFileWriter,
    )

    def create_in_graph(writer, logdir, *args, **kwargs):
        del logdir
        return create_v2(writer, folder, *args, **kwargs)

    def create(logdir, *args, **kwargs):
        del logdir
        return create_v1(folder, *args, **kwargs)

    with (
        mock.patch.object(gen_summary_ops, "create_summary_file_writer", create_in_graph),
        mock.patch.object(summary_writer, "EventFileWriter", create),
    ):
        yield


def _copy_first_checkpoint(source, target):
    """Copies the checkpoint of step 0, the only one in `target`."""
    tf.io.gfile.makedirs(target)
    for path in tf.io.gfile.glob(os.path.join(source, f"{_FIRST_CHECKPOINT}.*")):
        tf.io.gfile.copy(path, os.path.join(target, os.path.basename(path)))
    tf.compat.v1.train.update_checkpoint_state(target, os.path.join(target, _FIRST_CHECKPOINT))


def _variables(checkpoint):
    """Returns the numbers of a checkpoint, `{name: array}`, without its strings."""
    reader = tf.train.load_checkpoint(checkpoint)
    dtypes = sorted(reader.get_variable_to_dtype_map().items())
    return {
        name: np.asarray(reader.get_tensor(name)) for name, dtype in dtypes if dtype != tf.string
    }


def rebuild(estimator, model_dir, steps, use_tpu, **changes):
    """Returns an Estimator with the arguments of another one, in another folder."""
    arguments = {**estimator._arguments_for_comparison, **changes, "use_tpu": use_tpu}
    config = arguments["config"]
    arguments["config"] = config.replace(
        model_dir=model_dir,
        save_checkpoints_steps=steps,
        save_checkpoints_secs=None,
        save_summary_steps=None,
        keep_checkpoint_max=None,
        tf_random_seed=config.tf_random_seed or 1,
    )
    return calls.TPUEstimator(**arguments)
