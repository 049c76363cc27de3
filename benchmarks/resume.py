"""Time to resume in the middle of an epoch that is read from files, and the rate of reading.

    python -m benchmarks.resume [--gigabytes=10] [--record_bytes=110000] [--batch_size=64]

Writes a split of repeated records, shards of 100 MB, to a temporary folder. Reads it with
`--cache=none` in new processes: from the start, and from half of the first and of the third epoch,
with the shards removed from the page cache. "first" is the time from the input_fn to the first
batch, without the import of TensorFlow.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import sys
import tempfile

from absl import app, flags

from benchmarks.subprocesses import run_python

FLAGS = flags.FLAGS
flags.DEFINE_float("gigabytes", 10, "Size of the split.")
flags.DEFINE_integer("record_bytes", 110_000, "Size of a record; ImageNet has 110 kB.")
flags.DEFINE_integer("batch_size", 64, "Batch size.")
flags.DEFINE_float("seconds", 15, "Seconds of each measurement of the rate.")
flags.DEFINE_string("folder", None, "Folder for the temporary files.")

_SHARD_BYTES = 10**8
READ = """
import json, os, sys, time
import tensorflow as tf
from engine.cli import runtime
from input_fns import dataset_info
from input_fns.record_pipeline import RecordPipeline
data_dir, start_step, batch_size, seconds = sys.argv[1], *map(float, sys.argv[2:])
runtime.prepare()
data = dataset_info.read(data_dir)
for path in data.files("train"):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    started = time.monotonic()
    input_fn = RecordPipeline(data, cache="none").train_input_fn("train", 1, int(start_step))
    batches = input_fn({"batch_size": int(batch_size)})
    batch = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
    pull = session.make_callable(tf.group(*tf.nest.flatten(batch)))
    pull()
    first = time.monotonic() - started
    started, count, longest, last = time.monotonic(), 0, 0, time.monotonic()
    while last - started < seconds:
        pull()
        count, now = count + 1, time.monotonic()
        longest, last = max(longest, now - last), now
    rate = count * batch_size / (last - started)
print(json.dumps([first, rate, longest]))
"""


def main(_):
    """Prints a table."""
    with tempfile.TemporaryDirectory(dir=FLAGS.folder) as folder:
        free = shutil.disk_usage(folder).free
        if free < 1.2e9 * FLAGS.gigabytes:
            sys.exit(f"{folder} has {free / 1e9:.1f} GB free. Choose another --folder")
        num_examples = _write(folder)
        epoch = num_examples // FLAGS.batch_size
        print(f"{num_examples} records, {epoch} steps per epoch")
        print(f"{'start step':>12}{'first':>10}{'examples/s':>14}{'MB/s':>8}{'longest wait':>15}")
        for step in (0, epoch // 2, 2 * epoch + epoch // 2):
            first, rate, longest = run_python(READ, folder, step, FLAGS.batch_size, FLAGS.seconds)
            megabytes = rate * FLAGS.record_bytes / 1e6
            print(f"{step:12}{first:8.1f} s{rate:14,.0f}{megabytes:8,.0f}{longest:13.2f} s")


def _write(folder):
    """Writes the split; returns its number of records."""
    code = """
import sys
import numpy as np
from input_fns.convert import source, writer
folder, size, count = sys.argv[1], *map(int, sys.argv[2:])
images = np.random.default_rng(0).integers(0, 256, [count, size, 1, 1], np.uint8)
splits = {"train": source.RawArrays(images, np.zeros(count, int))}
writer.write(source.RawDataset("repeated", ("a",), splits), folder, num_shards=1)
print("null")
"""
    count = max(1, _SHARD_BYTES // FLAGS.record_bytes)
    run_python(code, folder, FLAGS.record_bytes, count)
    from input_fns import dataset_info  # TensorFlow is slow to import

    data = dataset_info.read(folder)
    (shard,) = data.splits["train"].shards
    shards = [shard]
    while sum(shard.num_bytes for shard in shards) < 1e9 * FLAGS.gigabytes:
        name = f"copy-{len(shards)}.tfrecord"
        shutil.copyfile(data.path(shard), os.path.join(folder, name))
        shards.append(dataclasses.replace(shard, name=name))
    num_examples = len(shards) * shard.num_examples
    sizes = {"shards": tuple(shards), "label_histogram": (num_examples,)}
    splits = {"train": dataclasses.replace(data.splits["train"], **sizes)}
    text = dataset_info.to_json(dataclasses.replace(data, splits=splits))
    pathlib.Path(folder, dataset_info.FILE_NAME).write_text(text)
    return num_examples


if __name__ == "__main__":
    app.run(main)
