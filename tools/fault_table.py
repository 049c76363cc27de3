"""Effect of faults on a plain Estimator and on run_cpu.py: the table in docs/faults.md.

    python -m tools.fault_table [--rows=NAME,...]

Both programs train the digits, as JPEGs, for 300 steps with a checkpoint every 100. Each row
applies a fault and resumes training to step 400. Takes ten minutes; rows that mount a disk need
root.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Callable

from engine.cli import startup

if __name__ == "__main__":
    startup.check(startup.check_environment)

import tensorflow as tf
from absl import app, flags
from PIL import Image

from input_fns.convert.options import Options
from input_fns.image.sources import digits

flags.DEFINE_list("rows", [], "Names of rows; default: all.")

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PLAIN = """
import sys
import tensorflow as tf
data_dir, model_dir, steps, rate = sys.argv[1:]
tf.compat.v1.disable_v2_behavior()

def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string)}
    features["label"] = tf.io.FixedLenFeature([], tf.int64)
    example = tf.io.parse_single_example(record, features)
    image = tf.reshape(tf.io.decode_jpeg(example["image"], channels=1), [64])
    return {"image": tf.cast(image, tf.float32) / 255}, example["label"]

def input_fn():
    files = tf.data.Dataset.list_files(data_dir + "/train-*")
    return tf.data.TFRecordDataset(files).map(parse).repeat().batch(128)

def model_fn(features, labels, mode):
    hidden = tf.compat.v1.layers.dense(features["image"], 512, tf.nn.relu)
    logits = tf.compat.v1.layers.dense(hidden, 10)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tf.compat.v1.train.AdamOptimizer(float(rate))
    step = tf.compat.v1.train.get_global_step()
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, step))

config = tf.estimator.RunConfig(model_dir, save_checkpoints_steps=100)
print("training", flush=True)
tf.estimator.Estimator(model_fn, config=config).train(input_fn, max_steps=int(steps))
"""


def plain(data_dir, model_dir, steps, rate="0.001"):
    """Returns the command of a program in the style of TensorFlow's guide."""
    return [sys.executable, "-c", _PLAIN, str(data_dir), str(model_dir), str(steps), rate]


def ours(data_dir, model_dir, steps, rate="0.001"):
    """Returns the command of run_cpu.py."""
    values = {"data_dir": data_dir, "model_dir": model_dir, "train_steps": steps}
    fixed = ["--mode=train", "--model=mlp", "--dataset=digits", "--save_checkpoints_steps=100"]
    given = [f"--{name}={value}" for name, value in values.items()]
    params = f"--params=pixel_scale=0.0039,learning_rate={rate}"
    return [sys.executable, "run_cpu.py", *fixed, *given, params]


@dataclasses.dataclass(frozen=True)
class Row:
    """A fault.

    Attributes:
      name: name of the fault.
      on_checkpoint: breaks a trained model_dir.
      on_data: breaks data_dir.
      while_training: function (process, data_dir), called during training.
      steps: last training step.
      rate: learning rate.
      options: mount options of a small disk for model_dir.
      again: mount options of that disk for a second run of the command.
    """

    name: str
    on_checkpoint: Callable[[pathlib.Path], None] | None = None
    on_data: Callable[[pathlib.Path], None] | None = None
    while_training: Callable[[subprocess.Popen, pathlib.Path], None] | None = None
    steps: int = 400
    rate: str = "0.001"
    options: str = ""
    again: str = ""


def _newest(model_dir, suffix):
    return next(model_dir.glob(f"model.ckpt-300.{suffix}"))


def _truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def _shard(data_dir):
    return next(data_dir.glob("train-*"))


def _break_an_image(data_dir):
    """Overwrites the first 20 bytes of an image, in a valid record."""
    records = list(tf.compat.v1.io.tf_record_iterator(str(_shard(data_dir))))
    example = tf.train.Example.FromString(records[5])
    image = example.features.feature["image"].bytes_list
    image.value[0] = b"not a JPEG" * 2 + image.value[0][20:]
    records[5] = example.SerializeToString()
    with tf.io.TFRecordWriter(str(_shard(data_dir))) as writer:
        for record in records:
            writer.write(record)


def _empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def _remove_newest(model_dir):
    for path in model_dir.glob("model.ckpt-300.*"):
        path.unlink()


def _interrupted(name, number):
    # More steps than it can run before the signal.
    return Row(name, while_training=lambda process, _: process.send_signal(number), steps=10**6)


ROWS = [
    Row("newest checkpoint: data truncated", lambda d: _truncate(_newest(d, "data*"))),
    Row("newest checkpoint: one byte flipped", lambda d: _flip(_newest(d, "data*"))),
    Row("newest checkpoint: index truncated", lambda d: _truncate(_newest(d, "index"))),
    Row("newest checkpoint: data missing", lambda d: _newest(d, "data*").unlink()),
    Row("newest checkpoint: index missing", lambda d: _newest(d, "index").unlink()),
    Row("newest checkpoint: all files missing", _remove_newest),
    Row("file `checkpoint` missing", lambda d: (d / "checkpoint").unlink()),
    Row("file `checkpoint` empty", lambda d: (d / "checkpoint").write_text("")),
    Row(
        "file `checkpoint` contains random bytes",
        lambda d: (d / "checkpoint").write_bytes(b"\xff\x00\xfe"),
    ),
    Row("one byte of a record flipped", on_data=lambda d: _flip(_shard(d))),
    Row("shard truncated", on_data=lambda d: _truncate(_shard(d))),
    Row("shard replaced by text", on_data=lambda d: _shard(d).write_text("text\n" * 20000)),
    Row("shard empty", on_data=lambda d: os.truncate(_shard(d), 0)),
    Row("shard missing", on_data=lambda d: _shard(d).unlink()),
    Row(
        "shard deleted during training", while_training=lambda _, d: _shard(d).unlink(), steps=12000
    ),
    Row("invalid JPEG in a valid record", on_data=_break_an_image),
    Row("`data_dir` empty", on_data=_empty),
    Row("`data_dir` missing", on_data=shutil.rmtree),
    Row("loss not finite", rate="1e37"),
    _interrupted("SIGKILL after 12 s", signal.SIGKILL),
    _interrupted("SIGTERM after 12 s", signal.SIGTERM),
    _interrupted("SIGINT after 12 s", signal.SIGINT),
    Row("disk full, then enlarged", options="size={used}k", again="size=64m"),
    Row("disk read-only", options="ro"),
]


def main(_):
    """Prints the table as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        _write_photos(base / "photos")
        prepare = ["prepare_data.py", "--dataset=image_folder", "--name=digits", "--channels=1"]
        prepare += [f"--source={base}/photos", f"--data_dir={base}/data"]
        subprocess.run([sys.executable, *prepare], cwd=_ROOT, check=True, capture_output=True)
        for name, command in (("plain", plain), ("ours", ours)):
            _outcome(command(base / "data", base / name, 300))
        print("| fault | plain tf.estimator | run_cpu.py |\n|---|---|---|")
        for row in ROWS:
            if not flags.FLAGS.rows or row.name in flags.FLAGS.rows:
                cells = [
                    _try(row, base, name, make) for name, make in (("plain", plain), ("ours", ours))
                ]
                print(f"| {row.name} | {' | '.join(cells)} |", flush=True)


def _write_photos(folder):
    """Writes the digits as JPEGs."""
    for split, arrays in digits.read(Options("digits")).splits.items():
        for i, (image, label) in enumerate(zip(arrays.images, arrays.labels)):
            path = folder / split / str(label) / f"{i:04d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[..., 0] * 15).save(path)


def _try(row, base, name, make):
    """Applies a fault to copies of the data and of model_dir, resumes; returns the table cell."""
    work = base / "work"
    started = time.time()
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base / "data", work / "data")
    shutil.copytree(base / name, work / "model")
    if row.options:
        _mount(row.options, work / "model", base / name)
    try:
        if row.on_checkpoint:
            row.on_checkpoint(work / "model")
        if row.on_data:
            row.on_data(work / "data")
        command = make(work / "data", work / "model", row.steps, row.rate)
        cell = _cell(work, started, *_outcome(command, work / "data", row.while_training))
        if row.again:
            _remount(row.again, work / "model")
            cell += "; then " + _cell(work, started, *_outcome(command, work / "data"))
        return cell
    finally:
        if row.options:
            subprocess.run(["umount", str(work / "model")], check=True)


def _cell(work, started, status, line):
    written = {
        int(path.stem.split("-")[1]): path.stat().st_mtime
        for path in (work / "model").glob("*.index")
    }
    line = line.replace(str(work) + "/", "").replace("|", "/")
    cell = f"status {status}, newest is of step {max(written, default=None)}"
    if written.get(0, 0) > started:
        cell += ", restarted from step 0"
    return cell + (f": {line}" if status and line else "")


def _mount(options, place, content):
    """Mounts a new disk over a folder and copies `content` to it."""
    used = sum(path.stat().st_size // 4096 + 1 for path in content.rglob("*")) * 4
    size = options if "size" in options else "size=64m"
    command = ["mount", "-t", "tmpfs", "-o", size.format(used=used + 512), "tmpfs", str(place)]
    subprocess.run(command, check=True)
    shutil.copytree(content, place, dirs_exist_ok=True)
    if options == "ro":
        _remount(options, place)


def _remount(options, place):
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def _outcome(command, data_dir=None, while_training=None):
    """Runs a command, calls `while_training` meanwhile; returns (exit status, error line)."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        if while_training:
            for line in process.stdout:
                if "training" in line:
                    time.sleep(12)
                    while_training(process, data_dir)
                    break
        process.communicate()
        errors.seek(0)
        text = errors.read()
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return status, _error_line(text)


def _error_line(text):
    """Returns the last error line; of a graph execution error, the line with its message."""
    text = re.sub(r"Graph execution error:\s+(?:Detected at (?s:.*?)\nNode: .*\n)?", "", text)
    lines = re.findall(r"^(?:[\w.]+(?:Error|Interrupt)|run_cpu).*$", text, re.MULTILINE)
    line = lines[-1] if lines else ""
    return re.sub(r"^(tensorflow|google)[\w.]*\.", "", line)[:220]


if __name__ == "__main__":
    app.run(main)
