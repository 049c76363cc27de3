"""Examples that a host core delivers to training, from local disk and from gs://, for four recipes.

    python -m benchmarks.input_scale [--sources=jpeg,tokens,clicks,audio] [--need=jpeg:19000,...]

Random data in the sizes of ImageNet, of BERT's rows of 128 tokens, of Criteo and of LibriSpeech,
read from its shards as the recipe reads it, without a cache; gs:// is a server on this machine,
which needs the packages of requirements/dev.txt. The CPU time is that of the training's process
with all its threads, so the server's is not in it. Prints the medians of interleaved rounds.

`--need` gives the examples/s that a host's TPU cores take, from --mode=check. The last column is
the number of host cores for that.
"""

from __future__ import annotations

import io
import pathlib
import statistics
import tempfile
import wave

import numpy as np
from absl import app, flags, logging
from PIL import Image

from benchmarks.subprocesses import interleave, prepare_data, run_python

FLAGS = flags.FLAGS
flags.DEFINE_list("sources", ["jpeg", "tokens", "clicks", "audio"], "Sources to measure.")
flags.DEFINE_list("places", ["disk", "gs"], "Where the shards are.")
flags.DEFINE_list("need", [], "SOURCE:EXAMPLES/S of a host, to print its number of cores.")
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")

# Recipe, batch size, and batches of a measurement.
_RECIPES = {
    "jpeg": ("imagenet_resnet50", 64, 12),
    "tokens": ("bert_base_pretraining_128_v3-8", 256, 100),
    "clicks": ("criteo_dlrm_v3-8", 8192, 30),
    "audio": ("librispeech_conformer_v3-8", 32, 10),
}
_READ = """
import json, resource, sys, time
import tensorflow as tf
from benchmarks import runs
import tpu.connect.flags  # of recipes for a TPU
recipe, data_dir, model_dir, batch_size, count = *sys.argv[1:4], *map(int, sys.argv[4:6])
settings, _, input_fns = runs.build(
    f"--flagfile=configs/{recipe}.cfg", "--mode=train", f"--data_dir={data_dir}",
    f"--model_dir={model_dir}", "--cache=none", f"--train_batch_size={batch_size}",
    "--best_metric=", "--precision=float32", "--eval_split=train", *sys.argv[6:])
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    batches = input_fns.train(0)({"batch_size": batch_size})
    if isinstance(batches, tf.data.Dataset):
        batches = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
    pull = session.make_callable(tf.group(*tf.nest.flatten(batches)))
    for _ in range(5): pull()
    wall, cpu = time.monotonic(), time.process_time()
    for _ in range(count): pull()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
print(json.dumps([batch_size * count / cpu, batch_size * count / wall]))
"""
_COPY = """
import os, sys
import tensorflow as tf
for name in os.listdir(sys.argv[1]):
    tf.io.gfile.copy(f"{sys.argv[1]}/{name}", f"{sys.argv[2]}/{name}")
print("null")
"""


def main(_):
    """Prints a row per source and place."""
    logging.set_verbosity(logging.ERROR)  # the server logs each request
    need = dict(item.split(":") for item in FLAGS.need)
    print("source, place: examples/s per core, examples/s of this process; cores for --need")
    for source in FLAGS.sources:
        with tempfile.TemporaryDirectory() as folder:
            places = _places(source, pathlib.Path(folder))
            sides = {name: places[name] for name in FLAGS.places}
            for place, rates in interleave(sides, FLAGS.rounds).items():
                core, process = (statistics.median(column) for column in zip(*rates))
                cores = f"; {float(need[source]) / core:.1f} cores" if source in need else ""
                print(f"{source}, {place}: {core:,.0f}, {process:,.0f}{cores}", flush=True)


def _places(source, folder):
    """Prepares the data; returns `{place: function that reads it and returns the two rates}`."""
    _MAKERS[source](folder / "raw", folder / "data")
    recipe, *sizes = _RECIPES[source]

    def read(data_dir, environment=None):
        model_dir = tempfile.mkdtemp(dir=folder)
        return run_python(_READ, recipe, data_dir, model_dir, *sizes, environment=environment)

    def from_gs():
        from tools import gcs_server

        (folder / "gcs").mkdir(exist_ok=True)
        with gcs_server.serve(str(folder / "gcs"), "bucket") as storage:
            run_python(_COPY, folder / "data", "gs://bucket/data", environment=storage.environment)
            return read("gs://bucket/data", storage.environment)

    return {"disk": lambda: read(folder / "data"), "gs": from_gs}


def _make_jpegs(raw, data_dir):
    """Pictures of 500x375, the mean size of ImageNet, of about 90 kB."""
    random = np.random.default_rng(0)
    for i in range(2048):
        small = random.integers(0, 256, [94, 125, 3], dtype=np.uint8)
        encoded = io.BytesIO()
        Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC).save(
            encoded, "JPEG", quality=90
        )
        path = raw / "train" / str(i % 8) / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded.getvalue())
    prepare_data(
        "--dataset=image_folder", "--name=imagenet", f"--source={raw}", f"--data_dir={data_dir}"
    )


def _make_texts(raw, data_dir):
    random = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(20_000)])
    raw.mkdir()
    for split, size in (("train", 60_000), ("dev", 200)):
        lines = [
            " ".join(words[random.zipf(1.2, 25) % len(words)]) + "\n" * (1 + (i % 20 == 19))
            for i in range(size)
        ]
        (raw / f"{split}.txt").write_text("\n".join(lines))
    prepare_data(
        "--dataset=pretraining_text", f"--source={raw}", f"--data_dir={data_dir}", "--dupe_factor=2"
    )


def _make_clicks(raw, data_dir):
    random = np.random.default_rng(0)
    raw.mkdir()
    with open(raw / "train.txt", "w") as file:
        for _ in range(400_000):
            numbers = random.integers(0, 100, 13).tolist()
            values = [f"{value:08x}" for value in random.zipf(1.3, 26) % 2**24]
            file.write("\t".join(map(str, [random.integers(0, 2), *numbers, *values])) + "\n")
    prepare_data("--dataset=criteo", f"--source={raw}", f"--data_dir={data_dir}")


def _make_recordings(raw, data_dir):
    """Recordings of 12 seconds, the mean of LibriSpeech."""
    random = np.random.default_rng(0)
    rows = ["path\ttext\tsplit"]
    raw.mkdir()
    for i in range(640):
        samples = random.integers(-3000, 3000, 12 * 16_000).astype("<i2")
        with wave.open(str(raw / f"{i}.wav"), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(samples.tobytes())
        rows.append(f"{i}.wav\tthe recordings are as long as those of books\ttrain")
    table = raw / "table.tsv"
    table.write_text("\n".join(rows))
    prepare_data(
        "--dataset=speech_manifest",
        "--name=librispeech",
        f"--source={table}",
        f"--data_dir={data_dir}",
        "--audio_folder=.",
        "--split_column=split",
    )


_MAKERS = {
    "jpeg": _make_jpegs,
    "tokens": _make_texts,
    "clicks": _make_clicks,
    "audio": _make_recordings,
}


if __name__ == "__main__":
    app.run(main)
