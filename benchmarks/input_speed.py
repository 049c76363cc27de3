"""Speed of the input pipelines beside Keras and PyTorch, and beside a training step.

    python -m benchmarks.input_speed                      # random images
    python -m benchmarks.input_speed --cifar10=DATA_DIR --jpegs=FOLDER    # real images
    python -m benchmarks.input_speed --torch_python=OTHER_VENV/bin/python

`--cifar10` is a data set of prepare_data.py, `--jpegs` a folder of class folders. Four tables:

- small: 32x32 images, flipped, shifted by 0.2 and rotated by 20 degrees;
- jpeg: JPEGs decoded each epoch, random crop to 224x224 and flip; the same with decoded images in
  memory; upper bound: libjpeg decoding whole files;
- recipes: the pipeline alone, and training with it beside training on synthetic images;
- memory: peak memory of the pipeline alone on splits of growing size, read each epoch.

Sides run interleaved in child processes; the tables show medians.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import numpy as np
from absl import app, flags

from benchmarks.input_rate import COUNT, PULL, print_table
from benchmarks.subprocesses import prepare_data, run_python, train_rate

FLAGS = flags.FLAGS
flags.DEFINE_string("cifar10", "", "data_dir of CIFAR-10; default: random images.")
flags.DEFINE_string("jpegs", "", "Folder of class folders of JPEGs; default: random JPEGs.")
flags.DEFINE_string("torch_python", sys.executable, "Python with torchvision.")
flags.DEFINE_list("tables", ["small", "jpeg", "recipes", "memory"], "Tables to measure.")
flags.DEFINE_list("recipes", ["digits", "mnist_cnn", "cifar10_cnn"], "Recipes to measure.")
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_float("seconds", 8, "Seconds of each measurement.")
flags.DEFINE_string("json", "", "File for the results.")

OURS = (
    COUNT
    + """
import json
import tensorflow as tf
from input_fns import dataset_info
from input_fns.image import augment
from input_fns.image.image_pipeline import ImagePipeline
from engine.cli import runtime
runtime.prepare()
data_dir, words, size, cache, batch_size = sys.argv[2], sys.argv[3], *map(json.loads, sys.argv[4:])
data = dataset_info.read(data_dir)
pipeline = ImagePipeline(data, size and tuple(size), augment.parse(words), cache=cache)
"""
    + PULL
)

ARRAYS = """
import json
import numpy as np
with np.load(sys.argv[2]) as arrays: x, y = arrays["images"], arrays["labels"]
"""

GENERATOR = (
    COUNT
    + ARRAYS
    + """
import tensorflow as tf
generator = tf.keras.preprocessing.image.ImageDataGenerator(
    rotation_range=20, width_shift_range=0.2, height_shift_range=0.2, horizontal_flip=True)
batches = tf.keras.utils.OrderedEnqueuer(generator.flow(x, y, batch_size=128), True)
batches.start(workers=int(sys.argv[3]), max_queue_size=20)
source = batches.get()
print(json.dumps(rate(lambda: next(source), 128, seconds)))
batches.stop()
"""
)

LAYERS = (
    COUNT
    + ARRAYS
    + """
import tensorflow as tf
layers = tf.keras.Sequential([
    tf.keras.layers.RandomFlip("horizontal"),
    tf.keras.layers.RandomTranslation(0.2, 0.2, fill_mode="nearest"),
    tf.keras.layers.RandomRotation(20 / 360, fill_mode="nearest"),
])
dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).repeat().batch(128)
dataset = dataset.map(lambda x, y: (layers(x, training=True), y), tf.data.AUTOTUNE)
source = iter(dataset.prefetch(tf.data.AUTOTUNE))
print(json.dumps(rate(lambda: next(source), 128, seconds)))
"""
)

TORCH = (
    COUNT
    + ARRAYS
    + """
import torch
from PIL import Image
from torchvision import transforms
change = transforms.Compose([
    transforms.RandomHorizontalFlip(),
    transforms.RandomAffine(20, (0.2, 0.2), interpolation=transforms.InterpolationMode.BILINEAR),
    transforms.PILToTensor(),
])
class Images(torch.utils.data.Dataset):
    def __len__(self): return len(x)
    def __getitem__(self, i): return change(Image.fromarray(x[i])), int(y[i])
def forever():
    while True: yield from torch.utils.data.DataLoader(
        Images(), 128, shuffle=True, drop_last=True, num_workers=int(sys.argv[3]))
source = forever()
print(json.dumps(rate(lambda: next(source), 128, seconds)))
"""
)

JPEG_LAYERS = (
    COUNT
    + """
import json
import tensorflow as tf
layers = tf.keras.Sequential([
    tf.keras.layers.RandomCrop(224, 224), tf.keras.layers.RandomFlip("horizontal")])
dataset = tf.keras.utils.image_dataset_from_directory(
    sys.argv[2], image_size=(256, 256), batch_size=64).repeat()
dataset = dataset.map(lambda x, y: (layers(x, training=True), y), tf.data.AUTOTUNE)
source = iter(dataset.prefetch(tf.data.AUTOTUNE))
print(json.dumps(rate(lambda: next(source), 64, seconds)))
"""
)

JPEG_TORCH = (
    COUNT
    + """
import json
import torch
from torchvision import datasets, transforms
change = transforms.Compose([
    transforms.Resize(256), transforms.RandomCrop(224), transforms.RandomHorizontalFlip(),
    transforms.PILToTensor()])
images = datasets.ImageFolder(sys.argv[2], change)
def forever():
    while True: yield from torch.utils.data.DataLoader(
        images, 64, shuffle=True, drop_last=True, num_workers=int(sys.argv[3]))
source = forever()
print(json.dumps(rate(lambda: next(source), 64, seconds)))
"""
)

JPEG_LIMIT = (
    COUNT
    + """
import glob, json
import tensorflow as tf
files = [open(path, "rb").read() for path in glob.glob(sys.argv[2] + "/*/*")]
dataset = tf.data.Dataset.from_tensor_slices(files).repeat()
decode = lambda data: tf.size(tf.io.decode_jpeg(data, 3))
dataset = dataset.map(decode, tf.data.AUTOTUNE).batch(64).prefetch(tf.data.AUTOTUNE)
source = iter(dataset)
print(json.dumps(rate(lambda: next(source), 64, seconds)))
"""
)


def main(_):
    """Prints the tables of --tables."""
    figures = {}
    tables = {"small": _small, "jpeg": _jpeg, "recipes": _recipes, "memory": _memory}
    with tempfile.TemporaryDirectory() as folder:
        for name in FLAGS.tables:
            figures[name] = tables[name](folder)
    if FLAGS.json:
        pathlib.Path(FLAGS.json).write_text(json.dumps(figures, indent=1) + "\n")


def _small(folder):
    data_dir = FLAGS.cifar10
    arrays = f"{folder}/arrays.npz"
    if data_dir:
        _dump(data_dir, arrays)
    else:
        data_dir = _random(folder, "cifar10", (32, 32, 3), 50_000, arrays)
    words = "flip shift:0.2 rotate:20"
    cores = os.cpu_count()
    sides = {
        "ours": lambda: _ours(data_dir, words, None, "auto", 128),
        "ImageDataGenerator": lambda: run_python(GENERATOR, FLAGS.seconds, arrays, cores),
        "tf.data + Keras layers": lambda: run_python(LAYERS, FLAGS.seconds, arrays),
    }
    if _has_torch():
        sides["PyTorch DataLoader"] = lambda: _torch(TORCH, arrays)
    return print_table("32x32, flip + shift 0.2 + rotation 20", "images/s", sides, FLAGS.rounds)


def _jpeg(folder):
    source = FLAGS.jpegs or _make_jpegs(f"{folder}/jpegs")
    data_dir = f"{folder}/jpeg_data"
    given = f"--source={source}", f"--data_dir={data_dir}", "--validation_fraction=0"
    prepare_data("--dataset=image_folder", "--name=jpegs", *given)
    words, size = "random_crop flip", [224, 224]
    sides = {
        "ours, decoded each epoch": lambda: _ours(data_dir, words, size, "none", 64),
        "ours, in memory": lambda: _ours(data_dir, words, size, "memory", 64),
        "libjpeg alone": lambda: run_python(JPEG_LIMIT, FLAGS.seconds, source),
        "image_dataset_from_directory": lambda: run_python(JPEG_LAYERS, FLAGS.seconds, source),
    }
    if _has_torch():
        sides["PyTorch DataLoader"] = lambda: _torch(JPEG_TORCH, source)
    return print_table("JPEG to 224x224, random crop + flip", "images/s", sides, FLAGS.rounds)


def _recipes(folder):
    table = {}
    shapes = {"digits": (8, 8, 1), "mnist_cnn": (28, 28, 1), "cifar10_cnn": (32, 32, 3)}
    print(f"{'recipe':14}{'alone /s':>12}{'training /s':>13}{'synthetic /s':>14}  waiting")
    for recipe in FLAGS.recipes:
        dataset, augment, batch_size = run_python(RECIPE, recipe)
        data_dir = FLAGS.cifar10 if recipe == "cifar10_cnn" else ""
        data_dir = data_dir or _random(folder, dataset, shapes[recipe], 50_000)
        train = {name: [] for name in ("real", "synthetic")}
        alone = []
        for _ in range(FLAGS.rounds):
            alone.append(_ours(data_dir, augment, None, "auto", batch_size))
            for name, source in (("real", dataset), ("synthetic", "synthetic")):
                train[name].append(_train(recipe, source, data_dir))
        ratio = statistics.median(a / b for a, b in zip(train["real"], train["synthetic"]))
        row = {name: statistics.median(rates) for name, rates in train.items()}
        table[recipe] = row = {"alone": statistics.median(alone), **row, "ratio": ratio}
        print(
            f"{recipe:14}{row['alone']:12,.0f}{row['real']:13,.0f}{row['synthetic']:14,.0f}  "
            f"{max(0, 1 - ratio):.1%} of a step",
            flush=True,
        )
    return table


RECIPE = """
import json, sys
from benchmarks import runs
_, flags = runs.recipe(sys.argv[1])
print(json.dumps([flags.dataset, flags.augment, flags.train_batch_size]))
"""
# Steps of about twenty seconds.
_STEPS = {"digits": 3000, "mnist_cnn": 600, "cifar10_cnn": 300}


def _train(recipe, dataset, data_dir):
    return train_rate(
        f"--flagfile=configs/{recipe}.cfg",
        f"--dataset={dataset}",
        f"--data_dir={data_dir}",
        f"--train_steps={_STEPS[recipe]}",
        "--save_checkpoints_steps=1000000",
        "--early_stop_evals=0",
    )


PEAK = """
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _memory(folder):
    table = {}
    print("pixels of the split, GB: peak memory of the process, MiB")
    for size in (0.25, 0.5, 1, 2, 4):
        name = f"gigabytes-{size}"
        data_dir = _random(folder, name, (224, 224, 3), round(size * 1e9 / (224 * 224 * 3)))
        arguments = json.dumps(None), json.dumps("none"), json.dumps(128)
        peak = run_python(OURS + PEAK, FLAGS.seconds, data_dir, "flip", *arguments)
        shutil.rmtree(data_dir)
        table[size] = peak
        print(f"  {size:6.2f}{peak:10,.0f}", flush=True)
    return table


def _ours(data_dir, words, size, cache, batch_size):
    arguments = json.dumps(size), json.dumps(cache), json.dumps(batch_size)
    return run_python(OURS, FLAGS.seconds, data_dir, words, *arguments)


def _torch(code, source):
    return run_python(code, FLAGS.seconds, source, os.cpu_count(), python=FLAGS.torch_python)


def _has_torch():
    if FLAGS.torch_python == sys.executable:
        return importlib.util.find_spec("torchvision") is not None
    return True


def _random(folder, name, shape, size, arrays=""):
    """Writes random images as shards and, optionally, arrays; returns the folder of the shards."""
    code = f"""
import numpy as np
from input_fns.convert import source, writer
random = np.random.default_rng(0)
images = np.frombuffer(random.bytes({size} * int(np.prod({shape}))), np.uint8)
images = images.reshape({size}, *{shape})
labels = random.integers(0, 10, {size})
splits = {{"train": source.RawArrays(images, labels)}}
raw = source.RawDataset({name!r}, tuple("0123456789"), splits)
writer.write(raw, {folder + "/" + name!r})
if {arrays!r}: np.savez({arrays!r}, images=images, labels=labels)
print("null")
"""
    run_python(code)
    return f"{folder}/{name}"


def _dump(data_dir, arrays):
    """Writes the training images of a data set as arrays."""
    code = """
import sys
import numpy as np
import tensorflow as tf
from input_fns import dataset_info
from input_fns.image.image_pipeline import ImagePipeline
data = dataset_info.read(sys.argv[1])
size = data.split("train").num_examples
batches = ImagePipeline(data).eval_input_fn("train")({"batch_size": size})
features, labels = next(iter(batches))
np.savez(sys.argv[2], images=features["image"], labels=labels)
print("null")
"""
    run_python(code, data_dir, arrays)


def _make_jpegs(folder, count=1024):
    """Writes random JPEGs of 500x375 (the mean size of ImageNet) and about 50 kB."""
    from PIL import Image

    random = np.random.default_rng(0)
    for name in ("a", "b"):
        os.makedirs(f"{folder}/{name}")
    for i in range(count):
        small = random.integers(0, 256, [47, 63, 3], dtype=np.uint8)
        image = Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC)
        encoded = io.BytesIO()
        image.save(encoded, "JPEG", quality=90)
        pathlib.Path(folder, "ab"[i % 2], f"{i}.jpg").write_bytes(encoded.getvalue())
    return folder


if __name__ == "__main__":
    app.run(main)
