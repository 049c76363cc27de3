"""Host side of the device worker: JAX devices in another process, without TensorFlow.

with Devices("/opt/jax/bin/python", "tpu") as devices:
    devices.begin(devices.load(program), arguments, state)
    for batch in batches:
        devices.submit(batch)
        outfeed = devices.collect()
    state = devices.finish(range(program.num_state))

The devices have another interpreter, so that the version of JAX is free of TensorFlow's pins, and a
crash of a device leaves the host alive. See `worker` for the other side.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import mmap
import multiprocessing.connection
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

import numpy as np

from tpu.connect.request import TPUError
from tpu.pjrt import worker

_END_SECONDS = 10  # for the worker to end by itself
_START_ALL = "See the output of the other hosts, then start all again"
_INSTALL = (
    "Install it there (pip install 'jax[tpu]' on a TPU VM, 'jax[cuda13]' for a GPU, jax for a "
    "CPU), or name another interpreter"
)


class PJRTError(TPUError):
    """A fault of the devices or of the worker, in one line: what is wrong, what to do."""


class Program(NamedTuple):
    """A lowered step of one core.

    Attributes:
      hlo: serialized HloModuleProto. Its parameters are the infeed, the arguments and the state, in
        this order; `input_output_alias` says which of the state is donated.
      num_infeed: number of parameters that are new for each step, one array per local device.
      num_arguments: number of parameters that `Devices.begin` sets for a loop.
      num_state: number of parameters that stay on the devices: variables, values of the loop.
      outfeed: indices of the results that each step returns to the host, per local device.
      state_results: for each parameter of the state the index of the result that is its next value,
        or None if the step does not change it.
    """

    hlo: bytes
    num_infeed: int
    num_arguments: int
    num_state: int
    outfeed: list[int]
    state_results: list[int | None]


class Devices:
    """The devices of a worker process. `submit` and `collect` may run in different threads.

    Attributes:
      kind: name of the devices: "TPU v5 lite", "cpu", ...
      platform: "tpu", "gpu" or "cpu".
      num_local, num_global: number of devices of this process and of all.
      num_outfeed: number of devices whose outfeed `collect` returns: with several processes that of
        all devices in process 0, none in others.
      process_id, num_processes: of `jax.distributed`.
      jax_version: "0.4.30", ...
      memory_bytes: memory of a device; None if unknown.
      pid: of the worker.
    """

    def __init__(
        self,
        python: str = sys.executable,
        platform: str = "",
        num_devices: int | None = None,
        coordinator: str | None = None,
        process_id: int | None = None,
        num_processes: int | None = None,
        log: str | None = None,
        timeout_s: float = 600,
        compile_timeout_s: float = 3600,
    ):
        """Starts the worker and waits for its devices.

        Args:
          python: an interpreter with jax and numpy.
          platform: "cpu", "gpu" or "tpu"; "" is what JAX chooses.
          num_devices: number of devices of this process; None for all. CPU devices share the cores.
          coordinator: host:port of process 0 for `jax.distributed`, if there are several processes.
          process_id: the number of this process; may be None where JAX finds it, as on a TPU.
          num_processes: likewise.
          log: file for the output of the worker; None for a temporary file, which is removed unless
            the worker fails.
          timeout_s: seconds to wait for an answer, and for a step.
          compile_timeout_s: seconds to wait for `load`.

        Raises:
          PJRTError: there is no such interpreter, no JAX in it, or no such devices.
        """
        self._python, self._timeout_s, self._long_timeout_s = python, timeout_s, compile_timeout_s
        self._owner, self._error, self._closed = os.getpid(), None, False
        self.kind, self.num_processes = "unknown", num_processes or 1
        # Guards all counters below, and is notified whenever one changes.
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._answers, self._is_asked, self._progress = [], False, time.monotonic()
        self._submitted = self._done = self._collected = 0
        self._ids, self._programs, self._current = {}, {}, None
        self._memory = _anonymous_file()
        os.ftruncate(self._memory, mmap.PAGESIZE)
        append = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._log = os.open(log, append, 0o644) if log else _anonymous_file()
        self._log_path = log
        settings = {
            "platform": platform,
            "num_devices": num_devices,
            "coordinator": coordinator,
            "process_id": process_id,
            "num_processes": num_processes,
        }
        here, there = socket.socketpair()
        with there:
            self._process = self._start(
                there, settings, _environment(python, platform, num_devices)
            )
        self.pid = self._process.pid
        self._connection = multiprocessing.connection.Connection(here.detach())
        threading.Thread(target=self._receive, daemon=True).start()
        atexit.register(self.close)
        self._is_asked = True
        try:
            vars(self).update(self._answer("The start of the device worker"))
        except PJRTError:
            self.close()
            raise

    def _start(self, there, settings, environment):
        descriptors = [there.fileno(), self._memory]
        command = [self._python, worker.__file__, *map(str, descriptors), json.dumps(settings)]
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=environment,
                pass_fds=descriptors,
                start_new_session=True,  # Ctrl-C is for the host, which may save a checkpoint
            )
        except OSError as error:
            self._release()
            raise PJRTError(
                f"The interpreter for JAX, {self._python}, cannot be started: {error.strerror}. "
                f"Name one that has jax"
            ) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def load(self, program: Program) -> int:
        """Compiles a program, once; returns its id.

        Raises:
          PJRTError: the compiler refuses it, or it needs more memory than a device has. Other
            programs can still be loaded.
        """
        self._wait_for_steps()
        key = (hashlib.sha256(program.hlo).digest(), str(program[1:]))
        if key not in self._ids:
            program_id, tensors, peak = self._ask(
                "The compilation of the step", "load", *program, timeout_s=self._long_timeout_s
            )
            groups = [[worker.Tensor(*tensor) for tensor in group] for group in tensors]
            layout = worker.Layout(*groups, self.num_local, self.num_outfeed)
            self._grow(layout.nbytes)
            views = layout.view(mmap.mmap(self._memory, 0))
            self._programs[program_id] = _Loaded(program, peak, *views)
            self._ids[key] = program_id
        return self._ids[key]

    def _grow(self, nbytes):
        if nbytes <= os.fstat(self._memory).st_size:
            return
        try:  # writing to pages that cannot be had would end this process
            os.posix_fallocate(self._memory, 0, nbytes)
        except OSError as error:
            raise PJRTError(
                f"{nbytes / 1e6:.0f} MB of shared memory for batches and variables cannot be "
                f"allocated: {error.strerror}. Free memory, or use a smaller batch"
            ) from None

    def begin(
        self,
        program_id: int,
        arguments: list[np.ndarray | list[np.ndarray]],
        state: list[np.ndarray | None],
        step: int = 0,
    ) -> None:
        """Starts a loop: uploads arguments and state. Frees the state of another program.

        Args:
          program_id: of `load`.
          arguments: for each one an array for all local devices, or a list with one per device.
          state: an array for all devices, or None to keep the value that the last loop of the
            program has left on the first device, for all devices. With several processes, the
            state of process 0 is used by all, but the arguments are those of each process.
          step: number of the first step, the same for all processes.

        Raises:
          PJRTError: there is no value to keep, the worker has failed, or the processes differ.
        """
        self._wait_for_steps()
        loaded = self._programs[program_id]
        if self._current is not loaded and any(value is None for value in state):
            raise PJRTError("The devices have no state of this program to keep: give all of it")
        per_device = [isinstance(value, (list, tuple)) for value in arguments]
        for views, value, separate in _pairs(loaded.arguments, arguments, per_device):
            _copy(views if separate else views[:1], value if separate else [value])
        for views, value in _pairs(loaded.state, state):
            if value is not None:
                _copy(views, [value])
        self._current = loaded
        with self._changed:
            self._submitted = self._done = self._collected = 0
        given = [value is not None for value in state]
        message = "begin", program_id, per_device, given, step
        # Another process may still save a checkpoint.
        timeout_s = self._long_timeout_s if self.num_processes > 1 else None
        self._ask("The upload of the variables", *message, timeout_s=timeout_s)

    def submit(self, batch: list[list[np.ndarray]]) -> None:
        """Starts a step with `batch[parameter][local device]`; blocks if two batches are ahead."""
        has_outfeed = bool(self._current.program.outfeed and self.num_outfeed)

        def has_slot():
            free = self._collected if has_outfeed else self._done
            return self._submitted - free < worker.SLOTS

        self._wait(has_slot, "A step")
        slot = self._submitted % worker.SLOTS
        for views, arrays in _pairs(self._current.slots[slot][0], batch):
            _copy(views, arrays)
        with self._changed:
            self._note_progress()
            self._submitted += 1
        self._send("step", slot)

    def collect(self) -> list[list[np.ndarray]]:
        """Returns the outfeed of the next step as `[result][device]`; blocks until then."""
        self._wait(lambda: self._done > self._collected, "A step")
        views = self._current.slots[self._collected % worker.SLOTS][1]
        arrays = [[_owned(view) for view in copies] for copies in views]
        with self._changed:
            self._collected += 1
            self._changed.notify_all()
        return arrays

    def finish(self, which: list[int]) -> list[np.ndarray]:
        """Waits for all steps; returns values of the state, by index, of the first device."""
        self._wait_for_steps()
        self._ask("The download of the variables", "finish", list(which))
        return [_owned(self._current.state[i][0]) for i in which]

    def agree_to_stop(self, wanted: bool) -> bool:
        """Returns True if one of several processes wants to stop; all must call it after a loop."""
        what, timeout_s = "The agreement with the other hosts", self._long_timeout_s
        return self._ask(what, "agree_to_stop", wanted, timeout_s=timeout_s)

    def close(self, reason: str = "") -> None:
        """Ends the worker; `reason` is for other processes that still need this one."""
        atexit.unregister(self.close)
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        try:
            self._send("close", reason)
            self._process.wait(_END_SECONDS)
        except (PJRTError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._fail("The device worker is closed")
        self._release()

    def _release(self):
        os.close(self._memory)
        os.close(self._log)

    def _read_log(self):
        # Not `read`: the worker writes at the same position.
        return os.pread(self._log, os.fstat(self._log).st_size, 0).decode(errors="replace")

    def _save_log(self):
        """Returns the path of a file with the output of the worker."""
        if self._log_path is None:
            descriptor, self._log_path = tempfile.mkstemp(".log", "pjrt_worker_", text=True)
            with open(descriptor, "w") as file:
                file.write(self._read_log())
        return self._log_path

    def _send(self, *message):
        with self._sending, contextlib.suppress(OSError):  # `_receive` reports a worker's end
            self._connection.send(message)
        if self._error:
            raise PJRTError(self._error)

    def _ask(self, what, *message, timeout_s=None):
        with self._changed:
            self._is_asked = True
            self._note_progress()
        self._send(*message)
        return self._answer(what, timeout_s)

    def _answer(self, what, timeout_s=None):
        self._wait(lambda: self._answers, what, timeout_s)
        kind, value = self._answers.pop()
        if kind == "error":
            raise PJRTError(self._explain(what, value))
        return value

    def _wait_for_steps(self):
        self._wait(lambda: self._done == self._submitted, "A step")

    def _note_progress(self):
        self._progress = time.monotonic()
        self._changed.notify_all()

    def _wait(self, is_ready, what, timeout_s=None):
        """Waits; raises PJRTError if the worker has failed, or owes an answer for too long."""
        timeout_s = timeout_s or self._timeout_s
        with self._changed:
            while not is_ready():
                if self._error:
                    raise PJRTError(self._error)
                left = None
                if self._is_asked or self._done < self._submitted:
                    left = self._progress + timeout_s - time.monotonic()
                    if left <= 0:
                        break
                self._changed.wait(left)
            else:
                return
        self._fail(
            f"{what} has not ended after {timeout_s:.0f} s: the device worker hangs, or another "
            f"process of the training has ended. The worker was stopped; run again"
        )
        raise PJRTError(self._error)

    def _receive(self):
        """Reads messages until the worker ends."""
        while True:
            try:
                kind, *values = self._connection.recv()
            except (EOFError, OSError):
                break
            with self._changed:
                if kind == "done":
                    self._done += 1
                elif kind == "ended":
                    self._error = f"{values[0]}. {_START_ALL}"
                elif kind == "failed":
                    what = "The step" if self._current else "The start of the device worker"
                    peak_bytes = self._current and self._current.peak_bytes
                    self._error = self._explain(what, values[0], peak_bytes)
                else:
                    self._answers.append((kind, *values))
                    self._is_asked = False
                self._note_progress()
        if not self._closed:
            self._fail(self._error or self._explain_end())

    def _fail(self, message):
        with self._changed:
            self._error = self._error or message
            self._changed.notify_all()
        if self._process.poll() is None:
            self._process.kill()

    def _explain_end(self):
        """Returns why the worker has ended without a message."""
        try:
            status = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "The device worker has closed its connection. Run again"
        lines = [line.strip() for line in self._read_log().splitlines() if line.strip()]
        last = lines[-1] if lines else ""
        if "ImportError" in last or "ModuleNotFoundError" in last:
            return f"{self._python} has no JAX that works ({last}). {_INSTALL}"
        if self.num_processes > 1 and any("CoordinationService" in line for line in lines):
            return (
                f"Another host has ended, or cannot be reached (JAX's message is in "
                f"{self._save_log()}). {_START_ALL}"
            )
        how = f"exit status {status}"
        if status < 0:
            how = signal.Signals(-status).name
            how += ", as by the system for lack of memory" if status == -signal.SIGKILL else ""
        output = f". Its output, {self._save_log()}, ends: {last[:300]}" if last else ""
        again = _START_ALL if self.num_processes > 1 else "Run again"
        return f"The device worker has ended ({how}){output}. {again}"

    def _explain(self, what, error, peak_bytes=None):
        """Returns one line for an error of JAX."""
        lines = [line.strip() for line in error.splitlines() if line.strip()]
        first = lines[0][:400] if lines else ""
        if len(lines) > 1:
            first += f" (more in {self._save_log()})"
        if "RESOURCE_EXHAUSTED" in error or "Out of memory" in error:
            needed = f"{peak_bytes / 1e9:.2f} GB, " if peak_bytes else ""
            return (
                f"{what} needs {needed}more memory than a device ({self.kind}) has: {first}. Use a "
                f"smaller batch per device, or more devices"
            )
        if "already in use" in error or "lockfile" in error:
            return (
                f"The TPU is in use by another process: {first}. End that process, then run again"
            )
        if self.num_processes > 1:
            first += f". {_START_ALL}"
        return f"{what} failed: {first}"


class _Loaded(NamedTuple):
    """A program with its arrays in shared memory, as `worker.Layout.view` returns them."""

    program: Program
    peak_bytes: int | None
    slots: list
    arguments: list
    state: list


def _environment(python, platform, num_devices):
    environment = dict(os.environ)
    if python != sys.executable:  # modules of this interpreter are not for another
        environment.pop("PYTHONPATH", None)
        environment.pop("PYTHONHOME", None)
    if platform:
        # "gpu" means CUDA and ROCm there, of which JAX would require both.
        environment["JAX_PLATFORMS"] = "" if platform == "gpu" else platform
    if num_devices and platform in ("", "cpu"):
        flags = environment.get("XLA_FLAGS", "")
        count = f"--xla_force_host_platform_device_count={num_devices}"
        environment["XLA_FLAGS"] = f"{flags} {count}".strip()
    return environment


def _anonymous_file():
    """Returns the descriptor of a file in memory, or else of a temporary one."""
    try:
        return os.memfd_create("pjrt")
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def _pairs(*lists):
    """`zip(strict=True)`, which Python 3.9 lacks."""
    if len(set(map(len, lists))) != 1:
        raise ValueError(f"{len(lists[1])} values are given for {len(lists[0])}")
    return zip(*lists)


def _copy(views, arrays):
    for view, array in _pairs(views, arrays):
        value = np.asarray(array)
        if (value.shape, value.dtype) != (view.shape, view.dtype):
            raise ValueError(
                f"{value.dtype}{list(value.shape)} is given for {view.dtype}{list(view.shape)}"
            )
        np.copyto(view, value)


def _owned(view):
    """Returns a copy that is aligned, so that TensorFlow uses its memory."""
    memory = np.empty(view.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    array = memory[start : start + view.nbytes].view(view.dtype).reshape(view.shape)
    np.copyto(array, view)
    return array
