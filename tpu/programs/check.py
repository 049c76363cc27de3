"""`python -m tpu check`: checks every call that a program makes on a TPUEstimator."""

from __future__ import annotations

import contextlib
import functools
import itertools
import signal
import sys
import threading
import time
import traceback
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.training import checkpoint_utils
from tensorflow_estimator.python.estimator import training

from tpu.check import Report, check_program, compiler, format_text, to_json
from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.findings import ERROR, NOTE, WARNING, Finding, user_line_in
from tpu.programs import calls, report_file
from tpu.programs.program import Program, log

_MODES = {"train": "train", "evaluate": "eval", "predict": "predict", "export": "export"}
_LEVELS = (ERROR, WARNING, NOTE)


def run(program: Program, tpu_topology: Topology, steps: int, effort: str, report_path) -> int:
    """Runs a program; checks its Estimator calls, and prints a report with a column for each.

    Args:
      program: the program.
      tpu_topology: the slice to check for.
      steps: steps of each call to execute on emulated cores; with 0, the program gets placeholder
        results: no checkpoint, metrics of 0, one batch of predictions of 0.
      effort: of the TPU compiler, "quick", "full" or "off".
      report_path: path of a JSON file to write, or None.

    Returns:
      0 if no call has errors, 1 if one has, 2 if the program made no call that could be checked,
      130 after Ctrl-C.
    """
    check = _CallCheck(tpu_topology, steps, effort)
    error, is_interrupted = None, False
    with check.in_place_of_calls():
        try:
            program.run()
        except SystemExit as exit_request:
            if exit_request.code not in (None, 0):
                error = f"SystemExit: {exit_request.code}"
        except _Waiting as waiting:
            error = str(waiting)
        except KeyboardInterrupt:
            is_interrupted, error = True, "Ctrl-C"
        except Exception as raised:  # any exception of the program is reported
            if not check.has_placeholders:  # else the stack of a program that is right
                traceback.print_exc()
            place = user_line_in(traceback.extract_tb(raised.__traceback__))
            error = f"{type(raised).__name__}: {raised} (at {place})"
    report = check.report(error)
    if report_path and report:
        report_file.write(report_path, to_json(report))
    if is_interrupted:
        return 128 + signal.SIGINT
    if report is None:
        return 2
    return int(report.num_errors > 0)


class _Waiting(BaseException):
    """Ends a program that waits; no `except Exception` of the program catches it."""


class _CallCheck:
    """Checks calls instead of executing them.

    Attributes:
      has_placeholders: True if the program got a placeholder result.
    """

    def __init__(self, tpu_topology, steps, effort):
        self._topology, self._steps, self._effort = tpu_topology, steps, effort
        self._reports = {}  # {identity of a call: (its mode, its Report)}
        self._last_step = 0
        self.has_placeholders = self._is_waiting = False
        self._skipped: list[str] = []

    @contextlib.contextmanager
    def in_place_of_calls(self):
        """A context manager in which the calls of Estimators are checked."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(emulator.answer_discovery(self._topology))
            stack.enter_context(calls.intercept(self._handle))
            if not self._steps:
                # Without training there are no checkpoints: do not wait for one, and do not leave
                # out the evaluation that train_and_evaluate starts after each checkpoint.
                stack.enter_context(mock.patch.object(time, "sleep", self._sleep))
                stack.enter_context(
                    mock.patch.object(training._TrainingExecutor, "run", _train_and_evaluate)
                )
                for owner in (tf.train, tf.compat.v1.train, checkpoint_utils):
                    stack.enter_context(
                        mock.patch.object(owner, "checkpoints_iterator", _one_checkpoint)
                    )
            yield

    def report(self, error) -> Report | None:
        """Prints and returns one report of all calls; None if no call could be checked.

        Args:
          error: why the program stopped early, or None.
        """
        findings, modes = [], {}
        not_checked = [*self._skipped]
        for mode, report in self._reports.values():
            findings += report.findings
            not_checked += report.not_checked
            if mode in report.modes:
                calls_of_mode = sum(name.split()[0] == mode for name in modes)
                name = f"{mode} {calls_of_mode + 1}" if calls_of_mode else mode
                modes[name] = report.modes[mode]
        if error and self.has_placeholders:
            not_checked.append(
                f"calls after this error of the program, which ran with placeholder results: "
                f"{error}. --steps=N executes its calls"
            )
        elif error:
            findings.append(Finding(ERROR, "program", f"the program stopped: {error}"))
        if not self._reports:
            print(*(f"not checked: {line}" for line in dict.fromkeys(not_checked)), sep="\n")
            print(error or "the program called no TPUEstimator with use_tpu=True")
            return None
        not_checked = tuple(dict.fromkeys(not_checked))
        report = Report(
            self._topology,
            tuple(sorted(findings, key=lambda f: _LEVELS.index(f.level))),
            modes,
            not_checked,
        )
        print(f"\n{format_text(report, color=sys.stdout.isatty())}", flush=True)
        return report

    def _sleep(self, seconds, _sleep=time.sleep):
        """Replaces time.sleep: a program that sleeps twice between two calls waits for results."""
        where = user_line_in(traceback.extract_stack()[-2:-1])
        if threading.current_thread() is not threading.main_thread() or not where or seconds < 1:
            return _sleep(seconds)
        if self._is_waiting:
            raise _Waiting(f"it waits for results at {where}")
        self._is_waiting = True
        return None

    def _handle(self, call):
        self._is_waiting = False
        mode, name = _MODES[call.name], call.name
        runs_on_tpu = call.on_tpu
        if runs_on_tpu and mode != "export":
            with call.estimator._ctx.with_mode({"predict": "infer"}.get(mode, mode)) as context:
                runs_on_tpu = not context._is_running_on_cpu(is_export_mode=False)
        if runs_on_tpu:
            self._check(call, mode, name)
        else:
            self._skipped.append(f"{name} at {call.where}: it runs without a TPU (use_tpu=False)")
        if self._steps:
            return self._execute(call)
        self.has_placeholders = True
        return getattr(self, f"_{name}_result")(call)

    def _check(self, call, mode, name):
        identity = _identity(call)
        if identity in self._reports:
            return
        log(f"checking {name} at {call.where}")
        if mode == "export":
            receivers = call.arguments["input_receiver_fn_map"]
            input_fns = {"export": receivers["infer"]} if "infer" in receivers else {}
        else:
            input_fns = {mode: call.arguments["input_fn"]}
        report = check_program(
            call.estimator,
            input_fns,
            self._topology,
            compile_with_libtpu=self._effort != "off",
            effort=compiler.FULL if self._effort == "full" else compiler.QUICK,
        )
        self._reports[identity] = mode, report

    # ---- Results for the program ----

    def _execute(self, call):
        with emulator.emulate(self._topology):
            if call.method == "train":
                return call.execute(steps=None, max_steps=self._steps_to_run(call))
            if call.method == "evaluate":
                return call.execute(steps=min(self._steps, call.arguments.get("steps") or 10**9))
            if call.method == "predict":  # the generator needs the emulator to its end
                return list(itertools.islice(call.execute(), self._steps * _batch_size(call)))
            return call.execute()

    def _steps_to_run(self, call):
        """Returns the value of max_steps that trains the first steps of the call only."""
        done = calls.global_step(call.estimator)
        last = done + self._steps
        if call.arguments.get("steps"):
            last = min(last, done + call.arguments["steps"])
        if call.arguments.get("max_steps"):
            last = min(last, max(done, call.arguments["max_steps"]))
        return last

    def _train_result(self, call):
        steps = call.arguments.get("steps") or 0
        self._last_step = call.arguments.get("max_steps") or self._last_step + steps
        tf.io.gfile.makedirs(call.estimator.model_dir)  # programs write their results there
        return call.estimator

    def _evaluate_result(self, call):
        names = self._outputs(call) or ()
        # NumPy scalars, as of Estimator: programs call their methods.
        metrics = dict.fromkeys((*names, "loss"), np.float32(0))
        return {**metrics, "global_step": np.int64(self._last_step)}

    def _predict_result(self, call):
        zeros = {
            name: np.zeros(shape, tf.as_dtype(dtype).as_numpy_dtype)
            for name, (dtype, shape) in self._outputs(call).items()
        }
        return itertools.repeat(zeros, _batch_size(call))

    def _export_result(self, call):
        del self
        return str(call.arguments["export_dir_base"]).encode()

    def _outputs(self, call):
        mode, report = self._reports.get(_identity(call), (None, None))
        return (report.modes[mode].outputs if report and mode in report.modes else None) or {}


def _batch_size(call):
    """Returns the global batch size of predictions; 1 if it is unknown."""
    return getattr(getattr(call.estimator, "_ctx", None), "_predict_batch_size", None) or 1


def _train_and_evaluate(executor):
    """Replaces `_TrainingExecutor.run`, behind `tf.estimator.train_and_evaluate`."""
    estimator = executor._estimator
    train_spec, eval_spec = executor._train_spec, executor._eval_spec
    estimator.train(train_spec.input_fn, max_steps=train_spec.max_steps)
    metrics = estimator.evaluate(eval_spec.input_fn, steps=eval_spec.steps, name=eval_spec.name)
    exports = [
        exporter.export(estimator, estimator.model_dir, None, metrics, True)
        for exporter in eval_spec.exporters
    ]
    return metrics, exports


def _one_checkpoint(checkpoint_dir, *args, **kwargs):
    """Replaces `tf.train.checkpoints_iterator`."""
    del args, kwargs
    yield tf.train.latest_checkpoint(checkpoint_dir) or f"{checkpoint_dir}/model.ckpt-0"


def _identity(call):
    """Returns what tells calls apart: a loop may make the same call many times."""
    estimator = call.estimator
    input_fn = call.arguments.get("input_fn", call.arguments.get("input_receiver_fn_map"))
    context = getattr(estimator, "_ctx", None)
    sizes = [getattr(context, f"_{mode}_batch_size", None) for mode in _MODES.values()]
    params = repr(estimator.params)  # a dict or HParams
    return call.method, estimator.model_dir, params, tuple(sizes), _describe(input_fn)


def _describe(function):
    """Returns a hashable description of a function: its code and the plain values it holds."""
    if isinstance(function, functools.partial):
        values = (*function.args, *sorted(function.keywords.items()))
        return _describe(function.func), repr(values)
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    plain = [repr(value) for value in held if isinstance(value, (str, int, float, bool, tuple))]
    owner = id(getattr(function, "__self__", None))
    return getattr(function, "__code__", None) or repr(function), tuple(plain), owner
