"""The benchmarks run; what they measure is for whoever reads it."""

import gzip
import re
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.children import ROOT
from tests.formats import idx

pytestmark = pytest.mark.slow


def run(module, *arguments):
    """What a benchmark prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_beside_others():
    table = run("train_speed", "--recipes=digits", "--peers=keras,estimator", "--rounds=1")
    sides = re.findall(r"^digits +(\w+) +[\d,]+ examples/s", table, re.MULTILINE)
    assert sides == ["ours", "keras", "estimator"]


def test_an_unknown_peer_is_answered_before_anything_runs():
    command = [sys.executable, "-m", "benchmarks.train_speed", "--peers=kears"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "--peers" in done.stderr


def test_the_shares_of_all_operations_are_a_whole():
    profile = run("cpu_profile", "--recipes=digits")
    shares = [float(share) for share in re.findall(r"^ +([\d.]+)% ", profile, re.MULTILINE)]
    assert sum(shares) == pytest.approx(100, abs=1)


def test_accuracy_beside_keras(tmp_path):
    random = np.random.default_rng(0)
    for name, count in (("train", 130), ("t10k", 13)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        files = {"images-idx3": images, "labels-idx1": np.arange(count) % 10}
        for kind, array in files.items():
            path = tmp_path / f"{name}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(idx(array)))
    assert "median: ours 0." in run("fashion_mnist", f"--source={tmp_path}", "--seeds=1")
