"""Trainings that read through two workers of a tf.data service in other processes."""

import contextlib
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from engine.checkpoints import checkpoint_files
from tests.ports import first_of_two

ROOT = pathlib.Path(__file__).parents[1]
MODE = "--mode=train"
pytestmark = pytest.mark.slow


@contextlib.contextmanager
def serving(port):
    """A server on a port, from when it is ready."""
    command = [sys.executable, "-m", "tools.data_service", "--host=localhost", f"--port={port}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line == f"serving --data_service=grpc://localhost:{port} (and port {port + 1})\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def servers():
    """Two servers; the process of the second, and the flag of a training."""
    with serving(first := first_of_two()), serving(second := first_of_two()) as process:
        yield process, f"--data_service=grpc://localhost:{first},grpc://localhost:{second}"


@pytest.mark.parametrize("cache", ["memory", "none"])
@pytest.mark.parametrize("wrapper", ["run_in", "run_tpu_in"])
def test_weights_are_bit_identical(servers, variables, tmp_path, request, wrapper, cache):
    run = request.getfixturevalue(wrapper)
    flags = [MODE, f"--cache={cache}", "--params=dropout=0.1"]
    run(tmp_path / "local", *flags, "--train_steps=23")
    run(tmp_path / "served", *flags, servers[1], "--train_steps=10")  # and resumed
    run(tmp_path / "served", *flags, servers[1], "--train_steps=23")
    local, served = variables(tmp_path / "local"), variables(tmp_path / "served")
    for name, value in local.items():
        np.testing.assert_array_equal(served[name], value, err_msg=name)


TPU = ("--tpu=emulator", "--tpu_topology=1x2", "--train_batch_size=14")


@pytest.mark.parametrize(
    ("program", "arguments", "restarts", "message"),
    [
        ("run_cpu.py", (), False, "has not answered for 20 s"),
        ("run_tpu.py", TPU, False, "has not answered for 20 s"),
        ("run_cpu.py", (), True, "A worker was restarted"),
        ("run_tpu.py", TPU, True, "A worker was restarted"),
    ],
)
def test_a_killed_worker_is_one_line(
    servers, command, tmp_path, program, arguments, restarts, message
):
    server, flag = servers
    endless = [MODE, "--train_steps=10000000", "--save_checkpoints_steps=50"]
    with subprocess.Popen(
        command(program, *endless, *arguments, flag), cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as training:
        while checkpoint_files.newest_step(str(tmp_path / "model")) < 50:
            assert training.poll() is None
            time.sleep(0.05)
        server.kill()
        port = int(flag.rpartition(":")[2])
        with serving(port) if restarts else contextlib.nullcontext():
            lines = training.communicate()[1].splitlines()
    assert training.returncode == 1
    (line,) = (line for line in lines if line.startswith(f"{program}: error: "))
    assert line.startswith(f"{program}: error: --data_service")
    assert message in line


def test_a_server_of_something_else_is_an_error(servers, exit_status, capsys, tmp_path, tiny_flags):
    import run_cpu

    port = int(servers[1].rpartition(":")[2]) + 1  # the worker, not its dispatcher
    arguments = [*tiny_flags, f"--model_dir={tmp_path}", MODE, "--train_steps=5"]
    assert exit_status(run_cpu, *arguments, f"--data_service=grpc://localhost:{port}") == 1
    assert f"grpc://localhost:{port}: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sigterm_ends_a_server():
    with serving(first_of_two()) as process:
        process.send_signal(signal.SIGTERM)
        assert process.communicate()[0] == "ended by SIGTERM\n"
        assert process.returncode == 0
