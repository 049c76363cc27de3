"""One line about a disk or a bucket that fails."""

import errno
import re

import pytest
import tensorflow as tf

from training import storage


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
            r"No space left on device: /tmp/m/model\.ckpt-50_temp/\S+ \(\d+ MB are free\); what",
        ),
        (
            tf.errors.PermissionDeniedError(
                None, None, "/m/graph.pbtxt.tmp1; Read-only file system"
            ),
            r"Read-only file system: /m/graph\.pbtxt\.tmp1; what was saved before is whole",
        ),
        (
            tf.errors.ResourceExhaustedError(
                None,
                None,
                "Graph execution error:\n\nDetected at node 'save/SaveV2' defined at (most recent "
                'call last):\n    File "/work/run_cpu.py", line 174, in <module>\n'
                "Node: 'save/SaveV2'\nruns/m/model.ckpt-50_temp/part-0; No space left on device\n",
            ),
            r"No space left on device: runs/m/model\.ckpt-50_temp/part-0 \(\d+ MB are free\); what",
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
    ],
    ids=["full", "read-only", "full, in a graph", "full, in Python", "bucket"],
)
def test_the_file_and_what_is_kept_are_named(error, expected):
    line = storage.problem(error)
    assert re.match(expected, line), line
    assert "\n" not in line


@pytest.mark.parametrize(
    "error", [ValueError("No space left on device"), tf.errors.InternalError(None, None, "a bug")]
)
def test_other_errors_are_none_of_its_business(error):
    assert storage.problem(error) is None
