"""Faults of PJRT devices: one line, an exit status that is not 0, and the checkpoints are kept."""

import os
import signal
import subprocess
import tempfile
import time
import types

import numpy as np
import pytest
import tensorflow as tf

import run_tpu
from engine.checkpoints import checkpoint_files
from tests.tpu.pjrt import fake_jax
from tpu.pjrt import client
from tpu.pjrt.client import Devices
from tpu.pjrt.loop import Loop
from tpu.programs import command_line

pytest.importorskip("jax", reason="the extra 'pjrt' is not installed")

IN_USE = "ABORTED: The TPU is already in use by process with pid 77. Not attempting to load libtpu"
ONE = "types.SimpleNamespace(process_index=0, id=0, device_kind='TPU v5 lite')"
# `{fault: (arguments of fake_jax.interpreter, --devices, message)}`
AT_START = {
    "old jax": ({"version": (0, 4, 29)}, "", "has jax 0.4.29. Install jax 0.4.30 or newer there"),
    "no devices": ({"devices": "raise RuntimeError('no TPU')"}, "tpu", "finds no devices"),
    "too few": ({"devices": f"return [{ONE}]"}, "tpu:8", "finds 1 (TPU v5 lite). Ask for fewer"),
    "in use": (
        {"devices": f"raise RuntimeError({IN_USE!r})"},
        "tpu",
        "The TPU is in use by another process: jax 0.4.30 of",
    ),
}


@pytest.fixture(autouse=True)
def logs_of_workers(monkeypatch, tmp_path):
    """Those that fail leave a log in the folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def train(exit_status, tiny_flags, tmp_path, capfd):
    """Trains with run_tpu.py; returns the exit status and the lines of errors."""

    def run(*arguments):
        sizes = "--train_batch_size=16", "--save_checkpoints_steps=4", "--iterations_per_loop=2"
        more = *sizes, "--tpu=pjrt", f"--model_dir={tmp_path}/model", "--mode=train", *arguments
        capfd.readouterr()
        with tf.Graph().as_default():
            status = exit_status(run_tpu, *tiny_flags, *more)
        return status, capfd.readouterr().err.splitlines()

    return run


@pytest.fixture
def run_program(tmp_path, capfd):
    """Runs a program with `python -m tpu run`; returns the exit status and the lines of errors."""

    def run(*options, source=""):
        (tmp_path / "program.py").write_text(source)
        status = command_line.main(["run", *options, str(tmp_path / "program.py")])
        return status, capfd.readouterr().err.splitlines()

    return run


def interpreter(fault, folder):
    """Returns (interpreter, --devices, message) of a fault at the start."""
    if fault == "no interpreter":
        return "/no/python", "", "/no/python, cannot be started: No such file or directory. Name"
    if fault == "no jax":
        python = fake_jax.interpreter_without_jax(folder)
        return python, "", "No module named 'numpy'). Install it there (pip install 'jax[tpu]'"
    arguments, devices, message = AT_START[fault]
    return fake_jax.interpreter(folder, **arguments), devices, message


@pytest.mark.parametrize("fault", ["no interpreter", "no jax", *AT_START])
def test_devices_do_not_start(train, run_program, tmp_path, fault):
    python, devices, message = interpreter(fault, tmp_path / "jax")
    options = f"--pjrt_python={python}", f"--devices={devices}"
    status, (line,) = train("--train_steps=4", *options)
    assert status == 2
    assert line.startswith("run_tpu.py: error: ")
    assert message in line
    assert not (tmp_path / "model").exists()
    status, lines = run_program(*options)
    assert status == 1
    assert lines[-1].startswith("tpu: error: ")
    assert message in lines[-1]


def test_without_an_accelerator_nothing_runs_on_the_cpu(train, tmp_path, monkeypatch):
    closed = []
    devices = types.SimpleNamespace(kind="cpu", close=closed.append)
    monkeypatch.setattr(client, "Devices", lambda *_: devices)
    status, (line,) = train("--train_steps=4")
    assert status == 2
    assert "finds no TPU and no GPU" in line
    assert line.endswith("or set --devices=cpu:8 for CPU devices")
    assert closed
    assert not (tmp_path / "model").exists()


def test_batch_is_not_divisible(train, tmp_path, monkeypatch):
    devices = types.SimpleNamespace(
        **dict.fromkeys(("num_local", "num_global"), 8),
        num_processes=1,
        kind="cpu",
        jax_version="0.4.30",
        close=lambda reason: None,
    )
    monkeypatch.setattr(client, "Devices", lambda *_: devices)
    status, (line,) = train("--train_batch_size=13", "--train_steps=4", "--devices=cpu:8")
    assert status == 2
    assert "--train_batch_size=13 cannot be divided over 1x8 (8 cores" in line
    assert line.endswith("Use 8 or 16")
    assert not (tmp_path / "model").exists()


PROGRAM = """
import tensorflow as tf
tf1 = tf.compat.v1

def model_fn(features, labels, mode, params):
    loss = tf.reduce_mean((tf1.layers.dense(features, 1) - labels) ** 2)
    {line}
    optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.1))
    train_op = optimizer.minimize(loss, tf1.train.get_global_step())
    return tf1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

def input_fn(params):
    dataset = tf.data.Dataset.from_tensors((tf.ones([3]), tf.ones([1]))).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True)

tpu_config = tf1.estimator.tpu.TPUConfig(iterations_per_loop=2{option})
config = tf1.estimator.tpu.RunConfig(model_dir={folder!r}, tpu_config=tpu_config)
estimator = tf1.estimator.tpu.TPUEstimator(
    model_fn, config=config, use_tpu=True, train_batch_size=8
)
estimator.train(input_fn, max_steps=4)
"""
UNSUPPORTED = {
    "outside compilation": (
        "loss = tf1.tpu.outside_compilation(tf.sqrt, loss)",
        "",
        "PJRT devices do not support outside compilation: Sqrt (at ",
    ),
    "print": (
        "loss = tf1.Print(loss, [loss])",
        "",
        "a TPU cannot print. Pass the tensor to host_call (at ",
    ),
    "print in a conditional": (
        "loss = tf.cond(loss > 0, lambda: tf1.Print(loss, [loss]), lambda: loss)",
        "",
        "a TPU cannot print. Pass the tensor to host_call (at ",
    ),
    "Python": (
        "loss += tf.ensure_shape(tf1.py_func(lambda: 0.5, [], tf.float32), [])",
        "",
        "a TPU cannot run Python. Call it in the input_fn",
    ),
    "model parallelism": (
        "",
        ", num_cores_per_replica=2",
        "do not support model parallelism (num_cores_per_replica=2). Set it to 1",
    ),
}


@pytest.mark.usefixtures("shared_workers")
@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_unsupported_program(run_program, tmp_path, kind):
    line, option, message = UNSUPPORTED[kind]
    source = PROGRAM.format(line=line, option=option, folder=f"{tmp_path}/model")
    status, lines = run_program("--devices=cpu:2", source=source)
    assert status == 1
    assert lines[-1].startswith("tpu: error: ")
    assert message in lines[-1]
    assert f"{tmp_path}/program.py:" in lines[-1]
    assert not list(tmp_path.glob("model/model.ckpt*"))


@pytest.mark.usefixtures("shared_workers")
def test_tpu_embeddings_of_a_model(exit_status, tmp_path, capfd):
    status = exit_status(
        run_tpu,
        "--mode=train",
        "--model=tests.contract.embedding_tables.model:MODEL",
        "--dataset=tests.contract.embedding_tables.data:make_pipeline",
        "--data_dir=unused",
        f"--model_dir={tmp_path}/model",
        "--params=lazy_embeddings=true,tpu_embedding_rows=1",
        *("--train_batch_size=16", "--train_steps=4", "--tpu=pjrt", "--devices=cpu:2"),
    )
    *_, line = capfd.readouterr().err.splitlines()
    assert status == 2
    assert line.startswith("run_tpu.py: error: PJRT devices have no TPU embeddings (at ")
    assert not list(tmp_path.glob("model/model.ckpt*"))


@pytest.mark.slow
def test_step_needs_too_much_memory(run_program, tmp_path):
    line = "loss += tf.reduce_max(tf.sort(tf.random.uniform([2**20, 2**20]), axis=0)[::2])"
    source = PROGRAM.format(line=line, option="", folder=f"{tmp_path}/model")
    status, lines = run_program("--devices=cpu:2", source=source)
    assert status == 1
    assert lines[-1].startswith("tpu: error: The step needs ")
    assert "more memory than a device (cpu) has: " in lines[-1]
    assert lines[-1].endswith("or more devices. Checkpoints are kept")
    assert os.path.exists(f"{tmp_path}/model/model.ckpt-0.index")


@pytest.mark.usefixtures("shared_workers")
def test_compiled_step_does_not_fit(train, monkeypatch):
    def refuse(self, what, *_, **__):
        error = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20G of 15.75G"
        raise client.PJRTError(self._explain(what, error))

    monkeypatch.setattr(Devices, "_ask", refuse)
    status, lines = train("--devices=cpu:2", "--train_steps=4")
    assert status == 2
    assert "The compilation of the step needs more memory than a device (cpu) has: " in lines[-1]
    assert lines[-1].endswith("Use a smaller batch per device, or more devices")


@pytest.mark.slow
def test_worker_is_killed_and_the_training_resumed(train, monkeypatch, variables, tmp_path):
    devices, steps = "--devices=cpu:2", "--train_steps=8"
    assert train(devices, steps) == (0, [])
    expected = variables(tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / "undisturbed")
    submit = Loop.submit

    def kill(self, number, *inputs):
        if number == 6:
            os.kill(self._devices.pid, signal.SIGKILL)
        return submit(self, number, *inputs)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "submit", kill)
        status, lines = train(devices, steps)
    assert status == 1
    assert lines[-1].startswith("run_tpu.py: error: The device worker has ended (SIGKILL")
    assert lines[-1].endswith("Run again. Checkpoints are kept")
    assert checkpoint_files.newest_step(str(tmp_path / "model")) == 4
    assert train(devices, steps) == (0, [])
    resumed = variables(tmp_path / "model")
    assert expected.keys() == resumed.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


@pytest.mark.slow
def test_a_killed_run_resumes_bit_identically(
    command, run_tpu_with, tiny_flags, variables, tmp_path
):
    """With dropout, and batch norm whose statistics differ per core."""
    arguments = [
        "--mode=train",
        "--model=convnet",
        "--params=layers=[conv:4:3,batch_norm,relu,dropout:0.3,flatten,dense:8,relu]",
        "--train_batch_size=16",
        "--save_checkpoints_steps=20",
        "--tpu=pjrt",
        "--devices=cpu:8",
    ]
    model = tmp_path / "model"
    process = subprocess.Popen(
        command("run_tpu.py", *arguments, "--train_steps=100000"), stdout=subprocess.DEVNULL
    )
    while checkpoint_files.newest_step(str(model)) < 40:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    end = f"--train_steps={checkpoint_files.newest_step(str(model)) + 30}"
    for folder in (model, tmp_path / "once"):
        run_tpu_with(*tiny_flags, *arguments, end, f"--model_dir={folder}")
    resumed, once = variables(model), variables(tmp_path / "once")
    assert resumed.keys() == once.keys()
    for name, value in once.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)
