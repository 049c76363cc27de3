"""Speed of the Transformer: training beside Keras, decoding with and without key/value cache.

    python -m benchmarks.translation_speed [--rounds=3] [--steps=30]

Training: both sides train the network of configs/multi30k_tiny.cfg on rows of 64 random tokens,
interleaved; target tokens/s from the end of the first step to the end of the last. Decoding:
sentences of 16 tokens with random weights, so that every beam search runs to the maximum length.
"""

from __future__ import annotations

import statistics

from absl import app, flags

from benchmarks.subprocesses import format_ratio, interleave, run_python, train_rate

MAX_LENGTH, VOCAB_SIZE, BATCH_SIZE = 64, 4096, 64
SENTENCES = 20

flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_integer("steps", 30, "Training steps.")

KERAS = """
import json, sys, time
import tensorflow as tf
from benchmarks.peers import keras_transformer
from input_fns import kinds
from input_fns.core.synthetic import SyntheticPipeline
from input_fns.text.text_pipeline import TextPipeline
from models import registry
max_length, vocab_size, batch_size, steps = map(int, sys.argv[1:])
params = {**registry.find("transformer_tiny").default_params(), "vocab_size": vocab_size}
params["dropout"] = 0.2
shapes = kinds.SyntheticShapes("translation", text=(max_length, vocab_size))
pipeline = SyntheticPipeline(TextPipeline(kinds.synthetic(shapes)))
batches = pipeline.train_input_fn("train", 1)({"batch_size": batch_size})
batches = batches.map(lambda x, y: ({"source": x["source"], "target": x["target"]}, y))
twin = keras_transformer.build(params, max_length)
twin.compile(
    tf.keras.optimizers.Adam(0.001, beta_2=0.98),
    keras_transformer.loss(params["label_smoothing"]),
)
twin.fit(batches, steps_per_epoch=1, verbose=0)
first = time.time()
twin.fit(batches, steps_per_epoch=steps, verbose=0)
print(json.dumps(steps * batch_size / (time.time() - first)))
"""

DECODING = """
import json, sys, time
from unittest import mock
import numpy as np
import tensorflow as tf
from engine.cli import runtime
runtime.prepare()
from models.text import decoding, seq2seq, transformer
from models import registry

max_length, vocab_size, sentences, rounds = map(int, sys.argv[1:])
model = registry.find("transformer_tiny")
params = {**model.default_params(), "vocab_size": vocab_size}
rows = np.zeros([sentences, max_length], np.int32)
rows[:, :16] = np.random.default_rng(0).integers(3, vocab_size, [sentences, 16])
rows[:, 15] = 1


def without_cache(features, params):
    # Every step runs the whole decoder over all previous tokens.
    segments = seq2seq.segments(features["source"])
    memory = transformer._encode(features["source"], segments, params, False)
    beams = params["beam_size"]
    source = tf.repeat(features["source"], beams, axis=0)
    memory = tf.repeat(memory, beams, axis=0)

    def step(tokens, position, said):
        positions = tf.range(max_length)
        said = tf.where(tf.equal(positions, position - 1), tokens[..., tf.newaxis], said)
        target = tf.where(positions < position, said, 2)
        inputs = {"source": source, "target": tf.reshape(target, [-1, max_length])}
        with mock.patch.object(transformer, "_encode", lambda *_: memory):
            logits = transformer.inference(inputs, params, False)["logits"]
        return tf.reshape(logits[:, position], [-1, beams, vocab_size]), said

    said = tf.zeros([sentences, beams, max_length], tf.int32)
    return decoding.search(step, said, max_length, params)


def seconds(session, outputs):
    started = time.time()
    session.run(outputs)
    return time.time() - started


found = {}
for beams in (1, 5):
    params["beam_size"] = beams
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {"source": tf.constant(rows)}
        with tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE):
            cached = transformer.decode(features, params)
            slow = without_cache(features, params)
        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_array_equal(*session.run([cached["target"], slow["target"]]))
        pairs = [(seconds(session, cached), seconds(session, slow)) for _ in range(rounds)]
        found[beams] = [[sentences / time for time in pair] for pair in pairs]
print(json.dumps(found))
"""


def main(_):
    """Runs the rounds and prints the results."""
    rates = interleave({"ours": _ours, "keras": _keras}, flags.FLAGS.rounds)
    tokens = ([MAX_LENGTH * rate for rate in side] for side in rates.values())
    print(f"training, target tokens/s: {format_ratio(*tokens)}", flush=True)
    found = run_python(DECODING, MAX_LENGTH, VOCAB_SIZE, SENTENCES, flags.FLAGS.rounds)
    for beams, pairs in found.items():
        cached, slow = (statistics.median(side) for side in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        print(
            f"decoding with {beams} beam(s), sentences/s: with cache {cached:.1f}, without "
            f"{slow:.1f}, ratio {ratio:.1f}"
        )


def _ours():
    return train_rate(
        "--flagfile=configs/multi30k_tiny.cfg",
        "--dataset=synthetic",
        f"--synthetic_text={MAX_LENGTH}x{VOCAB_SIZE}",
        f"--train_batch_size={BATCH_SIZE}",
        f"--train_steps={flags.FLAGS.steps}",
        "--params=pre_norm=false",  # like the Keras side
    )


def _keras():
    return run_python(KERAS, MAX_LENGTH, VOCAB_SIZE, BATCH_SIZE, flags.FLAGS.steps)


if __name__ == "__main__":
    app.run(main)
