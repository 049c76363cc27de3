"""`python -m tpu compare`: training on emulated TPU cores compared with training on the CPU."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import signal
import sys
import tempfile
import threading
from unittest import mock

import tensorflow as tf

from tpu.check import graph_builder
from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.programs import calls, causes, comparison, cpu_graph, failures, proof, streams, trainings
from tpu.programs.comparison import Comparison, format_text
from tpu.programs.program import Program, log
from tpu.programs.replay import Recording
from tpu.programs.trainings import ON_CORES, ON_CPU, REORDERED, REPEATED, Trainings

_FAILED = 2


class _Compared(BaseException):
    """Ends the program after the comparison; no `except Exception` of the program catches it."""


def run(
    program: Program,
    tpu_topology: Topology,
    steps: int,
    report_path,
    clipping: bool = True,
    verbose: bool = False,
) -> int:
    """Runs a program up to its first training, and compares it.

    Args:
      program: the program.
      tpu_topology: the slice to emulate.
      steps: training steps.
      report_path: path of a JSON file to write, or None.
      clipping: False to train without clipping gradients by their norm.
      verbose: True to print the whole stack of an error.

    Returns:
      0 if all differences are rounding, 1 if not, 2 if the first training is not on a TPU
      or failed, 3 if the variables differ only by what each core computes on its own batch.
    """
    first = _FirstTraining(steps, clipping)
    context = contextlib.nullcontext() if clipping else cpu_graph.without_clipping()

    def end(how, status):
        del status  # status 0 means that the variables are equal
        if first.is_done:
            return finish()
        streams.report(f"not compared: the program ended by {how}")
        return _FAILED

    def finish():
        if first.error is not None and first.result is None:
            print(failures.format_error(first.error, verbose), end="", file=sys.stderr, flush=True)
            print(f"not compared: {failures.explain(first.error)}{_advice(first)}")
            return _FAILED
        if first.call is None:
            print("the program made no call of train: nothing to compare")
            return _FAILED
        if not first.call.on_tpu:
            place, reason = first.call.where, first.call.without_tpu
            print(f"not compared: train at {place} runs without a TPU: {reason}")
            return _FAILED
        if first.result is None:
            print("not compared: the program ended before its training did")
            return _FAILED
        with context:
            _add_causes(first.call, first.result, tpu_topology)
        print(format_text(first.result, tpu_topology))
        if report_path:
            fields = {**dataclasses.asdict(first.result), "status": first.result.status}
            streams.write_file(report_path, f"{json.dumps(fields, indent=1)}\n")
        return first.result.status

    with (
        emulator.emulate(tpu_topology),
        trainings.constructor_arguments(),
        calls.intercept(first.handle),
    ):
        try:
            with failures.print_in_threads(verbose), first.in_threads():
                program.run(end)
        except _Compared:
            pass
        except SystemExit as exit_request:
            if not first.is_done:
                log(f"the program ended with {exit_request.code!r}")
        except KeyboardInterrupt:
            if not first.is_done:
                raise
        except Exception as error:  # status 1 means that the variables differ
            first.error = first.error or error
    return finish()


class _FirstTraining:
    """Compares the first training of a program, and then ends the program.

    Attributes:
      call: its call, once the program has made it.
      result: the `Comparison`, once it is done.
      error: why the comparison failed, or None.
      recording: the batches that the cores have read.
    """

    def __init__(self, steps, clipping):
        self._steps, self._clipping = steps, clipping
        self._lock = threading.Lock()
        self._thread = None
        self.call = self.result = self.error = None
        self.recording = Recording()

    @property
    def is_done(self) -> bool:
        """True if the training was compared, failed, or does not run on a TPU."""
        is_on_cpu = self.call is not None and not self.call.on_tpu
        return is_on_cpu or self.result is not None or self.error is not None

    def handle(self, call):
        """Handles the calls of Estimators: see `calls.intercept`."""
        if self.is_done:
            raise _Compared  # a program that catches everything
        if call.method != "train" or self._thread is threading.current_thread():
            return call.execute()  # the trainings of the comparison are not compared
        with self._lock:  # a program may train in several threads
            if self.is_done:
                raise _Compared
            self.call, self._thread = call, threading.current_thread()
            if not call.on_tpu:  # it would train the whole program, into its model_dir
                raise _Compared
            try:
                with failures.explain_specs():
                    self.result = _compare(call, self._steps, self._clipping, self.recording)
            except Exception as error:
                self.error = failures.with_callers(error, run.__code__)
            raise _Compared

    @contextlib.contextmanager
    def in_threads(self):
        """A context manager in which the comparison ends the program from any thread."""
        real = threading.excepthook

        def hook(arguments):
            if arguments.exc_type is not _Compared:
                return real(arguments)
            # The main thread may wait for this one.
            return signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        with mock.patch.object(threading, "excepthook", hook):
            yield


def _advice(first):
    """Returns how to compare a program whose input ends before the last step."""
    is_input = isinstance(first.error, tf.errors.OutOfRangeError)
    read = min((len(batches) for batches in first.recording.batches.values()), default=0)
    return f". Its batches are enough for --steps={read}" if is_input and read else ""


def _compare(call, steps, clipping, recording):
    """Trains on emulated cores, on the CPU, and on the CPU with the examples in another order."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(cpu_graph.deterministic_operations())
        stack.enter_context(cpu_graph.variables_of_a_tpu())
        dropped = stack.enter_context(cpu_graph.without_dropout())
        if not clipping:
            stack.enter_context(cpu_graph.without_clipping())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        copies = Trainings(call, recording, steps, folder)
        with recording.record(), proof.groups_of_sums() as groups:
            emulated = copies.run(ON_CORES, call.arguments["input_fn"], use_tpu=True)
        found, notes, rounding, is_repeatable = [], [], {}, True
        if dropped:
            notes.append("dropout was switched off in both trainings")
        with cpu_graph.single_replica() as sums, cpu_graph.ordered_updates() as facts:
            try:
                replay = copies.join()
            except ValueError as error:
                found.append(f"input_fn was read again, in another order if it shuffles: {error}")
                replay = None
            first = replay.input_fn if replay else call.arguments["input_fn"]
            on_cpu = copies.run(ON_CPU, first)
            # With random numbers, another order changes more than the rounding.
            other = replay.in_another_order() if replay and not facts.random_operations else None
            if other:
                reordered = copies.run(REORDERED, other.input_fn)
                rounding = {n: comparison.difference(reordered[n], on_cpu[n])[1] for n in on_cpu}
                if _exceeds(rounding, on_cpu, steps):  # amplified, or another program each time
                    repeated = copies.run(REPEATED, first)
                    is_repeatable = _digest(repeated) == _digest(on_cpu)
        found += [f"random numbers: {text}" for text in dict.fromkeys(facts.random_operations)]
        only_on_cores = sorted(emulated.keys() - on_cpu.keys())
        if only_on_cores:
            notes.append(f"only on emulated cores: {', '.join(only_on_cores)}")
        digests = {ON_CORES: _digest(emulated), ON_CPU: _digest(on_cpu)}
        num_replicas = len(recording.batches)
        differences = comparison.compare(emulated, on_cpu, facts.trainable, num_replicas, rounding)
        result = Comparison(steps, call.where, differences, found, digests, notes)
        result.is_repeatable = is_repeatable
        if result.not_rounding and sums:
            result.causes.append(
                "with use_tpu=False, too, the program sums over the cores (at "
                f"{next(iter(sums))}), of which there is one then. If it divides by their number, "
                "branch on params['use_tpu'], not on a flag"
            )
        result.causes += _row_updates(facts, result.not_rounding)
        if result.not_rounding and result.is_decided and num_replicas > 1:
            result.is_per_core, result.proofs = proof.prove(
                copies, emulated, facts, groups, rounding, result.has_factors
            )
    return result


def _row_updates(facts, differences):
    """Returns the causes that are sparse gradients on the CPU, which are dense on a TPU."""
    return [
        f"the CPU updates only the rows of '{name}' that the batch reads ({update}, a sparse "
        "gradient), a TPU all rows"
        for name, update in facts.row_updates.items()
        if comparison.includes(differences, name)
    ]


def _add_causes(call, result, tpu_topology):
    """Adds what the graph of the training step says about different results."""
    mode, input_fn = tf.estimator.ModeKeys.TRAIN, call.arguments["input_fn"]
    checked = graph_builder.CheckedMode(call.estimator, input_fn, mode, tpu_topology)
    try:
        with emulator.answer_discovery(tpu_topology):
            with checked.context() as context:
                batch_size = context.batch_size_for_model_fn or 1
                num_replicas = context.num_replicas
            step = graph_builder.build_once(checked)
        is_different = bool(result.not_rounding)
        found = causes.find(step.program, batch_size, num_replicas, is_different)
    except Exception as error:  # the comparison is done
        result.notes.append(f"no causes were looked for in the graph: {failures.explain(error)}")
        return
    result.causes += [cause.text for cause in found]
    result.own += [cause.name for cause in found if cause.name]


def _exceeds(rounding, variables, steps):
    """Returns True if another order changes a variable by more than rounding does."""
    limit = comparison.most_rounding(steps)
    return any(rounding[n] > limit for n in rounding if variables[n].dtype.kind not in "biu")


def _digest(variables):
    digest = hashlib.sha256()
    for name, value in variables.items():
        digest.update(name.encode() + value.tobytes())
    return digest.hexdigest()
