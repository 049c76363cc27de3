r"""Fine-tuning speed of BERT beside transformers and tf-models-official, interleaved.

    python -m benchmarks.bert_speed --peers_python=peers/bin/python [--sizes=minilm,tiny]
        [--lengths=64,128] [--peers=transformers,official] [--rounds=3] [--steps=10]
        [--precision=bfloat16]

All sides fine-tune a sentence classifier of the same size on random rows of the same length, with
dropout 0.1, AdamW and gradient clipping, with all cores; in float32, or with
--precision=bfloat16 in mixed precision: `torch.autocast`, Keras' mixed_bfloat16. Peers:
`transformers` in PyTorch with its defaults (transformers) and with PyTorch's fused AdamW
(transformers_fused); the encoder of tf-models-official with `Model.fit` (official), with
steps_per_execution=5 too (official_steps), and with jit_compile too (official_xla). --peers_python
is the Python of an environment that has them:

    python3.11 -m venv peers && peers/bin/pip install tensorflow-cpu==2.15.1 tf-keras==2.15.1 \
        tensorflow-text==2.15.0 tensorflow-hub gin-config scipy torch==2.13.0 transformers==4.46.3
    peers/bin/pip install --no-deps tf-models-official==2.15.0

Examples/s are from the end of the second step to the end of the last. Prints medians, and the
median ratio of a round. On a machine with other load, run it on one core (`taskset -c 0`):
PyTorch's threads wait for each other, and lose more than their share. With --clock=cpu the seconds
are those of the process on the core, without the time of other programs.
"""

from __future__ import annotations

import functools
import json

from absl import app, flags

from benchmarks.subprocesses import compare, run_python, train_rate
from models.text.bert import SIZES

CPU_CLOCK = """
import time
time.time = time.monotonic = time.process_time
"""

ROWS = """
import json, sys, time
import numpy as np
size, batch_size, length, steps, variant, precision = json.loads(sys.argv[1])
random = np.random.default_rng(0)
shape = 4 * batch_size, length
mask = np.arange(length) < random.integers(length // 2, length + 1, [shape[0], 1])
ids = np.where(mask, random.integers(1, 30522, shape), 0)
labels = random.integers(0, 2, shape[0])
"""

TRANSFORMERS = (
    ROWS
    + """
import torch
from transformers import BertConfig, BertForSequenceClassification
config = BertConfig(
    vocab_size=30522,
    num_hidden_layers=size["num_layers"],
    hidden_size=size["hidden_size"],
    num_attention_heads=size["num_heads"],
    intermediate_size=size["ffn_size"],
)
model = BertForSequenceClassification(config)
model.train()
groups = [
    {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.01},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
]
fused = True if variant == "fused" else None
optimizer = torch.optim.AdamW(groups, 3e-5, eps=1e-6, fused=fused)
arrays = [torch.from_numpy(array.astype(np.int64)) for array in (ids, mask, labels)]

def train(step):
    chosen = slice(step % 4 * batch_size, (step % 4 + 1) * batch_size)
    input_ids, attention_mask, labels = (array[chosen] for array in arrays)
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        loss = model(input_ids=input_ids, attention_mask=attention_mask, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

for step in range(2):
    train(step)
first = time.time()
for step in range(steps):
    train(step)
print(json.dumps(steps * batch_size / (time.time() - first)))
"""
)

OFFICIAL = (
    ROWS
    + """
import tensorflow as tf
from official.modeling.optimization.legacy_adamw import AdamWeightDecay
from official.nlp.modeling import networks
layers = tf.keras.layers
if precision == "bfloat16":
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
names = ("input_word_ids", "input_mask", "input_type_ids")
encoder = networks.BertEncoder(
    vocab_size=30522,
    num_layers=size["num_layers"],
    hidden_size=size["hidden_size"],
    num_attention_heads=size["num_heads"],
    inner_dim=size["ffn_size"],
    type_vocab_size=2,
    dict_outputs=True,
)
inputs = {name: layers.Input([length], dtype="int32", name=name) for name in names}
pooled = layers.Dropout(0.1)(encoder(inputs)["pooled_output"])
model = tf.keras.Model(inputs, layers.Dense(2, dtype="float32")(pooled))
optimizer = AdamWeightDecay(
    3e-5,
    weight_decay_rate=0.01,
    epsilon=1e-6,
    gradient_clip_norm=1.0,
    exclude_from_weight_decay=["layer_norm", "bias"],
)
model.compile(
    optimizer,
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    steps_per_execution=1 if variant == "" else 5,
    jit_compile=variant == "xla",
)
rows = dict(zip(names, (array.astype(np.int32) for array in (ids, mask, np.zeros_like(ids)))))
data = tf.data.Dataset.from_tensor_slices((rows, labels)).repeat().batch(batch_size).prefetch(2)
model.fit(data, steps_per_epoch=5, verbose=0)
first = time.time()
model.fit(data, steps_per_epoch=steps, verbose=0)
print(json.dumps(steps * batch_size / (time.time() - first)))
"""
)

PEERS = {  # name: (program, variant)
    "transformers": (TRANSFORMERS, ""),
    "transformers_fused": (TRANSFORMERS, "fused"),
    "official": (OFFICIAL, ""),
    "official_steps": (OFFICIAL, "steps"),
    "official_xla": (OFFICIAL, "xla"),
}

flags.DEFINE_list("sizes", ["minilm", "tiny"], "Sizes of models/text/bert.py.")
flags.DEFINE_list("lengths", ["64", "128"], "Tokens per row.")
flags.DEFINE_enum("precision", "float32", ["float32", "bfloat16"], "Precision of all sides.")
flags.DEFINE_integer("batch_size", 32, "Rows per step.")
flags.DEFINE_list("peers", list(PEERS), "Peers.")
flags.DEFINE_string("peers_python", None, "Python with the peers.", required=True)
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_integer("steps", 10, "Training steps, a multiple of 5.")
flags.DEFINE_enum("clock", "wall", ["wall", "cpu"], "Seconds of what; cpu is for one core.")


def main(_):
    """Runs the rounds and prints a line per size, length and side."""
    wanted = flags.FLAGS
    for size in wanted.sizes:
        for length in map(int, wanted.lengths):
            peers = {name: functools.partial(_peer, name) for name in wanted.peers}
            compare(
                f"{size}, {length} tokens",
                {"ours": _ours, **peers},
                wanted.rounds,
                *(size, length),
                describe=lambda rate: f"{rate:.1f} examples/s",
            )


def _ours(size, length):
    return train_rate(
        f"--model=bert_{size}_classifier",
        "--dataset=synthetic",
        "--synthetic_task=classification",
        f"--synthetic_text={length}x30522",
        f"--precision={flags.FLAGS.precision}",
        f"--train_batch_size={flags.FLAGS.batch_size}",
        f"--train_steps={flags.FLAGS.steps + 1}",
        "--params=optimizer=bert_adamw,weight_decay=0.01,epsilon=1e-6,clip_norm=1",
        before=_clock(),
    )


def _peer(name, size, length):
    code, variant = PEERS[name]
    given = flags.FLAGS
    settings = SIZES[size], given.batch_size, length, given.steps, variant, given.precision
    return run_python(_clock() + code, json.dumps(settings), python=given.peers_python)


def _clock():
    return CPU_CLOCK if flags.FLAGS.clock == "cpu" else ""


if __name__ == "__main__":
    app.run(main)
