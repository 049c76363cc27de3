"""Device worker: runs lowered TPUEstimator steps on JAX devices, in another process.

`client.Devices` starts this file as a script, with any interpreter that has jax (0.4.30 or newer)
and numpy; it imports nothing else. Arguments: descriptors of a socket and of shared memory,
settings as JSON. Messages are pickled tuples; arrays travel in the shared memory at the offsets of
`Layout`, which both sides compute.

JAX does the work: devices, compilation, collectives, several hosts. A step runs as one replica per
device, in JAX's executable rather than `jax.jit`, since its all-reduces are between replicas.

With several hosts each has a worker. They decide together through the key-value store of
`jax.distributed`, and a worker whose host ends tells the others, whose collectives would hang.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
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
import time
import traceback
import urllib.request
from typing import NamedTuple

import numpy as np

SLOTS = 3  # batches in shared memory: one runs, one is on its way, the host writes one
_ALIGNMENT = 64  # an array at such an address is used by JAX's CPU devices without a copy
_FOREVER_MS = 2**40
_GRACE_SECONDS = 1.0
_LEAVE_SECONDS = 5.0
_ENDED = "ended"  # key of why the first host has ended
_INFORMED = "informed"  # folder of keys of the hosts that know it
_ending = threading.Lock()  # one thread ends the process
_HOSTS_OF_SLICE = "computeMetadata/v1/instance/attributes/worker-network-endpoints"

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

    Each slot holds the infeed of one step as `[tensor][local device]`, and then its outfeed as
    `[tensor][device]`: with several hosts, host 0 gets that of all devices, others none. After the
    slots: `arguments` as `[tensor][local device]`, `state` as `[tensor][0]`. Every array of the
    state has its own place, since arrays on CPU devices may alias it.
    """

    def __init__(self, infeed, outfeed, arguments, state, num_local, num_outfeed):
        """Computes the offsets; the first four are lists of `Tensor`."""
        self._tensors = (infeed, outfeed, arguments, state)
        self.nbytes = 0
        self._slots = [
            (self._place(infeed, num_local), self._place(outfeed, num_outfeed))
            for _ in range(SLOTS)
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
        if not _tpu_files():  # libtpu would ask the metadata server for minutes
            os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
        import jax

        version, installed = jax.__version_info__[:3], f"{sys.executable} has jax {jax.__version__}"
        if version < (0, 4, 30):
            raise RuntimeError(f"{installed}. Install jax 0.4.30 or newer there")
        from jax._src.lib import xla_client

        jax.config.update("jax_enable_x64", True)
        self._platform = settings["platform"] or os.environ.get("JAX_PLATFORMS", "")
        is_cpu = self._platform == "cpu"
        if is_cpu and version >= (0, 8):
            # XLA would end the process when a device is 40 s behind the others, as on few cores.
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = (
                f"{flags} --xla_cpu_collective_call_terminate_timeout_seconds=1000000"
            )
        if settings["coordinator"] or (
            settings["num_processes"] is None and _is_on_slice(self._platform)
        ):
            if is_cpu and version < (0, 4, 34):
                raise RuntimeError(f"{installed}. CPU devices of several processes need jax 0.4.34")
            if is_cpu:
                jax.config.update("jax_cpu_collectives_implementation", "gloo")
            names = ("coordinator", "num_processes", "process_id")
            jax.distributed.initialize(*(settings[name] for name in names))
        self.jax, self._client = jax, xla_client
        self.devices = self._find_devices(settings["platform"], settings["num_devices"])
        self.local = [d for d in self.devices if d.process_index == jax.process_index()]
        self.num_hosts = jax.process_count()
        self.num_outfeed = 0 if jax.process_index() else len(self.devices)
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
        self._copy_to_all = jax.jit(lambda arrays: arrays, out_shardings=self._scalar_sharding)

    def _find_devices(self, platform, num_devices):
        try:
            found = self.jax.devices(platform or None)
        except RuntimeError as error:
            wanted = self._platform or "any"
            raise RuntimeError(
                f"jax {self.jax.__version__} of {sys.executable} finds no devices (platform: "
                f"{wanted}): {error}"
            ) from None
        if self.jax.process_count() > 1 and _store() is None:
            raise RuntimeError(
                f"the devices are on {self.jax.process_count()} hosts, which have not been found: "
                "give the address of the coordinator, the number of hosts and the id of this one"
            )
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
        make, committed, unchecked = self._client.array_result_handler, True, True
        try:
            return make(*self._global(tensor), committed, unchecked)
        except TypeError:  # newer versions of JAX never check
            return make(*self._global(tensor), committed)

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
        return [
            y if x.shape else self._join((), x.sharding, [z.reshape(()) for z in shards(y)])
            for x, y in zip(arrays, self._take_all_first(self._vectors(arrays)))
        ]

    def gather(self, arrays):
        """Returns the arrays of all devices on each host, as `[device, ...]`."""
        return self._copy_to_all(self._vectors(arrays))

    def _vectors(self, arrays):
        """Returns the arrays with `[devices]` instead of a scalar."""
        size = (len(self.devices),)
        return [
            x if x.shape else self._join(size, self._sharding, [y.reshape(1) for y in shards(x)])
            for x in arrays
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


def _is_on_slice(platform):
    """Whether this is one of several hosts of a TPU slice, as GKE or a Cloud TPU VM says."""
    if platform not in ("", "tpu"):
        return False
    if "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
        return True
    if not _tpu_files():
        return False
    url = f"http://metadata.google.internal/{_HOSTS_OF_SLICE}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return b"," in answer.read()
    except OSError:
        return False


def _tpu_files():
    """Returns the device files of the TPU of this machine."""
    return glob.glob("/dev/accel[0-9]*") + glob.glob("/dev/vfio/[0-9]*")


def _store():
    """Returns the key-value store of `jax.distributed`; None before it is initialized."""
    distributed = sys.modules.get("jax._src.distributed")
    return distributed and distributed.global_state.client


def _exit(status, how="", report=lambda: None):
    """Ends the process, with several hosts so that all learn why.

    Host 0 ends last: its process has the store, and JAX ends the workers that lose it.

    Args:
      status: the exit status.
      how: how this host ends, for the others, unless another has ended first.
      report: sends an error to the program of this host, which may then end the process.
    """
    with _ending:
        store = _store()
        if store is None:
            report()
            os._exit(status)
        state = sys.modules["jax._src.distributed"].global_state
        if how:
            text = f"Host {state.process_id} {' '.join(how.split())}"
            _try(lambda: store.key_value_set(_ENDED, text))
        if state.process_id:
            report()
            _try(lambda: store.key_value_set(f"{_INFORMED}/{state.process_id}", ""))
        else:
            others = [f"{_INFORMED}/{host}" for host in range(1, state.num_processes)]
            _try(lambda: [store.blocking_key_value_get(key, _FOREVER_MS) for key in others])
            report()
        os._exit(status)


def _try(use_store):
    """Calls a function of the store of another host, which may be gone or never answer."""

    def call():
        with contextlib.suppress(Exception):
            use_store()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(_LEAVE_SECONDS)


class Hosts:
    """Decisions of the workers of all hosts.

    Attributes:
      id: number of this host.
      ended: why a host has ended; "" before.
      is_needed: True if this host needs the others; then `report` is called if one ends.
    """

    def __init__(self, host_id, number, report):
        """Watches the other hosts; `report` is a function of why one has ended."""
        self.id, self.ended, self.is_needed = host_id, "", False
        self._number, self._report, self._round = number, report, 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        try:
            ended = _store().blocking_key_value_get(_ENDED, _FOREVER_MS)
        except Exception:
            ended = "Host 0 has ended, or cannot be reached"
        self.ended = ended
        time.sleep(_GRACE_SECONDS)  # a last decision may be on its way
        if self.is_needed:
            self._report(ended)
        else:
            _try(lambda: _store().key_value_set(f"{_INFORMED}/{self.id}", ""))

    def need(self):
        """From now on the other hosts are needed."""
        self.is_needed = True
        if self.ended:
            self._report(self.ended)

    def agree(self, value, decide):
        """Returns `decide(values of all hosts)`, called on host 0; values are those of JSON.

        All hosts must call it in the same order.
        """
        store, key = _store(), f"decisions/{self._round}"
        self._round += 1
        if self.id:
            store.key_value_set(f"{key}/{self.id}", json.dumps(value))
            return json.loads(store.blocking_key_value_get(f"{key}/decided", _FOREVER_MS))
        others = [
            json.loads(store.blocking_key_value_get(f"{key}/{host}", _FOREVER_MS))
            for host in range(1, self._number)
        ]
        store.key_value_delete(f"decisions/{self._round - 2}")  # all have read it
        decided = json.dumps(decide([value, *others]))
        store.key_value_set(f"{key}/decided", decided)
        return json.loads(decided)


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
        self.layout = Layout(*tensors, len(jax.local), jax.num_outfeed)
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
        self._hosts = None
        if self._jax.num_hosts > 1:
            host_id = self._jax.jax.process_index()
            self._hosts = Hosts(host_id, self._jax.num_hosts, self.end)
        threading.Thread(target=self._complete, daemon=True).start()

    def describe(self):
        """Returns the attributes of `client.Devices`."""
        jax, device = self._jax.jax, self._jax.local[0]
        return {
            "kind": device.device_kind,
            "platform": device.platform,
            "num_local": len(self._jax.local),
            "num_global": len(self._jax.devices),
            "num_outfeed": self._jax.num_outfeed,
            "process_id": jax.process_index(),
            "num_processes": self._jax.num_hosts,
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

    def begin(self, index, per_device, given, step):
        """Uploads arguments and the given state; the other state stays.

        With several hosts all must begin at the same step; host 0 says which state is given.
        """
        self._running.join()
        program, self._arguments = self._programs[index], None
        if self._hosts:
            self._hosts.need()
            error, given = self._hosts.agree([step, program.tensors, given], _decide_begin)
            if error:
                self.end(error)
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
        changed = [
            i
            for i, is_given in enumerate(given)
            if (is_given if self._hosts else not (is_given or self._jax.is_equal(self._state[i])))
        ]
        self._broadcast(changed)
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
        outputs = [results[i] for i in program.outfeed]
        if self._hosts and outputs:
            if self._one_at_a_time:
                token.block_until_ready()
            outputs = self._jax.gather(outputs)
        self._running.put((token, outputs, outfeed))

    def _broadcast(self, which):
        if which:
            arrays = self._jax.broadcast([self._state[i] for i in which])
            for i, array in zip(which, arrays):
                self._state[i] = array

    def finish(self, which):
        """Waits for all steps, and writes values of the state of the first device."""
        self._running.join()
        if self._hosts:
            self._broadcast(which)
            self._jax.jax.block_until_ready(self._state)
            self._hosts.is_needed = False
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
                self._jax.jax.block_until_ready(results)
                for result, views in zip(results, places):
                    # A gathered result has the values of all devices one after another.
                    values = shards(result)
                    if self._hosts and views:
                        values = np.asarray(values[0]).reshape(len(views), *views[0].shape)
                    for view, value in zip(views, values):
                        np.copyto(view, np.asarray(value))
                self.send("done")
            except Exception as error:
                self.fail(error)
            self._running.task_done()

    def agree_to_stop(self, wanted):
        """Returns True if a host wants to stop."""
        self._hosts.need()
        stops = self._hosts.agree(wanted, any)
        self._hosts.is_needed = False
        return stops

    def close(self, reason):
        """Ends the process; tells the other hosts why."""
        if self._hosts:
            # Not the usual exit: JAX would wait for all hosts.
            _exit(0, f"has failed ({reason})" if reason else "has ended its program")

    def fail(self, error):
        """Reports an error after which no step can run, and ends the process."""
        traceback.print_exc()
        if self._hosts:
            time.sleep(2 * _GRACE_SECONDS)  # another host may say why
            if self._hosts.ended:
                self.end(self._hosts.ended)
        how = f"has failed ({str(error).strip()[:300]})"
        _exit(1, how, lambda: self.send("failed", str(error)))

    def end(self, text):
        """Reports that the other hosts do not go on, and ends the process."""
        _exit(1, report=lambda: self.send("ended", text))

    def serve(self, inbox):
        """Answers messages until one says "close"."""
        while True:
            name, *values = inbox.get()
            if name == "close":
                return self.close(*values)
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


def _decide_begin(hosts):
    """Returns (error, the state that is given) for the `[step, tensors, given]` of all hosts."""
    steps, tensors, given = zip(*hosts)
    error = ""
    if len(set(steps)) > 1:
        found = ", ".join(f"host {host}: {step}" for host, step in enumerate(steps))
        error = (
            f"The hosts are at different steps ({found}). Give all the same model_dir, in a "
            "storage that all read, and end what is left of an earlier run"
        )
    elif any(json.dumps(one) != json.dumps(tensors[0]) for one in tensors):
        error = "The hosts run different programs. Give all the same program and the same flags"
    return error, given[0]


def _receive(connection, inbox):
    """Reads messages, and ends the process when the host has ended, whatever else it does."""
    waited = [connection]
    with contextlib.suppress(AttributeError, OSError):
        waited.append(os.pidfd_open(os.getppid()))  # a child of the host may keep the socket open
    with contextlib.suppress(EOFError, OSError):
        while multiprocessing.connection.wait(waited) == [connection]:
            inbox.put(connection.recv())
    _exit(0, "has ended without a message, as by SIGKILL")


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
