"""One-line messages for errors of disks and buckets."""

import errno
import os
import re
import subprocess

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
from engine.cli import io_errors
from input_fns.core import caching


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            tf.errors.ResourceExhaustedError(
                None,
                None,
                "/tmp/m/model.ckpt-50_temp/part-00000-of-00001.data; No space left on device\n"
                "\t [[node save/SaveV2 ]]\nHint: If you want to see a list of allocated tensors",
            ),
            r"No space left on device: /tmp/m/model\.ckpt-50_temp/\S+ \(\d+ MB are free\);",
        ),
        (
            tf.errors.PermissionDeniedError(
                None, None, "/m/graph.pbtxt.tmp1; Read-only file system"
            ),
            r"Read-only file system: /m/graph\.pbtxt\.tmp1; files saved before are intact",
        ),
        (
            tf.errors.ResourceExhaustedError(
                None,
                None,
                "Graph execution error:\n\nDetected at node 'save/SaveV2' defined at (most recent "
                'call last):\n    File "/work/run_cpu.py", line 174, in <module>\n'
                "Node: 'save/SaveV2'\nruns/m/model.ckpt-50_temp/part-0; No space left on device\n",
            ),
            r"No space left on device: runs/m/model\.ckpt-50_temp/part-0 \(\d+ MB are free\);",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
            r"No space left on device: /tmp/x \(\d+ MB are free\)",
        ),
        (
            tf.errors.UnavailableError(
                None, None, "Error executing an HTTP request: gs://b/o: 503"
            ),
            r"Error executing an HTTP request: gs://b/o: 503$",
        ),
        (
            tf.errors.FailedPreconditionError(None, None, "/m/eval is not a directory"),
            r"Not a directory: /m/eval; files saved before are intact",
        ),
        (
            IndexError("/m/eval/events.out.tfevents.7.vm; File too large\n\tFailed to flush 2"),
            r"File too large: /m/eval/events\.out\.tfevents\.7\.vm; files saved before",
        ),
        (
            RuntimeError("/m/events.out.tfevents.7.vm; No space left on device\n\tFailed to flush"),
            r"No space left on device: /m/events\.out\.tfevents\.7\.vm \(\d+ MB are free\)",
        ),
    ],
    ids=[
        *("full", "read-only", "full, in a graph", "full, in Python", "bucket", "not a folder"),
        *("quota of summaries", "full, in summaries"),
    ],
)
def test_the_message_names_the_cause_and_the_file(error, expected):
    line = io_errors.describe(error)
    assert re.match(expected, line), line
    assert "\n" not in line


@pytest.mark.parametrize(
    "error", [ValueError("No space left on device"), tf.errors.InternalError(None, None, "a bug")]
)
def test_other_errors_are_not_described(error):
    assert io_errors.describe(error) is None


@pytest.fixture
def resize_disk(tmp_path):
    """Mounts a disk at `tmp_path/"disk"`, or changes its size: `resize_disk("2m")`."""
    place = tmp_path / "disk"
    place.mkdir()

    def resize(size):
        how = "remount," if os.path.ismount(place) else ""
        mount = ["mount", "-t", "tmpfs", "-o", f"{how}size={size}", "tmpfs", str(place)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("only root can mount a disk")

    yield resize
    # Lazily: the Estimator of this process keeps its event file open.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.slow(cost=0.1)
def test_training_resumes_after_a_full_disk(
    tiny_flags, exit_status, capsys, run_in, variables, resize_disk, tmp_path
):
    resize_disk("900k")  # room for three checkpoints of 0.24 MB
    arguments = ["--mode=train", "--train_steps=50", "--save_checkpoints_steps=10"]
    model_dir = tmp_path / "disk" / "model"
    assert exit_status(run_cpu, *tiny_flags, *arguments, f"--model_dir={model_dir}") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"No space left on device: {model_dir}/model.ckpt-" in line
    assert 0 < variables(model_dir)["global_step"] < 50
    resize_disk("20m")
    run_in(model_dir, *arguments)
    assert variables(model_dir)["global_step"] == 50


def test_a_full_disk_of_local_copies_names_the_copy(tmp_path, monkeypatch, session):
    def fail(path, offset, end, copy):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching, "_copy_range", fail)
    places = map(tf.constant, (b"a.tfrecord", np.int64(0), np.int64(7), np.int64(3)))
    copied = caching.local_copy(*places, str(tmp_path))
    with pytest.raises(tf.errors.OpError) as error:
        session.run(copied)
    line = io_errors.describe(error.value)
    assert line.startswith(f"No space left on device: {tmp_path}/00003-0-7.tfrecord (")
    assert "Traceback" not in line
