"""Some benchmarks run on small data."""

import gzip
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import hlo_table, pjrt_step
from benchmarks.subprocesses import ROOT, run_python
from tests.formats import idx
from tpu.check import compiler
from tpu.connect import topology

pytestmark = pytest.mark.slow

# Runs in a child process, because absl flags can be defined only once per process.
EPOCHS = """
import json
from benchmarks import train_speed
recipes = {name: recipe[1:] for name, recipe in train_speed.RECIPES.items()}
sizes = {name: train_speed.whole_epochs(*recipe, 128) for name, recipe in recipes.items()}
print(json.dumps(sizes))
"""

SETTINGS = """
import json
from benchmarks import train_speed
print(json.dumps(train_speed.settings("cifar10_resnet")))
"""
PRECISIONS = """
import json
from absl import flags
from benchmarks import evaluation_speed, start_up, time_to_accuracy, train_speed
flags.FLAGS(["", "--precision=bfloat16", "--rounds=1", "--source=x"])
train_speed.prepare = lambda *arguments: ("data", "arrays", {}, 100)
train_speed.settings = lambda recipe: ({}, 100, "fashion_mnist")
given = []

def record(code, *arguments):
    if "keras_twin" in code:
        given.append(json.loads(arguments[-1]))
    return {}

for module in (evaluation_speed, start_up, time_to_accuracy, train_speed):
    module.run_python = module.run_cpu = record
evaluation_speed._bench("digits", "folder")
time_to_accuracy._race("mnist_mlp", "data", "arrays", "model", seed=1)
start_up.main([])
print(json.dumps(given))
"""

# The gradient of the loss is no product: the second product takes it as a parameter.
PART = """
import json, sys
from benchmarks import hlo_parts, hlo_table
import tensorflow as tf
path, part_path = sys.argv[1:]

@tf.function(jit_compile=True)
def step(x, w):
    with tf.GradientTape() as tape:
        tape.watch(w)
        loss = tf.reduce_sum(tf.exp(x @ w))
    return tape.gradient(loss, w)

with open(path, "wb") as file:
    ir = step.experimental_get_compiler_ir(tf.zeros([3, 5]), tf.zeros([5, 7]))
    file.write(ir(stage="hlo_serialized"))
hlo_parts.extract(path, lambda instruction: instruction.opcode == "dot", part_path)
part = hlo_table.read(part_path)
(main,) = [c for c in part.computations if c.id == part.entry_computation_id]
print(json.dumps({
    "opcodes": sorted(i.opcode for i in main.instructions),
    "parameters": [list(shape.dimensions) for shape in part.host_program_shape.parameters],
    "results": [list(shape.dimensions) for shape in part.host_program_shape.result.tuple_shapes],
}))
"""

MISS = """
import contextlib, io, json, sys
from absl import flags
from benchmarks import time_to_accuracy
flags.FLAGS(["", "--rounds=1", f"--source={sys.argv[1]}"])
time_to_accuracy.TARGETS = {"mnist_mlp": (1.1, 1)}
output = io.StringIO()
with contextlib.redirect_stdout(output):
    time_to_accuracy.main([])
print(json.dumps(output.getvalue()))
"""


def run(module, *arguments):
    """Returns the output of a benchmark."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("limit", "tried", "found"),
    [
        (45, [8, 16, 32, 64, 48, 40, 44, 46], 44),
        (3, [8, 4, 2, 3], 3),
        (0, [8, 4, 2, 1], 0),
    ],
)
def test_the_largest_batch_is_searched(limit, tried, found, monkeypatch, tmp_path):
    sizes = []

    def compile_hlo(program, target, effort, seconds):
        size = int(program)
        return compiler.Compiled(size <= limit, "", memory={"peak": size}, out_of_memory=True)

    def write(path, slice_name, size):
        sizes.append(size)
        pathlib.Path(path).write_text(str(size))

    monkeypatch.setattr(compiler, "compile_hlo", compile_hlo)
    monkeypatch.setattr(hlo_table, "read", lambda path: pathlib.Path(path).read_text())
    monkeypatch.setattr(hlo_table, "_remove_all_reduces", lambda program: program)
    best = hlo_table.largest_batch(write, 8, topology.find("v3-8"), str(tmp_path))
    assert (best, sizes) == ((found, found), tried)


def test_train_speed():
    table = run("train_speed", "--recipes=digits", "--peers=keras,estimator", "--rounds=1")
    sides = re.findall(r"^digits +(\w+) +[\d,]+ examples/s", table, re.MULTILINE)
    assert sides == ["ours", "keras", "estimator"]


def test_peers_train_on_whole_batches():
    epochs = run_python(EPOCHS)
    assert not [name for name, (used, _) in epochs.items() if used % 128]
    assert epochs["digits"] == [1408, 136]
    assert epochs["mnist_mlp"] == [59904, 4]
    assert epochs["cifar10_fast"] == [30 * 128, 1]


def test_features_that_peers_lack_are_disabled():
    params, batch_size, data = run_python(SETTINGS)
    assert (batch_size, data) == (128, "cifar10")
    assert [params[name] for name in ("ema_decay", "weight_decay", "label_smoothing")] == [0, 0, 0]
    assert (params["optimizer"], params["learning_rate"]) == ("momentum", 0.1)


def test_precision_applies_to_both_sides():
    assert run_python(PRECISIONS) == ["bfloat16"] * 4


def test_unknown_peer_is_a_flag_error():
    command = [sys.executable, "-m", "benchmarks.train_speed", "--peers=kears"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "--peers" in done.stderr


def test_cpu_profile_counts_flops():
    profile = run("cpu_profile", "--recipes=digits")
    found = re.search(r"^digits, float32: ([\d.]+) GFLOP per step of 128", profile, re.MULTILINE)
    # Two convolutions of 8x8 images, the first without a gradient of the images; two dense layers.
    first, others = 64 * 32 * 9, 64 * 32 * 288 + 16 * 32 * 128 + 128 * 10
    assert float(found[1]) == pytest.approx(2 * 128 * (2 * first + 3 * others) / 1e9, rel=0.02)
    assert re.search(r"^ +[\d.]+% .*Conv2D", profile, re.MULTILINE)


@pytest.fixture
def source(tmp_path):
    """A folder with IDX files of a few random images, named like Fashion-MNIST."""
    random = np.random.default_rng(0)
    for name, count in (("train", 130), ("t10k", 13)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        files = {"images-idx3": images, "labels-idx1": np.arange(count) % 10}
        for kind, array in files.items():
            path = tmp_path / f"{name}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(idx(array)))
    return tmp_path


def test_fashion_mnist(source):
    assert "median: ours 0." in run("fashion_mnist", f"--source={source}", "--seeds=1")


def test_time_to_accuracy_reports_a_missed_target(source):
    lines = run_python(MISS, source).splitlines()
    sides = ("ours", "keras", "keras_steps")
    assert lines == [
        f"mnist_mlp to 1.1: {side} not within 1 epochs in 1 of 1 rounds" for side in sides
    ]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
def test_a_description_draws_numbers_of_the_same_range(dtype):
    dtype = tf.as_dtype(dtype).as_numpy_dtype
    values = np.random.RandomState(1).normal(40, 7, [60, 50]).astype(dtype)
    described = pjrt_step.Described.of(values)
    drawn = described.draw(np.random.RandomState(2))
    assert (drawn.dtype, drawn.shape) == (values.dtype, values.shape)
    if values.dtype.kind in "ib":
        assert (drawn.min(), drawn.max()) == (values.min(), values.max())
    else:
        # Both means are of 3,000 values: 0.13 each.
        assert abs(drawn.astype(float).mean() - values.astype(float).mean()) < 1
        assert 6 < drawn.astype(float).std() < 8
    assert (drawn == described.draw(np.random.RandomState(2))).all()


@pytest.mark.slow(cost=25)
def test_a_step_runs_without_tensorflow(tmp_path):
    """Recorded with its numbers it has the losses of the CPU; described it draws its numbers."""
    pytest.importorskip("jax", reason="the extra 'pjrt' is not installed")
    model = ("--model=mlp", "--dataset=synthetic", "--image_size=5x5", "--synthetic_classes=3")
    few = ("--train_batch_size=4", "--train_steps=2", "--save_checkpoints_steps=2", "--seed=1")
    paths = [f"{tmp_path}/{command}.npz" for command in ("record", "describe")]
    for path, command in zip(paths, ("record", "describe")):
        run("pjrt_step", command, path, *model, *few, f"--model_dir={tmp_path}/{command}")
    _, recorded, described = run("pjrt_step", "replay", "cpu", *paths).splitlines()
    difference = re.search(
        r"in 2 steps, largest difference from the CPU, relative: (\S+);", recorded
    )
    assert float(difference[1]) < 1e-6
    assert re.search(r"loss \d\S* to \d\S* in 1 steps; \S+ ms per step", described)


def test_a_part_of_a_step_has_the_rest_as_parameters_and_results(tmp_path):
    found = run_python(PART, str(tmp_path / "step"), str(tmp_path / "part"))
    assert found == {
        "opcodes": ["dot", "dot", "parameter", "parameter", "parameter", "tuple"],
        "parameters": [[3, 5], [5, 7], [3, 7]],
        "results": [[3, 7], [5, 7]],
    }
