r"""Time and memory of `prepare_data.py --dataset=image_folder` beside the tools of the field.

    python -m benchmarks.prepare_images [--tfds_python=PYTHON] [--tpu_checkout=DIR] [--images=4000]
        [--image_size=96] [--rounds=3] [--folder=FOLDER]

    git clone https://github.com/tensorflow/tpu

Writes --images JPEGs of 500 x 375 pixels (100 KB, as in ImageNet) in ten classes, and stores them
in child processes, interleaved: prepare_data.py with a process per core (ours) and with --workers=1
(ours_1); a builder of tensorflow-datasets (tfds, `peers.tfds_image_folder`), which does not open
the files; and `imagenet_to_gcs.py` of tensorflow/tpu, which decodes each (`peers.imagenet_to_gcs`).
With --image_size, ours and tfds decode, resize and store pixels instead. Prints for each side the
median seconds of the whole program, images/s, images/s of a second of CPU, the peak memory of its
largest process, and the ratio of the rates.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile

import numpy as np
from absl import app, flags
from PIL import Image

from benchmarks.subprocesses import ROOT, interleave, measure, print_rates

FLAGS = flags.FLAGS
flags.DEFINE_integer("images", 4000, "Number of images.")
flags.DEFINE_integer("image_size", None, "Height and width of stored pixels; default: files.")
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_string("tfds_python", "", "Python with tensorflow-datasets; empty: without it.")
flags.DEFINE_string("tpu_checkout", "", "Folder of tensorflow/tpu; empty: without it.")
flags.DEFINE_string("tpu_python", sys.executable, "Python with TensorFlow for it.")
flags.DEFINE_string("folder", None, "Folder for the temporary files.")

_CLASSES, _PICTURES = 10, 200
_SHARD_BYTES = 10 * 2**20


def write_images(folder: str, count: int) -> int:
    """Writes `folder/CLASS/*.JPEG`; returns the number of bytes.

    They are 200 pictures, whose files differ in a comment: drawing them takes most of the time.
    """
    random, pictures, size = np.random.default_rng(7), [], 0
    for _ in range(min(count, _PICTURES)):
        colors = Image.fromarray(random.integers(0, 256, [12, 16, 3], np.uint8))
        smooth = np.asarray(colors.resize((500, 375), Image.Resampling.BICUBIC))
        grain = random.normal(0, 9, [375, 500, 1])
        encoded = io.BytesIO()
        picture = Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8))
        picture.save(encoded, "JPEG", quality=93)
        pictures.append(encoded.getvalue())
    for number in range(count):
        data = pictures[number % len(pictures)]
        comment = b"\xff\xfe\0\x0a%08d" % number
        path = os.path.join(folder, f"n{number % _CLASSES:08d}", f"{number}.JPEG")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            size += file.write(data[:2] + comment + data[2:])
    return size


def main(_):
    """Prints a line per side."""
    with tempfile.TemporaryDirectory(dir=FLAGS.folder) as folder:
        source = os.path.join(folder, "source", "train")
        size = write_images(source, FLAGS.images)
        print(f"{FLAGS.images} images, {size / 1e6:,.0f} MB")
        sides = _commands(folder, source, max(1, size // _SHARD_BYTES))

        def run(command):
            with tempfile.TemporaryDirectory(dir=folder) as output:
                return measure(*(part.replace("OUTPUT", output) for part in command))

        runs = interleave(
            {name: lambda command=command: run(command) for name, command in sides.items()},
            FLAGS.rounds,
        )
    print_rates(runs, FLAGS.images, "images")


def _commands(folder, source, num_shards):
    """Returns `{side: command}`, with OUTPUT for the folder of its shards."""
    given = (
        "--dataset=image_folder",
        f"--source={source}",
        "--name=images",
        "--data_dir=OUTPUT/data",
    )
    ours = [sys.executable, "prepare_data.py", *given, "--validation_fraction=0"]
    pixels = [str(FLAGS.image_size)] * bool(FLAGS.image_size)
    ours += [f"--image_size={side}" for side in pixels]
    sides = {"ours": ours, "ours_1": [*ours, "--workers=1"]}
    peers = os.path.join(ROOT, "benchmarks", "peers")
    if FLAGS.tfds_python:
        program = os.path.join(peers, "tfds_image_folder.py")
        sides["tfds"] = [FLAGS.tfds_python, program, source, "OUTPUT", *pixels]
    if FLAGS.tpu_checkout and not pixels:
        program, checkout = os.path.join(peers, "imagenet_to_gcs.py"), FLAGS.tpu_checkout
        above = os.path.dirname(source)
        sides["imagenet_to_gcs"] = [
            *(FLAGS.tpu_python, program, checkout, above, "OUTPUT", str(num_shards))
        ]
    return sides


if __name__ == "__main__":
    app.run(main)
