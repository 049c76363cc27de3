"""Tests of the device worker and its client. PJRT_PYTHON names an interpreter that has jax."""

import functools
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from tests.tpu.pjrt import fake_jax
from tpu.pjrt import client, worker

ROOT = pathlib.Path(__file__).parents[3]
PYTHON = os.environ.get("PJRT_PYTHON", sys.executable)
ROWS, COLUMNS = 3, 2
_TYPES = {
    "bool": xla_data_pb2.PRED,
    "int8": xla_data_pb2.S8,
    "int32": xla_data_pb2.S32,
    "int64": xla_data_pb2.S64,
    "uint16": xla_data_pb2.U16,
    "uint64": xla_data_pb2.U64,
    "float8_e4m3fn": xla_data_pb2.F8E4M3FN,
    "bfloat16": xla_data_pb2.BF16,
    "float16": xla_data_pb2.F16,
    "float32": xla_data_pb2.F32,
    "float64": xla_data_pb2.F64,
    "complex64": xla_data_pb2.C64,
}


class Computation:
    """Builds a computation of HLO."""

    _ids = iter(range(1, 10**6))

    def __init__(self, name):
        self.proto = hlo_pb2.HloComputationProto(name=name, id=next(self._ids))

    def add(self, opcode, dtype, shape, *operands, **fields):
        """Adds an instruction; returns it."""
        new = self.proto.instructions.add(opcode=opcode, id=next(self._ids), **fields)
        new.name = f"{opcode}.{new.id}"
        new.shape.CopyFrom(_shape(dtype, shape))
        new.operand_ids.extend(operand.id for operand in operands)
        self.proto.root_id = new.id
        return new

    def parameters(self, *types):
        """Adds the parameters, each given as (dtype, shape)."""
        found = [
            self.add("parameter", *one, parameter_number=i, metadata={})
            for i, one in enumerate(types)
        ]
        for parameter in found:
            self.proto.program_shape.parameters.add().CopyFrom(parameter.shape)
            self.proto.program_shape.parameter_names.append(parameter.name)
        return found

    def finish(self):
        """Sets the type of the result, which is that of the last instruction."""
        self.proto.program_shape.result.CopyFrom(self.proto.instructions[-1].shape)
        return self.proto


def _shape(dtype, shape):
    order = list(reversed(range(len(shape))))
    layout = xla_data_pb2.LayoutProto(minor_to_major=order)
    return xla_data_pb2.ShapeProto(
        element_type=_TYPES[dtype],
        dimensions=shape,
        layout=layout,
        is_dynamic_dimension=[False] * len(shape),
    )


def _module(entry, results, others=(), aliases=()):
    """Returns a serialized HloModuleProto; `aliases` are pairs of (result, parameter)."""
    root = entry.proto.instructions.add(opcode="tuple", name="root", id=10**6)
    root.shape.element_type = xla_data_pb2.TUPLE
    root.shape.tuple_shapes.extend(result.shape for result in results)
    root.operand_ids.extend(result.id for result in results)
    entry.proto.root_id = root.id
    proto = entry.finish()
    module = hlo_pb2.HloModuleProto(name="step", id=1, entry_computation_name=proto.name)
    module.entry_computation_id = proto.id
    module.computations.extend([*(other.proto for other in others), proto])
    module.host_program_shape.CopyFrom(proto.program_shape)
    for result, parameter in aliases:
        module.input_output_alias.entries.add(
            output_shape_index=[result], parameter_number=parameter, kind=hlo_pb2.MAY_ALIAS
        )
    return module.SerializeToString()


@functools.cache
def _step(count=2):
    """Returns a program: y = x w + f; w += all-reduce(t c); n += 1.

    x: float32[3, 2] and t: float32[2] are the infeed, c: float32[2] an argument, w: float32[2],
    n: int64[] and f: bfloat16[3] the state. y is the outfeed; the step does not change f.
    """
    add = Computation("add")
    add.add("add", "float32", [], *add.parameters(("float32", []), ("float32", [])))
    add.finish()
    entry = Computation("entry")
    vector = ("float32", [COLUMNS])
    x, t, c, w, n, f = entry.parameters(
        ("float32", [ROWS, COLUMNS]), vector, vector, vector, ("int64", []), ("bfloat16", [ROWS])
    )
    axes = xla_data_pb2.DotDimensionNumbers(
        lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]
    )
    product = entry.add("dot", "float32", [ROWS], x, w, dot_dimension_numbers=axes)
    wide = entry.add("convert", "float32", [ROWS], f)
    y = entry.add("add", "float32", [ROWS], product, wide)
    scaled = entry.add("multiply", *vector, t, c)
    group = xla_data_pb2.ReplicaGroup(replica_ids=range(count))
    called = {"called_computation_ids": [add.proto.id], "replica_groups": [group]}
    total = entry.add("all-reduce", *vector, scaled, **called)
    new_w = entry.add("add", *vector, w, total)
    one = entry.add("constant", "int64", [])
    one.literal.shape.CopyFrom(one.shape)
    one.literal.s64s.append(1)
    new_n = entry.add("add", "int64", [], n, one)
    hlo = _module(entry, [y, new_w, new_n], [add], [(1, 3), (2, 4)])
    return client.Program(hlo, 2, 1, 3, [0], [1, 2, None])


def _batch(devices, step):
    """Returns a batch of _step; t is i + step for device i of all devices."""
    first = devices.process_id * devices.num_local
    x = [np.full([ROWS, COLUMNS], i + step, np.float32) for i in range(devices.num_local)]
    t = [np.full([COLUMNS], first + i + step, np.float32) for i in range(devices.num_local)]
    return [x, t]


W, F = np.array([0.5, -0.0], np.float32), np.array([1, 2, 3], ml_dtypes.bfloat16)
C = np.array([1, 2], np.float32)
STATE = [W, np.int64(7), F]


@pytest.fixture(scope="module", name="python")
def fixture_python():
    """Returns an interpreter with jax; skips the test if there is none."""
    found = subprocess.run([PYTHON, "-c", "import jax"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"{PYTHON} has no jax: set PJRT_PYTHON to an interpreter that has")
    return PYTHON


@pytest.fixture(scope="module", name="devices")
def fixture_devices(python, tmp_path_factory):
    """Returns two CPU devices."""
    log = tmp_path_factory.mktemp("devices") / "log"
    with client.Devices(python, "cpu", 2, log=str(log)) as devices:
        yield devices


def _train(devices, program, steps, state=STATE):
    devices.begin(program, [C], state)
    results = []
    for step in steps:
        devices.submit(_batch(devices, step))
        results.append(devices.collect())
    return results, devices.finish(range(3))


@pytest.mark.slow(cost=0.1)
def test_attributes(devices):
    """The requested devices."""
    assert (devices.kind, devices.platform) == ("cpu", "cpu")
    assert (devices.num_local, devices.num_global) == (2, 2)
    assert (devices.process_id, devices.num_processes) == (0, 1)


def test_step(devices):
    """Outfeed per device, all-reduce between devices, a state that stays and one that moves."""
    program = devices.load(_step())
    results, (w, n, f) = _train(devices, program, [0, 1])
    ramp = np.arange(1, 4, dtype=np.float32)
    np.testing.assert_array_equal(results[0][0], [ramp, ramp + 0.5])
    # w is [0.5, 0] + [0 + 1, 2 (0 + 1)] in the second step, whose x are 1 and 2
    np.testing.assert_array_equal(results[1][0], [ramp + 3.5, ramp + 7])
    np.testing.assert_array_equal(w, [0.5 + 1 + 3, 2 + 6])
    np.testing.assert_array_equal(f, F)
    assert (n, n.dtype, n.shape, f.dtype) == (9, np.int64, (), F.dtype)
    assert all(array.ctypes.data % 64 == 0 and array.flags.writeable for array in (w, n, f))


def test_state_stays(devices):
    """State that is kept equals state that was downloaded and uploaded, to the sign of zero."""
    program = devices.load(_step())
    _, before = _train(devices, program, range(4))
    _, kept = _train(devices, program, range(4, 7), [None] * 3)
    _, again = _train(devices, program, range(4, 7), before)
    for one, other in zip(kept, again):
        assert one.tobytes() == other.tobytes()
    devices.begin(program, [C], STATE)
    devices.begin(program, [C], [None] * 3)
    assert np.signbit(devices.finish([0])[0][1])


def test_arguments_per_device(devices):
    """An argument may have a value per device."""
    program = devices.load(_step())
    devices.begin(program, [[C, 3 * C]], STATE)
    devices.submit(_batch(devices, 1))
    devices.collect()
    np.testing.assert_array_equal(devices.finish([0])[0], W + 1 * C + 2 * 3 * C)


def test_devices_differ_until_the_loop_ends(devices):
    """State that differs between devices is that of the first device in the next loop."""
    entry = Computation("entry")
    x, w = entry.parameters(("float32", [1]), ("float32", [1]))
    new_w = entry.add("add", "float32", [1], x, w)
    copy = entry.add("multiply", "float32", [1], w, w)
    hlo = _module(entry, [copy, new_w], aliases=[(1, 1)])
    program = devices.load(client.Program(hlo, 1, 0, 1, [0], [1]))
    batch = [[np.float32([2]), np.float32([5])]]
    devices.begin(program, [], [np.float32([1])])
    squares = []
    for state in ([None], [None]):
        for _ in range(2):
            devices.submit(batch)
            squares.append(np.ravel(devices.collect()).tolist())
        devices.begin(program, [], state)
    assert squares == [[1, 1], [9, 36], [25, 25], [49, 100]]


@pytest.mark.parametrize("shape", [[], [3], [2, 5], [0, 2]])
def test_dtypes(devices, shape):
    """Each dtype, to the bit: a step returns its state, and makes its infeed the next state."""
    entry = Computation("entry")
    types = [(name, shape) for name in _TYPES]
    count = len(types)
    parameters = entry.parameters(*types, *types)
    copies = [entry.add("copy", *pair[0], pair[1]) for pair in zip(types * 2, parameters)]
    aliases = [(i, count + i) for i in range(count)]
    numbers = list(range(2 * count))
    step = client.Program(
        _module(entry, copies, aliases=aliases), count, 0, count, numbers[count:], numbers[:count]
    )
    random = np.random.default_rng(0)

    def values():
        found = []
        for name in _TYPES:
            dtype = np.dtype(getattr(ml_dtypes, name, name))
            small = random.integers(0, 2, shape) if name == "bool" else random.normal(0, 9, shape)
            found.append(np.asarray(-np.abs(small) if name[0] in "fcb" else small).astype(dtype))
        return found

    def run(*batch):
        devices.submit([list(pair) for pair in zip(*batch)])
        return [[[array.tobytes() for array in pair] for pair in devices.collect()]]

    def expected(first, second):
        return [[[x.tobytes(), y.tobytes()] for x, y in zip(first, second)]]

    state, first, second = values(), values(), values()
    program = devices.load(step)
    devices.begin(program, [], state)
    assert run(first, second) == expected(state, state)
    assert run(first, second) == expected(first, second)
    devices.begin(program, [], [None] * count)
    assert run(first, second) == expected(first, first)
    for array, value in zip(devices.finish(range(count)), first):
        assert (array.dtype, array.shape) == (value.dtype, value.shape)
        assert array.tobytes() == value.tobytes()


def test_many_batches_ahead(devices):
    """One thread submits and another collects, more steps than there are slots."""
    program = devices.load(_step())
    devices.begin(program, [C], STATE)
    results = []
    thread = threading.Thread(target=lambda: results.extend(devices.collect() for _ in range(50)))
    thread.start()
    for step in range(50):
        devices.submit(_batch(devices, step))
    thread.join()
    w = W
    for step, ((first, second),) in enumerate(results):
        assert (first[0], second[0]) == (step * w.sum() + 1, (step + 1) * w.sum() + 1)
        w = w + (2 * step + 1) * C  # exact: small integers, and a half
    np.testing.assert_array_equal(devices.finish([0])[0], w)


def test_programs_are_compiled_once(devices):
    """An equal program has the same id; another one needs its own state."""
    program = devices.load(_step())
    assert devices.load(_step()) == program
    _train(devices, program, [0])
    other = devices.load(_step()._replace(outfeed=[]))
    assert other != program
    with pytest.raises(client.PJRTError, match="no state of this program"):
        devices.begin(other, [C], [W, None, F])
    devices.begin(other, [C], STATE)
    for step in range(5):
        devices.submit(_batch(devices, step))
    assert devices.finish([1])[0] == 12


def test_invalid_program(devices):
    """The compiler's reason; the devices can still be used."""
    with pytest.raises(client.PJRTError, match=r"The compilation of the step failed: .+"):
        devices.load(client.Program(b"no program", 0, 0, 0, [], []))
    with pytest.raises(client.PJRTError, match="has 6 parameters instead of 7"):
        devices.load(_step()._replace(num_infeed=3))
    _train(devices, devices.load(_step()), [0])


def test_out_of_memory(python, tmp_path):
    """A step that needs 4 TB."""
    entry = Computation("entry")
    (w,) = entry.parameters(("float32", []))
    huge = entry.add("broadcast", "float32", [2**20, 2**20], w)
    step = client.Program(_module(entry, [w, huge]), 0, 0, 1, [], [None])
    with client.Devices(python, "cpu", 1, log=str(tmp_path / "log")) as devices:
        devices.begin(devices.load(step), [], [np.float32(1)])
        message = r"The step needs 439\d.* GB, more memory than .* \(cpu\) has: RES.* smaller batch"

        def run():  # the first call that knows it raises it
            devices.submit([])
            devices.finish([])

        with pytest.raises(client.PJRTError, match=message):
            run()


def test_worker_is_killed(python, tmp_path):
    """Wakes all that wait, each with one line."""
    with client.Devices(python, "cpu", 2, log=str(tmp_path / "log")) as devices:
        devices.begin(devices.load(_step()), [C], STATE)
        os.kill(devices.pid, signal.SIGSTOP)
        errors = []

        def run(function):
            try:
                function()
            except client.PJRTError as error:
                errors.append(str(error))

        waiting = [
            lambda: [devices.submit(_batch(devices, i)) for i in range(9)],
            devices.collect,
            lambda: devices.finish([0]),
        ]
        threads = [threading.Thread(target=run, args=(function,)) for function in waiting]
        for thread in threads:
            thread.start()
        os.kill(devices.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()
        assert len(errors) == 3
        assert len(set(errors)) == 1
        assert "The device worker has ended (SIGKILL" in errors[0]
        with pytest.raises(client.PJRTError, match="SIGKILL"):
            devices.load(_step())


@pytest.mark.slow
def test_several_processes(python):
    """Two processes: one all-reduce; the state of process 0 for both, and all outfeed in it."""
    command = [python, "-c", "import jax; assert jax.__version_info__ >= (0, 4, 34)"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("CPU devices of several processes need jax 0.4.34")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    results, outfeeds = [None] * 2, [None] * 2

    def run(process):
        with client.Devices(python, "cpu", 2, address, process, 2) as devices:
            program = devices.load(_step(4))
            assert (devices.num_local, devices.num_global, devices.process_id) == (2, 4, process)
            state = [W + process, np.int64(7 + process), F]
            outfeeds[process], values = _train(devices, program, [0, 1], state)
            results[process] = [
                *values,
                *_train(devices, program, [2], [None] * 3)[1],
            ]

    threads = [threading.Thread(target=run, args=(process,)) for process in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(*results):
        assert one.tobytes() == other.tobytes()
    np.testing.assert_array_equal(results[0][0], W + (6 + 10) * C)
    assert np.shape(outfeeds[0][0][0]) == (4, ROWS)
    assert outfeeds[1] == [[[]], [[]]]
    np.testing.assert_array_equal(results[0][3], W + (6 + 10 + 14) * C)


def test_copies():
    """A copy, which is not StableHLO, becomes a reshape to the same shape."""
    lines = """
        %1 = mhlo.copy %0 : tensor<i64> loc(#loc930)
        %3 = mhlo.copy %2#1 {mhlo.sharding = "{replicated}"} : tensor<3x5xcomplex<f32>>
        %4 = stablehlo.add %1, %1 : tensor<i64>
    """
    expected = """
        %1 = stablehlo.reshape %0 : (tensor<i64>) -> tensor<i64> loc(#loc930)
        %3 = stablehlo.reshape %2#1 : (tensor<3x5xcomplex<f32>>) -> tensor<3x5xcomplex<f32>>
        %4 = stablehlo.add %1, %1 : tensor<i64>
    """
    assert worker.without_copies(lines) == expected


def test_no_interpreter():
    """The path, and what to name instead."""
    with pytest.raises(client.PJRTError, match="/no/python, cannot be started: No such file"):
        client.Devices("/no/python")


def test_interpreter_without_jax(tmp_path):
    """What is missing, and how to install it."""
    bare = fake_jax.interpreter_without_jax(tmp_path)
    with pytest.raises(
        client.PJRTError, match=r"has no JAX that works .*No module named.*pip install"
    ):
        client.Devices(bare)


def test_old_jax(tmp_path):
    """Both versions."""
    python = fake_jax.interpreter(tmp_path, version=(0, 4, 29))
    with pytest.raises(
        client.PJRTError,
        match=r"start of the device worker failed: .* has jax 0.4.29\. Install jax 0.4.30 or",
    ):
        client.Devices(python)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            "The TPU is already in use by process with pid 77.",
            "in use by another process: .*pid 77",
        ),
        ("Unable to initialize backend 'tpu': not found", "finds no devices .platform: tpu.: Un"),
    ],
)
def test_no_devices(tmp_path, error, expected):
    """JAX's reason."""
    python = fake_jax.interpreter(tmp_path, f"raise RuntimeError({error!r})")
    with pytest.raises(client.PJRTError, match=expected):
        client.Devices(python, "tpu")


@pytest.mark.parametrize(
    ("platform", "expected"),
    [("tpu", "'tpu' of 'tpu'"), ("gpu", "'gpu' of ''"), ("", "None of 'no'")],
)
def test_platform(tmp_path, monkeypatch, platform, expected):
    """JAX_PLATFORMS=gpu would require both CUDA and ROCm."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    asked = "f\"{platform!r} of {os.environ.get('JAX_PLATFORMS', 'no')!r}\""
    python = fake_jax.interpreter(tmp_path, f"raise RuntimeError({asked})")
    with pytest.raises(client.PJRTError, match=expected):
        client.Devices(python, platform)


def test_too_few_devices(tmp_path):
    """Both numbers."""
    device = "types.SimpleNamespace(process_index=0, id=0, device_kind='TPU v5 lite')"
    python = fake_jax.interpreter(tmp_path, f"return [{device}]")
    with pytest.raises(client.PJRTError, match=r"8 devices are .* finds 1 \(TPU v5 lite\)"):
        client.Devices(python, "tpu", 8)


def test_worker_hangs(tmp_path):
    """Neither an answer nor an end."""
    python = fake_jax.interpreter(tmp_path, "import time; time.sleep(10**6)")
    with pytest.raises(client.PJRTError, match="has not ended after 1 s: the device worker hangs"):
        client.Devices(python, timeout_s=1)


def test_host_is_killed(tmp_path):
    """Ends the worker as well, whatever it does."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    write = f"open({str(ready)!r}, 'w').write(str(os.getpid()))"
    python = fake_jax.interpreter(tmp_path, f"import os, time; {write}; time.sleep(10**6)")
    source = f"""
try:
    from tpu.pjrt import client
    client.Devices({python!r})
finally:
    open({str(ready)!r}, "w").write("-1")
"""
    with subprocess.Popen([sys.executable, "-c", source], cwd=ROOT) as host:
        process = os.pidfd_open(int(ready.read_text()))
        host.kill()
    try:
        assert select.select([process], [], [], 60)[0]
    finally:
        os.close(process)
