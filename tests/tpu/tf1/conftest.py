"""Fixtures for tests of old names."""

import runpy
import textwrap

import pytest

from tpu import tf1


@pytest.fixture
def run_old(tmp_path):
    """Runs source code as a TensorFlow 1.x program: `run_old(source)` returns its globals."""

    def run(source, name="program.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        with tf1.old_names():
            return runpy.run_path(str(path), run_name="__main__")

    return run


@pytest.fixture
def contrib():
    """tf.contrib."""
    with tf1.old_names():
        import tensorflow as old_tf

        yield old_tf.contrib
