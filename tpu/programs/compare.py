"""`python -m tpu compare`: training on emulated TPU cores compared with training on the CPU."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import json
import os
import random
import tempfile
import traceback
from unittest import mock

import numpy as np
import tensorflow as tf

from tpu.check import graph_builder, lint
from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.findings import user_line
from tpu.programs import calls, cpu_graph, report_file
from tpu.programs.program import Program, log
from tpu.programs.replay import Recording, static_shapes

# Differences up to this multiple of what another order of the same examples causes are rounding.
_ROUNDING_FACTOR = 20
# A variable of which another order changes this part is rounding itself, such as the bias of the
# keys in attention, whose gradient is 0.
_NOTHING_BUT_ROUNDING = 0.1
# A factor is a finding only if the values agree this well.
_NEARLY_EQUAL = 1e-2
# Names of the trainings.
_EMULATED = "on emulated cores"
_ON_CPU = "on the CPU"
_REORDERED = "on the CPU in another order"
# Findings of the lint that make the results of a slice differ from those of one CPU.
_LINT_CODES = ("clip-before-sum", "no-cross-replica-sum", "unordered-update")
_BATCH_NORM = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
# Of the real constructor: the emulator replaces it.
_CONSTRUCTOR = inspect.signature(calls.TPUEstimator.__init__)


class _Compared(BaseException):
    """Ends the program after the comparison; no `except Exception` of the program catches it."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A variable after training on emulated cores and on the CPU.

    Attributes:
      name: name in the checkpoint.
      is_trainable: False for the state of the optimizer, moving averages and counters.
      factor: what the CPU's values are multiplied by first. Not 1 if that makes all values equal:
        an optimizer's moments, if gradients are summed over the cores and not averaged.
      largest: max abs difference.
      relative: `largest`, relative to the max abs value of the variable on the CPU.
      rounding: the relative difference of two trainings on the CPU with the examples of each batch
        in another order; None if unknown.
    """

    name: str
    is_trainable: bool
    factor: int
    largest: float
    relative: float
    rounding: float | None


@dataclasses.dataclass
class Comparison:
    """Results of a comparison.

    Attributes:
      steps: number of training steps.
      where: "file:line" of the call of `train`.
      differences: one for each variable.
      causes: what may make the results differ other than by rounding.
      digests: SHA-256 of the variables, `{"emulated cores" or "CPU": hex digits}`.
    """

    steps: int
    where: str
    differences: list[Difference]
    causes: list[str]
    digests: dict[str, str]

    @property
    def largest(self) -> list[Difference]:
        """The differences of variables that are more than rounding, the largest weights first."""
        counted = [d for d in self.differences if (d.rounding or 0) < _NOTHING_BUT_ROUNDING]
        key = lambda d: (not d.is_trainable, -np.nan_to_num(d.relative, nan=np.inf))  # noqa: E731
        return sorted(counted, key=key)

    @property
    def is_decided(self) -> bool:
        """True if rounding does not drown the differences of most variables."""
        return 2 * len(self.largest) > len(self.differences)

    @property
    def not_rounding(self) -> list[Difference]:
        """The differences that are too large to be rounding."""
        typical = np.median([d.rounding for d in self.largest if d.rounding is not None] or [0])
        smallest = max(typical, self.steps * np.finfo(np.float32).eps)
        return [
            d
            for d in self.largest
            if not d.relative <= _ROUNDING_FACTOR * max(smallest, d.rounding or 0)
        ]


def run(
    program: Program, tpu_topology: Topology, steps: int, report_path, clipping: bool = True
) -> int:
    """Runs a program up to its first training on a TPU, and compares that training.

    Args:
      program: the program.
      tpu_topology: the slice to emulate.
      steps: training steps.
      report_path: path of a JSON file to write, or None.
      clipping: False to train without clipping gradients by their norm.

    Returns:
      0 if all differences are rounding, 1 if not, 2 if the program did not train on a TPU
      or failed.
    """
    found = []

    def handle(call):
        if found or call.method != "train" or not call.on_tpu:
            return call.execute()
        found.append(call)  # the trainings of the comparison are not compared
        found.append(_compare(call, steps, clipping))
        raise _Compared

    with emulator.emulate(tpu_topology), _constructor_arguments(), calls.intercept(handle):
        try:
            program.run()
        except _Compared:
            pass
        except SystemExit as exit_request:
            log(f"the program ended with {exit_request.code!r}")
        except Exception:  # status 1 means that the variables differ
            traceback.print_exc()
            print("not compared: the program or a training of the comparison failed")
            return 2
    if not found:
        print("the program did not train a TPUEstimator with use_tpu=True: nothing to compare")
        return 2
    call, comparison = found
    with contextlib.nullcontext() if clipping else cpu_graph.without_clipping():
        comparison.causes += _causes_in_graph(call, tpu_topology)
    print(format_text(comparison, tpu_topology))
    if report_path:
        fields = dataclasses.asdict(comparison)
        report_file.write(report_path, f"{json.dumps(fields, indent=1)}\n")
    return int(not comparison.is_decided or bool(comparison.not_rounding))


def format_text(comparison: Comparison, tpu_topology: Topology, rows: int = 8) -> str:
    """Returns a comparison as text for a terminal: the `rows` largest differences of each kind."""
    differences = comparison.largest
    parts = [
        (name, [d for d in differences if d.is_trainable == is_trainable])
        for name, is_trainable in (("weights", True), ("other variables", False))
    ]
    shown = [d for _, part in parts for d in part[:rows]]
    width = max(map(len, ("other variables", *(d.name for d in shown))))
    lines = [
        f"{comparison.steps} steps on emulated cores ({tpu_topology.name}) and with use_tpu=False, "
        f"train at {comparison.where}"
    ]
    for name, part in parts:
        lines += ["", f"{name:<{width}}  factor  max abs difference  relative  another order"]
        for difference in part[:rows]:
            rounding = "unknown" if difference.rounding is None else f"{difference.rounding:.1e}"
            lines.append(
                f"{difference.name:<{width}}  {difference.factor:6}  {difference.largest:18.1e}  "
                f"{difference.relative:8.1e}  {rounding:>13}"
            )
        if len(part) > rows:
            lines.append(f"and {len(part) - rows} with smaller differences")
    lines += ["", *_notes(comparison), _verdict(comparison)]
    return "\n".join(lines)


def _notes(comparison):
    notes = []
    left_out = len(comparison.differences) - len(comparison.largest)
    if left_out:
        notes.append(f"left out: {left_out} variables that are nothing but rounding")
    if any(difference.factor != 1 for difference in comparison.largest):
        notes.append(
            "factors: gradients are summed over the cores, not averaged: CrossShardOptimizer "
            "averages in compute_gradients and minimize, not in apply_gradients. Adam does not "
            "depend on the scale, except for its epsilon"
        )
    notes += [f"may differ: {cause}" for cause in comparison.causes]
    return notes + [f"SHA-256 {name}: {digest}" for name, digest in comparison.digests.items()]


def _verdict(comparison):
    if not comparison.is_decided:
        return "undecided: most variables are nothing but rounding. Use fewer --steps"
    different = comparison.not_rounding
    if different:
        weights = sum(d.is_trainable for d in different)
        return (
            f"NOT equal up to rounding: {weights} weights, {len(different) - weights} other "
            "variables"
        )
    has_factors = any(difference.factor != 1 for difference in comparison.largest)
    return f"equal up to rounding{' and the factors' if has_factors else ''}"


@contextlib.contextmanager
def _constructor_arguments():
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


def _compare(call, steps, clipping):
    """Trains on emulated cores, on the CPU, and on the CPU with the examples in another order."""
    input_fn, recording = call.arguments["input_fn"], Recording()
    with contextlib.ExitStack() as stack:
        stack.enter_context(cpu_graph.deterministic_operations())
        stack.enter_context(cpu_graph.resource_variables())
        dropped = stack.enter_context(cpu_graph.without_dropout())
        if not clipping:
            stack.enter_context(cpu_graph.without_clipping())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        with recording.record():
            emulated = _train(call.estimator, folder, _EMULATED, input_fn, steps)
        causes = ["dropout was switched off in both trainings"] if dropped else []
        with cpu_graph.single_replica(), cpu_graph.ordered_updates() as training:
            try:
                replay = _replay(call, recording, steps, folder)
            except ValueError as error:
                causes.append(f"input_fn was read again, in another order if it shuffles: {error}")
                replay = None
            first = replay.input_fn if replay else input_fn
            on_cpu = _train(call.estimator, folder, _ON_CPU, first, steps)
            # With random numbers, another order changes more than the rounding.
            other = replay.in_another_order() if replay and not training.random_operations else None
            reordered = None
            if other:
                reordered = _train(call.estimator, folder, _REORDERED, other.input_fn, steps)
    causes += [f"random numbers: {text}" for text in dict.fromkeys(training.random_operations)]
    digests = {_EMULATED: _digest(emulated), _ON_CPU: _digest(on_cpu)}
    num_replicas = len(recording.batches)
    differences = _differences(emulated, on_cpu, reordered, training.trainable, num_replicas)
    return Comparison(steps, call.where, differences, causes, digests)


def _train(estimator, folder, where, input_fn, steps):
    """Trains a copy of an Estimator and returns its variables.

    Args:
      estimator: TPUEstimator.
      folder: folder of the trainings.
      where: name of the training. That on emulated cores is the first; others start from its
        initial values.
      input_fn: input_fn.
      steps: training steps.
    """
    log(f"training {steps} steps {where}")
    model_dir = os.path.join(folder, where)
    if where != _EMULATED:
        _copy_first_checkpoint(os.path.join(folder, _EMULATED), model_dir)
    copied = _rebuild(estimator, model_dir, steps, use_tpu=where == _EMULATED)
    random.seed(1)
    np.random.seed(1)
    copied.train(input_fn, max_steps=steps)
    return _variables(tf.train.latest_checkpoint(model_dir))


def _replay(call, recording, steps, folder):
    """Returns the recorded batches of all replicas as global batches.

    Raises:
      ValueError: the batches cannot be joined.
    """
    on_cpu = _rebuild(call.estimator, folder, steps, use_tpu=False)
    shapes = static_shapes(on_cpu, call.arguments["input_fn"])
    batch_size = call.estimator._ctx._train_batch_size // len(recording.batches)
    return recording.join(steps, shapes, batch_size)


def _causes_in_graph(call, tpu_topology):
    """Returns what the lint of the training step says about different results."""
    mode = tf.estimator.ModeKeys.TRAIN
    with emulator.answer_discovery(tpu_topology):
        graph, program = graph_builder.build_step(
            call.estimator, call.arguments["input_fn"], mode, tpu_topology
        )
    found = lint.apply_rules(program, mode, 8)
    causes = []
    for code in _LINT_CODES:
        same = [finding for finding in found if finding.code == code]
        if same:
            number = f"{len(same)} x: " if len(same) > 1 else ""
            causes.append(f"{number}{same[0].message} (at {same[0].where})")
    operations = program.operations.values()
    batch_norms = [op for op in operations if op.type in _BATCH_NORM and op.get_attr("is_training")]
    del graph  # kept until here: operations do not keep their graph alive
    if batch_norms and tpu_topology.num_cores > 1:
        causes.append(
            f"batch norm computes its mean and variance per core ({len(batch_norms)} layers, the "
            f"first at {user_line(batch_norms[0])})"
        )
    return causes


def _differences(emulated, on_cpu, reordered, trainable, num_replicas):
    differences = []
    for name, value in on_cpu.items():
        if name not in emulated:
            raise ValueError(f"variable '{name}' exists with use_tpu=False only")
        rounding = _difference(reordered[name], value)[1] if reordered else None
        # Sums of gradients are num_replicas times their mean, sums of squares its square.
        found = {
            factor: _difference(emulated[name], factor * value.astype(np.float64))
            for factor in (1, num_replicas, num_replicas**2)
        }
        factor = min(found, key=lambda factor: (found[factor][1] > _NEARLY_EQUAL, factor))
        differences.append(Difference(name, name in trainable, factor, *found[factor], rounding))
    return differences


def _difference(a, b):
    """Returns the max abs difference of two arrays, also relative to the max abs value of `b`."""
    if not b.size:
        return 0.0, 0.0
    a, b = a.astype(np.float64), b.astype(np.float64)
    largest, scale = float(np.abs(a - b).max()), float(np.abs(b).max())
    return largest, largest / scale if scale else largest


def _copy_first_checkpoint(source, target):
    """Copies the checkpoint of step 0, the only one in `target`."""
    tf.io.gfile.makedirs(target)
    name = "model.ckpt-0"
    for path in tf.io.gfile.glob(os.path.join(source, f"{name}.*")):
        tf.io.gfile.copy(path, os.path.join(target, os.path.basename(path)))
    tf.compat.v1.train.update_checkpoint_state(target, os.path.join(target, name))


def _variables(checkpoint):
    """Returns the numbers of a checkpoint, `{name: array}`, without its strings."""
    reader = tf.train.load_checkpoint(checkpoint)
    dtypes = sorted(reader.get_variable_to_dtype_map().items())
    return {
        name: np.asarray(reader.get_tensor(name)) for name, dtype in dtypes if dtype != tf.string
    }


def _digest(variables):
    digest = hashlib.sha256()
    for name, value in variables.items():
        digest.update(name.encode() + value.tobytes())
    return digest.hexdigest()


def _rebuild(estimator, model_dir, steps, use_tpu):
    """Returns an Estimator with the arguments of another one, in another folder."""
    arguments = dict(estimator._arguments_for_comparison)
    arguments["use_tpu"] = use_tpu
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
