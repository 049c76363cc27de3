r"""Speed of prepare_data.py --dataset=pretraining_text beside google-research/bert, interleaved.

    python -m benchmarks.pretraining_data --text=wiki.txt --vocabulary=vocab.txt --bert_checkout=DIR
        [--sides=ours,ours_1,google] [--rounds=3] [--dupe_factor=10] [--bert_python=PYTHON]

    git clone https://github.com/google-research/bert

All sides make masked pairs of the same text with the same vocabulary and options: prepare_data.py
with a process per core (ours) and with --workers=1 (ours_1), and the unchanged
`create_pretraining_data.py` on `tf.compat.v1` (google). --bert_python is a Python with TensorFlow,
by default this one. The seconds are those of the whole command, with the import of TensorFlow, and
the peak memory is that of its largest process. Without --vocabulary, only our sides run, and learn
one. google holds all tokens and rows in memory: 1 GB for 13 MB of text with --dupe_factor=5. Prints
medians, and the median ratio of a round.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile

from absl import app, flags

from benchmarks.subprocesses import compare, measure

_GOOGLE = """
import sys
import tensorflow.compat.v1 as tf
sys.modules["tensorflow"] = tf
sys.path.insert(0, sys.argv.pop(1))
import create_pretraining_data
tf.app.run(create_pretraining_data.main)
"""

flags.DEFINE_string("text", None, "Text, as pretraining_text reads it.", required=True)
flags.DEFINE_string("vocabulary", None, "vocab.txt of an uncased model; default: learn one.")
flags.DEFINE_string("bert_checkout", None, "Folder of google-research/bert, for the side google.")
flags.DEFINE_string("bert_python", sys.executable, "Python of the side google.")
flags.DEFINE_list("sides", ["ours", "ours_1", "google"], "Sides; ours always runs.")
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_integer("max_length", 128, "Tokens per row.")
flags.DEFINE_integer("dupe_factor", 10, "How often each document is used.")


def main(_):
    """Runs the rounds and prints a line per side."""
    wanted = flags.FLAGS
    if "google" in wanted.sides and not (wanted.bert_checkout and wanted.vocabulary):
        sys.exit("the side google needs --bert_checkout and --vocabulary")
    found = {name: [] for name in ("ours", *wanted.sides)}
    size = os.path.getsize(wanted.text) / 1e6

    def rate(name):
        with tempfile.TemporaryDirectory() as folder:
            command = _google(folder) if name == "google" else _ours(folder, name)
            found[name].append(measure(*command))
        return size / found[name][-1][0]

    sides = {name: lambda name=name: rate(name) for name in found}
    compare(f"{size:,.1f} MB", sides, wanted.rounds, describe=lambda rate: f"{rate:.2f} MB/s")
    for name, measured in found.items():
        seconds, cpu, peak = map(statistics.median, zip(*measured))
        print(f"{name}: {seconds:.1f} s, CPU time {cpu:.1f} s, largest process {peak:,.0f} MiB")


def _ours(folder, name):
    wanted = flags.FLAGS
    return [
        sys.executable,
        "prepare_data.py",
        "--dataset=pretraining_text",
        f"--source={os.path.abspath(wanted.text)}",
        f"--data_dir={folder}/data",
        f"--max_length={wanted.max_length}",
        f"--max_predictions_per_seq={_predictions()}",
        f"--dupe_factor={wanted.dupe_factor}",
        "--validation_fraction=0",
        *([f"--vocabulary={os.path.abspath(wanted.vocabulary)}"] * bool(wanted.vocabulary)),
        *(["--workers=1"] * (name == "ours_1")),
    ]


def _google(folder):
    wanted = flags.FLAGS
    return [
        wanted.bert_python,
        "-c",
        _GOOGLE,
        wanted.bert_checkout,
        f"--input_file={wanted.text}",
        f"--output_file={folder}/rows.tfrecord",
        f"--vocab_file={wanted.vocabulary}",
        f"--max_seq_length={wanted.max_length}",
        f"--max_predictions_per_seq={_predictions()}",
        f"--dupe_factor={wanted.dupe_factor}",
    ]


def _predictions():
    return round(0.15 * flags.FLAGS.max_length)


if __name__ == "__main__":
    app.run(main)
