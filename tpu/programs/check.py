"""`python -m tpu check`: checks every call that a program makes on a TPUEstimator."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import signal
import sys
import tempfile

from tensorflow_estimator.python.estimator.tpu import util as estimator_util

from tpu.check import Report, check_program, compiler, explanations, format_text, hooks, to_json
from tpu.check.spec_errors import model_fn_of
from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.findings import ERROR, NOTE, WARNING, Finding
from tpu.programs import calls, failures, identity, placeholders, processes, streams
from tpu.programs.placeholders import Placeholders
from tpu.programs.program import Program, log

_MODES = {"train": "train", "evaluate": "eval", "predict": "predict", "export": "export"}
_LEVELS = (ERROR, WARNING, NOTE)


def run(
    program: Program,
    tpu_topology: Topology,
    steps: int,
    effort: str,
    report_path,
    verbose: bool = False,
) -> int:
    """Runs a program; checks its Estimator calls, and prints a report with a column for each.

    Args:
      program: the program.
      tpu_topology: the slice to check for.
      steps: steps of each call to execute on emulated cores; with 0, the program gets placeholder
        results: no checkpoint, metrics of 0, one batch of predictions of 0.
      effort: of the TPU compiler, "quick", "full" or "off".
      report_path: path of a JSON file to write, or None.
      verbose: True for the whole stack of an error of the program, frames of libraries included.

    Returns:
      0 if all was checked and nothing has errors; 1 with errors; 2 if a call, or what follows the
      end of the program, was not checked at all; 128 + signal after Ctrl-C or another signal, with
      the report of the calls before.
    """
    check = _CallCheck(tpu_topology, steps, effort, report_path)
    with check.in_place_of_calls(), processes.Signals(check) as signals:
        try:
            program.run(check.end_of_process)
        except SystemExit as exit_request:
            if exit_request.code not in (None, 0):
                check.stopped = explanations.describe(exit_request)
        except placeholders.WaitingError as waiting:
            check.stopped = str(waiting)
        except processes.SignaledError:
            pass
        except KeyboardInterrupt:  # also raised by the program
            signals.received = signals.received or signal.SIGINT
            check.interrupted = check.interrupted or "Ctrl-C"
        except BaseException as raised:  # any exception of the program is reported
            if not explanations.is_of_program(raised):
                raise
            if not check.placeholders.are_used:  # else the stack of a program that is right
                streams.write(failures.format_error(raised, verbose), sys.stderr)
            check.stopped = explanations.describe_with_place(raised)
            check.is_reported = raised is check.expected
        return signals.status(check.finish())


class _CallCheck:
    """Checks calls instead of executing them.

    Attributes:
      placeholders: results for the program, if no step is executed.
      stopped: why the program stopped early; "" if it did not.
      expected: the error of an executed call whose graph the check could not build either, or None.
      is_reported: True if `expected` stopped the program.
      interrupted: the signal that ended the program; "" if none did.
    """

    def __init__(self, tpu_topology, steps, effort, report_path=None):
        self._topology, self._steps, self._effort = tpu_topology, steps, effort
        self._report_path = report_path
        self._checked = []  # (mode, Report) of each call
        self._reports = {}  # {identity of a call: (its mode, its Report)}
        self.placeholders = Placeholders(self._outputs)
        self.stopped = self.interrupted = ""
        self.expected, self.is_reported = None, False
        self._skipped: list[str] = []
        self._running = ""  # the call that is being checked
        self._owner, self._status = os.getpid(), None
        # A line for each call of a forked process.
        self._forked = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115

    @contextlib.contextmanager
    def in_place_of_calls(self):
        """A context manager in which the calls of Estimators are checked."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(emulator.answer_discovery(self._topology))
            stack.enter_context(calls.intercept(self._handle))
            if not self._steps:
                stack.enter_context(self.placeholders.without_training())
            yield

    def end_of_process(self, how: str, status: int | None) -> int:
        """Handles the end of the process by the program: see `Program.run`."""
        if status != 0 or self._running:
            self.stopped = how
        return self.finish()

    def finish(self) -> int:
        """Prints one report of all calls, writes the report file; returns the exit status."""
        if self._status is None:
            self._status = 2  # a call from another thread or a signal must not report again
            report = self._report()
            if report:
                color = streams.is_terminal()
                streams.report(f"\n{format_text(report, color=color)}")
                if self._report_path:
                    streams.write_file(self._report_path, to_json(report))
                self._status = report.status
        return self._status

    def _report(self):
        """Returns the report of all calls; None, after a line, if no call could be checked."""
        findings, modes, unchecked = [], {}, {}
        not_checked = [*self._skipped]
        for mode, report in self._checked:
            calls_of_mode = sum(name.split()[0] == mode for name in (*modes, *unchecked))
            name = f"{mode} {calls_of_mode + 1}" if calls_of_mode else mode
            findings += [
                dataclasses.replace(found, mode=name) if found.mode == mode else found
                for found in report.findings
            ]
            not_checked += [
                f"{name}{line.removeprefix(mode)}" if line.startswith(f"{mode}, ") else line
                for line in report.not_checked
            ]
            if mode in report.modes:
                modes[name] = report.modes[mode]
            if mode in report.unchecked:
                unchecked[name] = report.unchecked[mode]
        unchecked.update(self._calls_of_forked_processes())
        if self.interrupted:
            unchecked["later calls"] = self.interrupted
        elif self.stopped and self._running:
            message = f"the program ended within {self._running}: {self.stopped}"
            findings.append(Finding(ERROR, "program", message))
        elif self.stopped and self.placeholders.are_used:
            unchecked["later calls"] = (
                f"the program, which ran with placeholder results, stopped: {self.stopped}. "
                "--steps=N executes its calls"
            )
        elif self.stopped and self.is_reported:
            unchecked["later calls"] = f"the program stopped: {self.stopped}"
        elif self.stopped:
            findings.append(Finding(ERROR, "program", f"the program stopped: {self.stopped}"))
        if not self._checked and (self.interrupted or not self._running):
            lines = [f"not checked: {line}" for line in dict.fromkeys(not_checked)]
            lines += [f"{name}: not checked: {reason}" for name, reason in unchecked.items()]
            lines.append(
                self.interrupted
                or self.stopped
                or (
                    "no call runs on a TPU"
                    if self._skipped
                    else "the program called no TPUEstimator"
                )
            )
            streams.report("\n".join(lines))
            return None
        return Report(
            self._topology,
            tuple(sorted(findings, key=lambda f: _LEVELS.index(f.level))),
            modes,
            tuple(dict.fromkeys(not_checked)),
            unchecked=unchecked,
        )

    def _calls_of_forked_processes(self):
        size = os.fstat(self._forked.fileno()).st_size
        lines = os.pread(self._forked.fileno(), size, 0).decode().splitlines()
        return dict.fromkeys(lines, "it runs in a forked process")

    def _handle(self, call):
        self.placeholders.call_is_made()
        mode, name = _MODES[call.name], call.name
        if os.getpid() != self._owner:
            os.write(self._forked.fileno(), f"{name} at {call.where}\n".encode())
            return self.placeholders.result(call)
        report = None
        if call.on_tpu:
            report = self._check(call, mode, name)
        else:
            self._skipped.append(
                f"{name} at {call.where}: it runs without a TPU: {call.without_tpu}"
            )
        if self._steps:
            try:
                return self._execute(call)
            except Exception as error:
                found = report.findings if report else ()
                # A call without a number of steps runs here all the same.
                if {one.message for one in found if one.code == "graph"} - {_missing_steps(call)}:
                    self.expected = error
                raise
        self.placeholders.are_used = True
        return self.placeholders.result(call)

    def _check(self, call, mode, name):
        """Returns the report of a call, which is checked if none before was the same."""
        key = _identity(call)
        if key in self._reports:
            return self._reports[key][1]
        log(f"checking {name} at {call.where}")
        self._running = f"{name} at {call.where}"
        try:
            report = self._report_of(call, mode)
        finally:
            self._running = ""
        self._checked.append((mode, report))
        # Under both states of a program that counts its calls, for example.
        self._reports[key] = self._reports[_identity(call)] = mode, report
        return report

    def _report_of(self, call, mode):
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
            hooks={mode: call.arguments.get("hooks")},
        )
        fault = _fault_of_steps(call)
        if not fault:
            return report
        found = Finding(ERROR, "graph", fault, call.where, mode)
        return dataclasses.replace(report, findings=(*report.findings, found))

    def _execute(self, call):
        with emulator.emulate(self._topology):
            if call.on_tpu and _invalid_steps(call):
                return call.execute()  # raises the error of TPUEstimator
            if call.method == "train":
                return call.execute(steps=None, max_steps=self._steps_to_run(call))
            if call.method == "evaluate":
                given = call.arguments.get("steps")
                return call.execute(steps=self._steps if given is None else min(self._steps, given))
            if call.method == "predict":  # the generator needs the emulator to its end
                size = 1 if call.yields_batches else call.predict_batch_size
                found = list(itertools.islice(call.execute(), self._steps * size))
                return (one for one in found)  # programs call next() and close()
            return call.execute()

    def _steps_to_run(self, call):
        """Returns the value of max_steps that trains the first steps of the call only."""
        done = calls.global_step(call.estimator)
        last = done + self._steps
        if call.arguments.get("steps") is not None:
            last = min(last, done + call.arguments["steps"])
        if call.arguments.get("max_steps") is not None:
            last = min(last, max(done, call.arguments["max_steps"]))
        return last

    def _outputs(self, call):
        mode, report = self._reports.get(_identity(call), (None, None))
        return report.modes[mode].outputs if report and mode in report.modes else None


def _fault_of_steps(call):
    """Returns what is wrong with the number of steps of a call; "" if nothing is."""
    return _missing_steps(call) or _invalid_steps(call)


def _step_arguments(call):
    """Returns `{name: value}` of the arguments that set the number of steps of a call."""
    names = {"train": ("steps", "max_steps"), "evaluate": ("steps",)}.get(call.method, ())
    return {name: call.arguments.get(name) for name in names}


def _missing_steps(call):
    """Returns what is wrong with a call without a number of steps; "" if it has one."""
    given = _step_arguments(call)
    if not given or any(value is not None for value in given.values()):
        return ""
    return (
        f"{call.method} has no {' or '.join(given)}, and TPUEstimator raises ValueError: a TPU "
        "does not run until the input ends. Give the number of batches"
    )


def _invalid_steps(call):
    """Returns what is wrong with the number of steps of a call; "" if it is valid or missing."""
    given = {name: value for name, value in _step_arguments(call).items() if value is not None}
    has = f"{call.method} has {' and '.join(f'{n}={value!r}' for n, value in given.items())}"
    if len(given) > 1:
        return f"{has}, and TPUEstimator raises ValueError. Remove one of them"
    for name, value in given.items():
        try:
            estimator_util.check_positive_integer(value, name)
        except (TypeError, ValueError) as error:
            return f"{has}, and TPUEstimator raises {type(error).__name__}. Give a positive integer"
    return ""


def _identity(call):
    """Returns what tells calls apart: a loop may make the same call many times."""
    estimator = call.estimator
    input_fn = call.arguments.get("input_fn", call.arguments.get("input_receiver_fn_map"))
    context = getattr(estimator, "_ctx", None)
    sizes = [getattr(context, f"_{mode}_batch_size", None) for mode in _MODES.values()]
    # Not estimator.config and estimator.params, which are copies.
    config = getattr(estimator._config, "tpu_config", None)
    functions = _model_fn(estimator), input_fn
    options = estimator.model_dir, estimator._params, sizes, tuple(config or ())
    # A loop may make new hooks in each round: only the values that the check reads tell them apart.
    values = [
        (type(hook), [*hooks.kept_values(hook)]) for hook in call.arguments.get("hooks") or ()
    ]
    return identity.snapshot(call.method, functions, options, values, _fault_of_steps(call))


def _model_fn(estimator):
    """Returns the model_fn of the program, which TPUEstimator wraps."""
    is_wrapped = isinstance(estimator, calls.TPUEstimator)
    return model_fn_of(estimator) if is_wrapped else estimator._model_fn
