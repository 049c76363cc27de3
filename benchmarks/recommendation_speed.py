r"""Training speed of NeuMF beside Keras and PyTorch with tables of several sizes, interleaved.

    python -m benchmarks.recommendation_speed --torch_python=torch/bin/python
        [--rows=1000,100000,10000000] [--peers=keras,keras_steps,torch] [--rounds=3] [--steps=100]

    python3.11 -m venv torch && torch/bin/pip install torch==2.13.0 numpy

All sides train the same network on the same random ids from memory: two tables of `rows` items and
two of 1000 users, 32 columns each, an MLP of 64, 32 and 16 units, 5 candidates per row, sparse
gradients and Adagrad, in float32, with all cores. Peers: Keras with `Model.fit` (keras), and with
steps_per_execution=20 (keras_steps); PyTorch with `nn.EmbeddingBag(sparse=True)` (torch).
Examples/s, of rows, are from the end of the first steps to the end of the last. Prints medians, and
the median ratio of a round. 10 million rows need 6 GiB of memory.
"""

from __future__ import annotations

import json
import tempfile

import numpy as np
from absl import app, flags

from benchmarks.subprocesses import compare, run_python, train_rate

USERS, CANDIDATES, BATCHES = 1000, 5, 64
WIDTH, UNITS, RATE = 32, (64, 32, 16), 0.01


def make_arrays(num_items, batch_size, seed=0):
    """Returns users, items and labels of `BATCHES` batches: `[n]`, `[n, 5]`, `[n, 5]`."""
    random = np.random.default_rng(seed)
    shape = BATCHES * batch_size, CANDIDATES
    labels = np.zeros(shape, np.float32)
    labels[:, 0] = 1
    users = random.integers(0, USERS, shape[0]).astype(np.int32)
    return users, random.integers(0, num_items, shape).astype(np.int32), labels


def make_pipeline(data_dir, params):
    """Returns our input pipeline of the arrays; `data_dir` is the batch size."""
    from input_fns.array_pipeline import ArrayPipeline

    users, items, labels = make_arrays(params["num_items"], int(data_dir))
    return ArrayPipeline(
        "random", {"train": ({"user": users, "items": items}, {"interaction": labels})}
    )


KERAS = """
import json, sys, time
import tensorflow as tf
from benchmarks import recommendation_speed as bench
num_items, batch_size, steps, per_execution = map(int, sys.argv[1:])
layers = tf.keras.layers
users, items, labels = bench.make_arrays(num_items, batch_size)
user, item = layers.Input([], dtype="int32"), layers.Input([bench.CANDIDATES], dtype="int32")
normal = tf.keras.initializers.RandomNormal(stddev=0.05)

def embed():
    of_user = layers.Embedding(bench.USERS, bench.WIDTH, normal)(user)[:, tf.newaxis]
    return of_user, layers.Embedding(num_items, bench.WIDTH, normal)(item)

of_user, of_items = embed()
product = of_user * of_items
of_user, of_items = embed()
x = tf.concat([tf.broadcast_to(of_user, tf.shape(of_items)), of_items], axis=-1)
for units in bench.UNITS:
    x = layers.Dense(units, "relu")(x)
logits = layers.Dense(1)(tf.concat([product, x], axis=-1))[..., 0]
model = tf.keras.Model([user, item], logits)
model.compile(
    tf.keras.optimizers.Adagrad(bench.RATE),
    tf.keras.losses.BinaryCrossentropy(from_logits=True),
    steps_per_execution=per_execution,
)
data = tf.data.Dataset.from_tensor_slices(((users, items), labels))
data = data.batch(batch_size, drop_remainder=True).cache().repeat().prefetch(2)
model.fit(data, steps_per_epoch=20, verbose=0)
first = time.time()
model.fit(data, steps_per_epoch=steps, verbose=0)
print(json.dumps(steps * batch_size / (time.time() - first)))
"""

TORCH = """
import json, sys, time
import numpy as np
import torch
from torch import nn
settings = json.loads(sys.argv[1])
num_items, batch_size, steps = settings["num_items"], settings["batch_size"], settings["steps"]
width, units = settings["width"], settings["units"]
with np.load(settings["path"]) as arrays:
    users, items = (torch.from_numpy(arrays[n].astype(np.int64)) for n in ("users", "items"))
    labels = torch.from_numpy(arrays["labels"])

def table(rows):
    bag = nn.EmbeddingBag(rows, width, mode="sum", sparse=True)
    nn.init.normal_(bag.weight, std=0.05)
    return bag

class NeuMF(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.ModuleList(table(settings["users"]) for _ in range(2))
        self.items = nn.ModuleList(table(num_items) for _ in range(2))
        sizes = [2 * width, *units]
        layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in zip(sizes, sizes[1:])]
        self.mlp = nn.Sequential(*(layer for pair in layers for layer in pair))
        self.logits = nn.Linear(width + units[-1], 1)

    def forward(self, user, item):
        def embed(i):
            of_items = self.items[i](item.reshape(-1, 1))  # bags of one id
            return self.users[i](user[:, None])[:, None], of_items.reshape(*item.shape, width)

        of_user, of_items = embed(0)
        product = of_user * of_items
        of_user, of_items = embed(1)
        x = self.mlp(torch.cat([of_user.expand_as(of_items), of_items], dim=-1))
        return self.logits(torch.cat([product, x], dim=-1))[..., 0]

model = NeuMF()
optimizer = torch.optim.Adagrad(model.parameters(), settings["rate"], initial_accumulator_value=0.1)
loss = nn.BCEWithLogitsLoss()

def train(step):
    start = step * batch_size % len(users)
    chosen = slice(start, start + batch_size)
    optimizer.zero_grad()
    loss(model(users[chosen], items[chosen]), labels[chosen]).backward()
    optimizer.step()

for step in range(5):
    train(step)
first = time.time()
for step in range(steps):
    train(step)
print(json.dumps(steps * batch_size / (time.time() - first)))
"""

flags.DEFINE_list("rows", ["1000", "100000", "10000000"], "Rows of the tables of items.")
flags.DEFINE_integer("batch_size", 1024, "Rows per step.")
flags.DEFINE_list("peers", ["keras", "keras_steps", "torch"], "Peers.")
flags.DEFINE_string("torch_python", None, "Python with PyTorch, for the peer torch.")
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_integer("steps", 100, "Training steps, a multiple of 20.")


def main(_):
    """Runs the rounds and prints a line per size and side."""
    wanted = flags.FLAGS
    for rows in map(int, wanted.rows):
        sides = {name: _SIDES[name] for name in ("ours", *wanted.peers)}
        compare(f"{rows:,} rows", sides, wanted.rounds, rows, describe=_describe)


def _describe(rate):
    milliseconds = 1000 * flags.FLAGS.batch_size / rate
    return f"{rate:,.0f} examples/s, {milliseconds:.1f} ms per step"


def _ours(rows):
    wanted = flags.FLAGS
    return train_rate(
        "--model=neumf",
        "--dataset=benchmarks.recommendation_speed:make_pipeline",
        f"--data_dir={wanted.batch_size}",
        f"--train_batch_size={wanted.batch_size}",
        f"--train_steps={wanted.steps + 1}",
        f"--save_checkpoints_steps={10 * wanted.steps}",
        f"--params=num_users={USERS},num_items={rows},gmf_size={WIDTH},mlp_size={WIDTH}",
        f"--params=hidden_units=[{','.join(map(str, UNITS))}]",
        f"--params=optimizer=adagrad,learning_rate={RATE},lazy_embeddings=true",
    )


def _keras(rows, per_execution=1):
    wanted = flags.FLAGS
    return run_python(KERAS, rows, wanted.batch_size, wanted.steps, per_execution)


def _torch(rows):
    wanted = flags.FLAGS
    users, items, labels = make_arrays(rows, wanted.batch_size)
    settings = {
        "num_items": rows,
        "batch_size": wanted.batch_size,
        "steps": wanted.steps,
        "users": USERS,
        "width": WIDTH,
        "units": UNITS,
        "rate": RATE,
    }
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file, users=users, items=items, labels=labels)
        file.flush()
        settings["path"] = file.name
        return run_python(TORCH, json.dumps(settings), python=wanted.torch_python)


_SIDES = {
    "ours": _ours,
    "keras": _keras,
    "keras_steps": lambda rows: _keras(rows, per_execution=20),
    "torch": _torch,
}


if __name__ == "__main__":
    app.run(main)
