"""A closed pipe or a full disk behind standard output does not end a training."""

import os
import subprocess
import sys

import pytest

from common import standard_streams
from common.errors import RunError


@pytest.fixture
def closed_pipe():
    """A stream into a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        yield standard_streams.SafeStream(stream)


def test_a_closed_pipe_is_reported_once(closed_pipe, monkeypatch):
    closed = []
    monkeypatch.setattr(standard_streams, "on_closed_pipe", lambda: closed.append(True))
    monkeypatch.setattr(sys, "stdout", closed_pipe)
    print("lost", flush=True)
    print("lost, too", flush=True)
    assert closed == [True]
    standard_streams.finish()


def test_without_a_training_a_closed_pipe_exits_like_sigpipe(closed_pipe, monkeypatch):
    monkeypatch.setattr(sys, "stdout", closed_pipe)
    with pytest.raises(SystemExit) as ended:
        print("lost", flush=True)
    assert ended.value.code == 141


def test_a_full_disk_is_reported_at_the_end(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", standard_streams.SafeStream(full))
        print("lost", flush=True)
        print("lost, too", flush=True)
        with pytest.raises(RunError, match="No space left on device"):
            standard_streams.finish()


def test_any_text_can_be_printed_in_any_locale():
    code = (
        "from common import standard_streams; standard_streams.protect(); "
        "print('na\\u00efve \\udcff')"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.stdout == b"na\\xefve \\udcff\n"
