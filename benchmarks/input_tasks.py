"""Speed of the input pipelines of texts, recordings and masks beside tf.data with Keras.

    python -m benchmarks.input_tasks [--tasks=tokens,audio,masks] [--rounds=5] [--seconds=5]

Random data of realistic sizes, read each epoch and in memory. The peer does the same work as the
tutorials and programs that people copy:

- tokens: 20,000 rows of 128 WordPiece ids; TFRecords of int64 features, parsed one by one, as
  `run_classifier.py` of google-research/bert;
- audio: 2,000 recordings of one second at 16 kHz; `audio_dataset_from_directory`;
- masks: 500 JPEGs of 256x256 with PNG masks, flipped; `tf.keras.layers.RandomFlip` of images that
  have the mask as a fourth channel.

Sides run interleaved in child processes; the table shows medians and the ratios of the rounds.
"""

from __future__ import annotations

import functools
import pathlib
import tempfile
import wave

import numpy as np
from absl import app, flags

from benchmarks.input_rate import COUNT, PULL, print_table
from benchmarks.subprocesses import prepare_data, run_python

FLAGS = flags.FLAGS
flags.DEFINE_list("tasks", ["tokens", "audio", "masks"], "Tasks to measure.")
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_float("seconds", 8, "Seconds of each measurement.")

LENGTH, NUM_ROWS = 128, 20_000
NUM_RECORDINGS, RATE = 2_000, 16_000
NUM_PICTURES, SIZE = 500, 256
BATCH_SIZE = 64

OURS = (
    COUNT
    + """
import tensorflow as tf
from engine.cli import runtime
from input_fns import dataset_info
from input_fns.audio.audio_pipeline import AudioPipeline
from input_fns.image import augment
from input_fns.image.segmentation_pipeline import SegmentationPipeline
from input_fns.text.token_pipeline import TokenPipeline
runtime.prepare()
task, data_dir, cache, batch_size = *sys.argv[2:5], int(sys.argv[5])
data = dataset_info.read(data_dir)
if task == "tokens":
    pipeline = TokenPipeline(data, cache)
elif task == "audio":
    pipeline = AudioPipeline(data, cache=cache)
else:
    pipeline = SegmentationPipeline(data, augmentation=augment.parse("flip"), cache=cache)
"""
    + PULL
)

# Each peer makes `dataset`, of one epoch without batches, from the folder `source`.
PEER = (
    COUNT
    + """
import glob, json
import tensorflow as tf
source, cache, batch_size = sys.argv[2], sys.argv[3], int(sys.argv[4])
AUTOTUNE = tf.data.AUTOTUNE
%s
if cache == "memory":
    dataset = dataset.cache()
batches = finish(dataset.shuffle(10_000).repeat().batch(batch_size, drop_remainder=True))
batches = iter(batches.prefetch(AUTOTUNE))
print(json.dumps(rate(lambda: next(batches), batch_size, seconds)))
"""
)
PEERS = {
    "tokens": """
rows = ("input_ids", "input_mask", "segment_ids")
features = {name: tf.io.FixedLenFeature([128], tf.int64) for name in rows}
features["label_ids"] = tf.io.FixedLenFeature([], tf.int64)
def parse(record):
    row = tf.io.parse_single_example(record, features)
    return {name: tf.cast(values, tf.int32) for name, values in row.items()}
dataset = tf.data.TFRecordDataset(source + "/rows.tfrecord").map(parse, AUTOTUNE)
finish = lambda batches: batches
""",
    "audio": """
dataset = tf.keras.utils.audio_dataset_from_directory(
    source, batch_size=None, output_sequence_length=16_000)
finish = lambda batches: batches.map(lambda x, y: (tf.squeeze(x, -1), y), AUTOTUNE)
""",
    "masks": """
def read(path):
    mask = tf.strings.regex_replace(tf.strings.regex_replace(path, "images", "masks"), "jpg", "png")
    image = tf.io.decode_jpeg(tf.io.read_file(path), 3)
    return tf.concat([image, tf.io.decode_png(tf.io.read_file(mask), 1)], -1)
dataset = tf.data.Dataset.list_files(source + "/images/train/*.jpg").map(read, AUTOTUNE)
flip = tf.keras.layers.RandomFlip("horizontal", dtype="uint8")
def apply(pixels):
    pixels = flip(pixels, training=True)
    return pixels[..., :3], pixels[..., 3]
finish = lambda batches: batches.map(apply, AUTOTUNE)
""",
}

ROWS = """
import sys
import numpy as np
import tensorflow as tf
random = np.random.default_rng(0)
count, length = map(int, sys.argv[2:])
def feature(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
with tf.io.TFRecordWriter(sys.argv[1] + "/rows.tfrecord") as writer:
    for _ in range(count):
        features = {name: feature(random.integers(0, 2000, length)) for name in
                    ("input_ids", "input_mask", "segment_ids")}
        features["label_ids"] = feature([random.integers(0, 2)])
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writer.write(example.SerializeToString())
print("null")
"""


def main(_):
    """Prints a table per task."""
    makers = {"tokens": _make_texts, "audio": _make_recordings, "masks": _make_pictures}
    for task in FLAGS.tasks:
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "source")
            source.mkdir()
            data_dir = f"{folder}/data"
            arguments = makers[task](source, np.random.default_rng(0))
            given = f"--source={source}", "--name=random", f"--data_dir={data_dir}"
            prepare_data(*given, *arguments)
            for cache in ("none", "memory"):
                given = cache, BATCH_SIZE
                ours = functools.partial(run_python, OURS, FLAGS.seconds, task, data_dir, *given)
                peer = functools.partial(
                    run_python, PEER % PEERS[task], FLAGS.seconds, source, *given
                )
                sides = {"ours": ours, "tf.data with Keras": peer}
                where = "in memory" if cache == "memory" else "read each epoch"
                print_table(f"{task}, {where}", "examples/s", sides, FLAGS.rounds)


def _make_texts(source, random):
    """Writes reviews of random words, and the peer's rows."""
    words = [f"{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{i}" for i in range(2000)]
    lines = ["text\tlabel"]
    for i in range(NUM_ROWS):
        chosen = random.choice(words, random.integers(20, 60))
        lines.append(f"{' '.join(chosen)}\t{i % 2}")
    (source / "train.tsv").write_text("\n".join(lines) + "\n")
    run_python(ROWS, source, NUM_ROWS, LENGTH)
    return (
        "--dataset=text_files",
        "--text_columns=text",
        "--label_columns=label",
        f"--max_length={LENGTH}",
        "--vocab_size=1024",
        "--validation_fraction=0",
    )


def _make_recordings(source, random):
    """Writes WAV files of noise in two folders."""
    for i in range(NUM_RECORDINGS):
        folder = source / "ab"[i % 2]
        folder.mkdir(exist_ok=True)
        with wave.open(str(folder / f"{i}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes(random.integers(-9999, 9999, RATE).astype("<i2").tobytes())
    return "--dataset=audio_folder", f"--sample_rate={RATE}", "--validation_fraction=0"


def _make_pictures(source, random):
    """Writes smooth random JPEGs, and masks of 8 classes."""
    from PIL import Image

    for name in ("images", "masks"):
        (source / name / "train").mkdir(parents=True)
    for i in range(NUM_PICTURES):
        pixels = Image.fromarray(random.integers(0, 256, [32, 32, 3], dtype=np.uint8))
        pixels.resize((SIZE, SIZE)).save(source / "images" / "train" / f"{i}.jpg", quality=90)
        classes = Image.fromarray(random.integers(0, 8, [16, 16], dtype=np.uint8))
        classes = classes.resize((SIZE, SIZE), Image.Resampling.NEAREST)
        classes.save(source / "masks" / "train" / f"{i}.png")
    return "--dataset=image_masks", f"--class_names={','.join('abcdefgh')}"


if __name__ == "__main__":
    app.run(main)
