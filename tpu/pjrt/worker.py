"""Device worker: runs lowered TPUEstimator steps on JAX devices, in a process of its own.

`client.Devices` starts this file as a script, with any interpreter that has jax (0.4.30 or newer)
and numpy; it imports nothing else. Arguments: descriptors of a socket and of shared memory,
settings as JSON. Messages are pickled tuples; arrays travel in the shared memory at the offsets of
`Layout`, which both sides compute.

JAX does the work: devices, compilation, collectives, several hosts. A step runs as one replica per
device, in JAX's executable rather than `jax.jit`, since its all-reduces are between replicas.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import math
import mmap
import multiprocessing.connection
import os
import queue
import re
import sys
import threading
import traceback
from typing import NamedTuple

import numpy as np

SLOTS = 3  # batches in shared memory: one runs, one is on its way, the host writes one
_ALIGNMENT = 64  # an array at such an address is used by JAX's CPU devices without a copy


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Tensor(NamedTuple):
    """Shape and dtype of a parameter or result on one device."""

    shape: tuple[int, ...]
    dtype: str

    def numpy_dtype(self):
        """Returns the NumPy dtype; bfloat16 and float8 are those of ml_dtypes."""
        try:
            return np.dtype(self.dtype)
        except TypeError:
            return np.dtype(getattr(importlib.import_module("ml_dtypes"), self.dtype))

    def nbytes(self):
        """Returns the size in bytes."""
        return math.prod(self.shape) * self.numpy_dtype().itemsize


class Layout:
    """Offsets in the shared memory of the arrays of a program.

    Each slot holds the infeed of one step, and then its outfeed, as `[tensor][local device]`. After
    the slots: `arguments` as `[tensor][local device]`, `state` as `[tensor][0]`. Every array of the
    state has its own place, since arrays on CPU devices may alias it.
    """

    def __init__(self, infeed, outfeed, arguments, state, num_local):
        """Computes the offsets; the first four are lists of `Tensor`."""
        self._tensors = (infeed, outfeed, arguments, state)
        self.nbytes = 0
        self._slots = [
            (self._place(infeed, num_local), self._place(outfeed, num_local)) for _ in range(SLOTS)
        ]
        self._arguments = self._place(arguments, num_local)
        self._state = self._place(state, 1)

    def _place(self, tensors, copies):
        offsets = []
        for tensor in tensors:
            step = -(-tensor.nbytes() // _ALIGNMENT) * _ALIGNMENT
            offsets.append([self.nbytes + i * step for i in range(copies)])
            self.nbytes += copies * step
        return offsets

    def view(self, memory):
        """Returns (slots, arguments, state): the NumPy arrays in `memory`, an `mmap.mmap`."""

        def arrays(tensors, offsets):
            return [
                [np.ndarray(tensor.shape, tensor.numpy_dtype(), memory, start) for start in starts]
                for tensor, starts in zip(tensors, offsets)
            ]

        infeed, outfeed, arguments, state = self._tensors
        slots = [(arrays(infeed, i), arrays(outfeed, o)) for i, o in self._slots]
        return slots, arrays(arguments, self._arguments), arrays(state, self._state)


class _Jax:
    """JAX, its devices, and the functions of it that differ between versions."""

    def __init__(self, settings):
        """Finds the devices; raises RuntimeError, in one line, if there are none or too few."""
        import jax

        version, installed = jax.__version_info__[:3], f"{sys.executable} has jax {jax.__version__}"
        if version < (0, 4, 30):
            raise RuntimeError(f"{installed}. Install jax 0.4.30 or newer there")
        from jax._src.lib import xla_client

        jax.config.update("jax_enable_x64", True)
        is_cpu = os.environ.get("JAX_PLATFORMS") == "cpu"
        if is_cpu and version >= (0, 8):
            # XLA would end the process when a device is 40 s behind the others, as on few cores.
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = (
                f"{flags} --xla_cpu_collective_call_terminate_timeout_seconds=1000000"
            )
        if settings["coordinator"] or (settings["num_processes"] or 1) > 1:
            if is_cpu and version < (0, 4, 34):
                raise RuntimeError(f"{installed}. CPU devices of several processes need jax 0.4.34")
            if is_cpu:
                jax.config.update("jax_cpu_collectives_implementation", "gloo")
            names = ("coordinator", "num_processes", "process_id")
            jax.distributed.initialize(*(settings[name] for name in names))
        self.jax, self._client = jax, xla_client
        self.devices = self._find_devices(settings["num_devices"])
        self.local = [d for d in self.devices if d.process_index == jax.process_index()]
        mesh = jax.sharding.Mesh(np.array(self.devices), ("replica",))
        self._sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("replica"))
        self._scalar_sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        if hasattr(jax, "shard_map"):  # since 0.6
            shard_map = jax.shard_map
        else:
            shard_map = importlib.import_module("jax.experimental.shard_map").shard_map

        def take_first(arrays):
            return [self._take_first(x) for x in arrays]

        specs = {"in_specs": self._sharding.spec, "out_specs": self._sharding.spec}
        self._take_all_first = jax.jit(shard_map(take_first, mesh=mesh, **specs), donate_argnums=0)

    def _find_devices(self, num_devices):
        try:
            found = self.jax.devices()
        except RuntimeError as error:
            wanted = os.environ.get("JAX_PLATFORMS") or "any"
            raise RuntimeError(
                f"jax {self.jax.__version__} of {sys.executable} finds no devices (platform: "
                f"{wanted}): {error}"
            ) from None
        found = sorted(found, key=lambda device: (device.process_index, device.id))
        if num_devices is None:
            return found
        chosen = []
        for process in range(self.jax.process_count()):
            own = [device for device in found if device.process_index == process]
            if len(own) < num_devices:
                raise RuntimeError(
                    f"{num_devices} devices are required, but jax finds {len(own)} "
                    f"({own[0].device_kind if own else 'none'}). Ask for fewer devices"
                )
            chosen += own[:num_devices]
        return chosen

    def compile(self, hlo):
        """Returns (executable, parameters, results) of a serialized HloModuleProto."""
        computation = self._client.XlaComputation(hlo)
        shape = computation.program_shape()
        results = shape.result_shape()
        results = results.tuple_shapes() if results.is_tuple() else [results]
        tensors = [
            [Tensor(tuple(s.dimensions()), np.dtype(s.numpy_dtype()).name) for s in shapes]
            for shapes in (shape.parameter_shapes(), results)
        ]
        module = self._client._xla.mlir.xla_computation_to_mlir_module(computation)
        module = without_copies(module)
        options = self._client.CompileOptions()
        options.num_replicas, options.num_partitions = len(self.devices), 1
        ids = np.array([[device.id] for device in self.devices])
        options.device_assignment = self._client.DeviceAssignment.create(ids)
        client = self.devices[0].client
        if hasattr(client, "compile_and_load"):  # since 0.6
            devices = self._client.DeviceList(tuple(self.devices))
            executable = client.compile_and_load(module, devices, options)
        else:
            executable = client.compile(module, options)
        return (executable, *tensors)

    def _global(self, tensor):
        """Returns (aval, sharding) of the array that stands for the tensors of all devices.

        It is their concatenation: of a replicated array JAX copies the first device's value only. A
        scalar has nothing to concatenate.
        """
        size, *others = tensor.shape or (None,)
        shape = (size * len(self.devices), *others) if tensor.shape else ()
        sharding = self._sharding if tensor.shape else self._scalar_sharding
        return self.jax.core.ShapedArray(shape, tensor.numpy_dtype()), sharding

    def put(self, tensor, arrays):
        """Copies one array per local device to the devices; on CPU devices it may alias them."""
        aval, sharding = self._global(tensor)
        if tensor.shape:
            return self._client.batched_device_put(aval, sharding, arrays, self.local)
        return self._join((), sharding, map(self.jax.device_put, arrays, self.local))

    def handler(self, tensor):
        """Returns the function that makes a result what `put` returns for a parameter."""
        return self._client.array_result_handler(*self._global(tensor), True, True)

    def _join(self, shape, sharding, shards):
        return self.jax.make_array_from_single_device_arrays(shape, sharding, list(shards))

    def is_equal(self, array):
        """Whether all devices are known to have the same bits: compares those in this memory."""
        if len(self.devices) > 1 and self.local[0].platform != "cpu":
            return False
        first, *others = shards(array)
        nbytes, address = first.nbytes, first.block_until_ready().unsafe_buffer_pointer()
        others = [other.block_until_ready().unsafe_buffer_pointer() for other in others]
        return not any(_memcmp(address, other, nbytes) for other in others)

    def broadcast(self, arrays):
        """Returns the arrays with the value of the first device of all on each. Donates them."""
        size = (len(self.devices),)
        vectors = [
            x if x.shape else self._join(size, self._sharding, [y.reshape(1) for y in shards(x)])
            for x in arrays
        ]
        return [
            y if x.shape else self._join((), x.sharding, [z.reshape(()) for z in shards(y)])
            for x, y in zip(arrays, self._take_all_first(vectors))
        ]

    def _take_first(self, x):
        """Returns the value of the first device: a sum in which all others are 0.

        Sums bits instead of floats, since -0.0 + 0.0 is 0.0. TPUs lack the bits of float64.
        """
        jnp, lax = self.jax.numpy, self.jax.lax
        bits = x
        if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize <= 4:
            bits = lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")
        small = bits.dtype.itemsize < 4
        wide = bits.astype("uint32") if small else bits
        is_first = lax.axis_index("replica") == 0
        total = lax.psum(jnp.where(is_first, wide, jnp.zeros_like(wide)), "replica")
        narrow = total.astype(bits.dtype) if small else total
        return narrow if bits is x else lax.bitcast_convert_type(narrow, x.dtype)


def without_copies(module):
    """Returns the text of an MLIR module in which a reshape to the same shape replaces each copy.

    The converter leaves `mhlo.copy` as it is, which the plugins of TPUs and GPUs refuse: they take
    StableHLO. XLA adds the copies that it needs.
    """
    tensor = r"tensor<(?:[^<>]|<[^<>]*>)*>"
    copy = rf"= mhlo\.copy (%[\w#]+)(?: \{{.*?\}})? : ({tensor})"
    return re.sub(copy, r"= stablehlo.reshape \1 : (\2) -> \2", module)


def shards(array):
    """Returns the arrays of the local devices."""
    return [piece.data for piece in array.addressable_shards]


class _Program:
    """A compiled step, its arrays in shared memory and the order of its parameters."""

    def __init__(self, jax, hlo, num_infeed, num_arguments, num_state, outfeed, state_results):
        self.executable, parameters, results = jax.compile(hlo)
        expected = num_infeed + num_arguments + num_state
        if len(parameters) != expected or len(state_results) != num_state:
            raise ValueError(f"the program has {len(parameters)} parameters instead of {expected}")
        if set(outfeed) & set(state_results):
            raise ValueError("a result is both outfeed and state")
        self.outfeed, self.state_results = outfeed, state_results
        self.infeed = parameters[:num_infeed]
        self.arguments = parameters[num_infeed : num_infeed + num_arguments]
        self.state = parameters[num_infeed + num_arguments :]
        self.handlers = [jax.handler(tensor) for tensor in results]
        tensors = (self.infeed, [results[i] for i in outfeed], self.arguments, self.state)
        self.tensors = [[tuple(tensor) for tensor in group] for group in tensors]
        self.layout = Layout(*tensors, len(jax.local))
        self.views = None  # once the host has made the shared memory large enough

    def peak_bytes(self):
        """Returns the memory that the step needs on a device; None if the compiler gives none."""
        try:
            stats = self.executable.get_compiled_memory_stats()
        except Exception:  # of an older C API, for example
            return None
        used = stats.argument_size_in_bytes + stats.output_size_in_bytes
        return used - stats.alias_size_in_bytes + stats.temp_size_in_bytes


class Worker:
    """Answers the messages of a client; one thread dispatches steps, another completes them."""

    def __init__(self, connection, memory, settings):
        """Starts JAX. `memory` is the descriptor of the shared memory."""
        self._connection, self._memory = connection, memory
        self._lock = threading.Lock()
        self._jax = _Jax(settings)
        self._programs, self._program = [], None
        self._state = self._arguments = None
        self._running = queue.Queue()
        device = self._jax.devices[0]
        # Executions in flight wait for each other's threads in the collectives of CPU devices.
        self._one_at_a_time = device.platform == "cpu" and len(self._jax.devices) > 1
        threading.Thread(target=self._complete, daemon=True).start()

    def describe(self):
        """Returns the attributes of `client.Devices`."""
        jax, device = self._jax.jax, self._jax.local[0]
        return {
            "kind": device.device_kind,
            "platform": device.platform,
            "num_local": len(self._jax.local),
            "num_global": len(self._jax.devices),
            "process_id": jax.process_index(),
            "num_processes": jax.process_count(),
            "jax_version": jax.__version__,
            "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
        }

    def send(self, *message):
        """Sends a message; both threads do."""
        with self._lock:
            self._connection.send(message)

    def load(self, *program):
        """Compiles a program; returns its id, its tensors and the memory it needs on a device."""
        loaded = _Program(self._jax, *program)
        self._programs.append(loaded)
        return len(self._programs) - 1, loaded.tensors, loaded.peak_bytes()

    def begin(self, index, per_device, given):
        """Uploads arguments and the given state; the other state stays."""
        self._running.join()
        program, self._arguments = self._programs[index], None
        if program is not self._program:
            self._program, self._state = program, [None] * len(given)
        program.views = program.views or program.layout.view(mmap.mmap(self._memory, 0))
        _, arguments, state = program.views
        count = len(self._jax.local)
        self._arguments = [
            self._jax.put(tensor, views if separate else views[:1] * count)
            for tensor, views, separate in zip(program.arguments, arguments, per_device)
        ]
        for i, is_given in enumerate(given):
            if is_given:
                self._state[i] = None  # frees it first
                self._state[i] = self._jax.put(program.state[i], state[i] * count)
        is_distributed = self._jax.jax.process_count() > 1
        changed = [
            i
            for i, is_given in enumerate(given)
            if is_distributed or not (is_given or self._jax.is_equal(self._state[i]))
        ]
        if changed:
            arrays = self._jax.broadcast([self._state[i] for i in changed])
            for i, array in zip(changed, arrays):
                self._state[i] = array
        self._jax.jax.block_until_ready((self._arguments, self._state))

    def step(self, slot):
        """Dispatches a step; returns before it is complete."""
        program, (infeed, outfeed) = self._program, self._program.views[0][slot]
        batch = [self._jax.put(tensor, views) for tensor, views in zip(program.infeed, infeed)]
        if self._one_at_a_time:
            self._running.join()
        values = batch + self._arguments + self._state
        results = program.executable.execute_sharded(values, with_tokens=True)
        token = results.consume_token()
        results = results.consume_with_handlers(program.handlers)
        for i, result in enumerate(program.state_results):
            if result is not None:
                self._state[i] = results[result]
        self._running.put((token, [results[i] for i in program.outfeed], outfeed))

    def finish(self, which):
        """Waits for all steps, and writes values of the state of the first local device."""
        self._running.join()
        arrays = [shards(self._state[i])[0] for i in which]
        for array in arrays:
            array.copy_to_host_async()
        for i, array in zip(which, arrays):
            np.copyto(self._program.views[2][i][0], np.asarray(array))

    def _complete(self):
        while True:
            token, results, places = self._running.get()
            try:
                token.block_until_ready()
                for result, views in zip(results, places):
                    for view, value in zip(views, shards(result)):
                        np.copyto(view, np.asarray(value))
                self.send("done")
            except Exception as error:
                self.fail(error)
            self._running.task_done()

    def fail(self, error):
        """Reports an error after which no step can run, and ends the process."""
        traceback.print_exc()
        self.send("failed", str(error))
        os._exit(1)

    def serve(self, inbox):
        """Answers messages until one says "close"."""
        while True:
            name, *values = inbox.get()
            if name == "close":
                return
            try:
                answer = getattr(self, name)(*values)
            except Exception as error:
                if name != "load":
                    self.fail(error)
                traceback.print_exc()
                self.send("error", str(error))
            else:
                if name != "step":
                    self.send("answer", answer)


def _receive(connection, inbox):
    """Reads messages, and ends the process when the host has ended, whatever else it does."""
    waited = [connection]
    with contextlib.suppress(AttributeError, OSError):
        waited.append(os.pidfd_open(os.getppid()))  # a child of the host may keep the socket open
    with contextlib.suppress(EOFError, OSError):
        while multiprocessing.connection.wait(waited) == [connection]:
            inbox.put(connection.recv())
    os._exit(0)


def main():
    """Runs the worker."""
    del sys.path[0]  # this folder: no module of it must hide one of JAX
    socket, memory = map(int, sys.argv[1:3])
    connection = multiprocessing.connection.Connection(socket)
    inbox = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    try:
        worker = Worker(connection, memory, json.loads(sys.argv[3]))
    except ImportError:
        raise
    except Exception as error:
        traceback.print_exc()
        connection.send(("failed", str(error)))
        os._exit(1)
    worker.send("answer", worker.describe())
    worker.serve(inbox)


if __name__ == "__main__":
    main()
