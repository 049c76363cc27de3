"""`python run_tpu.py --tpu=NAME` against a fake Cloud TPU API, in separate processes."""

import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import run_tpu
from engine.checkpoints import checkpoint_files
from tests.marks import slow
from tpu.connect import flags as tpu_flags

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def endpoints(worker):
    """The networkEndpoints of a fake worker with 2 cores."""
    return [{"ipAddress": "127.0.0.1", "port": worker(1, 2)}]


@pytest.mark.slow
def test_run_tpu_goes_as_far_as_a_worker_without_a_tpu_does(cloud, endpoints, tmp_path):
    """It finds the worker, builds its program, opens a session and runs the initializers."""
    pytest.importorskip("gcp_storage_emulator", reason="gcp-storage-emulator needs Python 3.10")
    from tools import gcs_server

    cloud.set(node={"networkEndpoints": endpoints})
    flags = ["--tpu=mine", "--mode=train", "--model=mlp", "--dataset=synthetic", "--image_size=8",
             "--train_batch_size=16", "--train_steps=5", "--model_dir=gs://bucket/run"]  # fmt: skip
    with gcs_server.serve(str(tmp_path), "bucket") as storage:
        done = subprocess.run(
            [sys.executable, "run_tpu.py", *flags],
            cwd=ROOT,
            env={**os.environ, **storage.environment, **cloud.environment},
            capture_output=True,
            text=True,
        )
        assert "run/flags.cfg" in storage.names("bucket")
    assert done.stdout == "TPU mine (1 host x 2 cores)\n"
    assert done.stderr.splitlines()[-1] == "Method not found!"  # RunStep, of the fake worker
    assert done.returncode == 1


def test_a_failed_lookup_is_one_line_and_writes_nothing(
    cloud, exit_status, tiny_flags, capsys, tmp_path
):
    place = ["--tpu=other", "--tpu_zone=us-east1-c", "--gcp_project=p", "--data_dir=gs://a/b"]
    training = ["--mode=train", "--train_steps=5", "--model_dir=gs://no-such-bucket/run"]
    assert exit_status(run_tpu, *tiny_flags, *place, *training) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(
        "run_tpu.py: error: --tpu=other: there is no TPU other in zone us-east1-c of project p. "
    )
    assert not printed.out


@pytest.mark.parametrize(
    ("value", "message"),
    [("-1", "-1.0 is not a non-negative number"), ("soon", "it is not a finite")],
)
def test_invalid_minutes_are_one_line(exit_status, tiny_flags, capsys, value, message):
    training = ["--mode=train", "--train_steps=5", "--model_dir=gs://no-such-bucket/run"]
    assert exit_status(run_tpu, *tiny_flags, *training, f"--tpu_wait_minutes={value}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"run_tpu.py: error: flag --tpu_wait_minutes={value}: ")
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ([], ["--tpu_wait_minutes=60"]),
        (["--tpu_wait_minutes=0"], []),
        (["--tpu_wait_minutes=5"], []),
    ],
)
def test_a_restart_waits_for_the_tpu(arguments, flags):
    values = tpu_flags.FLAGS
    values.unparse_flags()
    values(["run_tpu.py", "--mode=train", "--model=mlp", "--dataset=digits", "--model_dir=m",
            "--data_dir=d", "--train_steps=5", *arguments])  # fmt: skip
    assert tpu_flags.restart_flags() == flags


class Output:
    """The lines of a process, read in a thread."""

    def __init__(self, process):
        self.lines = []
        self._process = process
        self._next = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()

    def wait_for(self, text):
        """Waits for the next line that contains `text`."""

        def is_found():
            lines = self.lines[self._next :]
            places = [i for i, line in enumerate(lines, self._next + 1) if text in line]
            self._next = places[0] if places else self._next
            return bool(places)

        with self._changed:
            assert self._changed.wait_for(is_found, timeout=120), "\n".join([text, *self.lines])


@pytest.mark.parametrize("preemptions", [slow(1), slow(3)])
def test_a_preempted_training_ends_with_the_same_weights(
    cloud, endpoints, command, run_tpu_in, variables, tmp_path, preemptions
):
    steps = ["--mode=train", "--train_steps=400", "--save_checkpoints_steps=20"]
    steps += ["--params=dropout=0", "--train_batch_size=14"]
    cloud.set(node={"state": "CREATING"})
    supervised = command("tests/tpu/named_tpu_program.py", "--tpu=mine", *steps)
    process = subprocess.Popen(
        [*supervised, "--max_restarts=5", "--tpu_wait_minutes=5"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        output = Output(process)
        output.wait_for("the TPU is CREATING; waiting, 5 minutes left")
        created = {"networkEndpoints": endpoints}
        for i in range(preemptions):
            cloud.set(node=created)
            output.wait_for("training 19,971 parameters")
            wait_for_checkpoint(process, tmp_path / "model", after=20 * i)
            cloud.set(node={**created, "state": "PREEMPTED"})
            output.wait_for("--tpu=mine: the TPU is PREEMPTED. This program ends")
            output.wait_for("training ended with status 1")
            output.wait_for("the TPU is PREEMPTED; waiting")
            cloud.set(status=404, error={"error": {"message": "deleted"}})
            output.wait_for("there is no TPU mine")
            created["createTime"] = f"2026-11-23T12:0{i}:00Z"
            cloud.set(node={**created, "state": "CREATING"})
            output.wait_for("the TPU is CREATING; waiting")
        cloud.set(node=created)
        process.wait()
    assert process.returncode == 0, output.lines
    assert "tpu_wait_minutes" not in (tmp_path / "model" / "flags.cfg").read_text()
    run_tpu_in(tmp_path / "undisturbed", *steps)
    preempted, undisturbed = variables(tmp_path / "model"), variables(tmp_path / "undisturbed")
    assert preempted.keys() == undisturbed.keys()
    for name, value in undisturbed.items():
        assert np.array_equal(preempted[name], value), name


def wait_for_checkpoint(process, model_dir, after):
    """Waits for a checkpoint of a step after `after`."""
    while checkpoint_files.newest_step(str(model_dir)) <= after:
        assert process.poll() is None
        time.sleep(0.01)
