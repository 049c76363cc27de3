r"""Training speed of RetinaNet with ResNet-50 beside torchvision and tf-models-official.

    python -m benchmarks.detection_speed --peers_python=peers/bin/python [--sizes=256,384]
        [--batch_size=4] [--peers=torchvision,official] [--rounds=3] [--steps=8]

All sides train RetinaNet with ResNet-50, FPN and batch norm from random weights on random images of
one size, 5 boxes each, with momentum, in float32, with all cores. Ours assigns boxes to anchors in
the step, and so does torchvision; the step of tf-models-official gets boxes that are assigned. Its
step is a `tf.function` (official), and with XLA (official_xla). Peers are in an environment:

    python3.11 -m venv peers && peers/bin/pip install tensorflow-cpu==2.15.1 tf-keras==2.15.1 \
        tensorflow-text==2.15.0 tensorflow-hub tensorflow-datasets==4.9.4 \
        tensorflow-metadata==1.14.0 tf-slim gin-config pyyaml immutabledict matplotlib \
        opencv-python-headless pycocotools tensorflow-model-optimization \
        torch==2.5.1 torchvision==0.20.1 transformers==4.46.3
    peers/bin/pip install --no-deps tf-models-official==2.15.0

Examples/s are from the end of the second step to the end of the last. Prints medians, and the
median ratio of a round.
"""

from __future__ import annotations

import functools
import json

from absl import app, flags

from benchmarks.subprocesses import compare, run_python, train_rate

NUM_CLASSES = 80

TORCHVISION = """
import json, sys, time
import torch
from torchvision.models.detection import retinanet_resnet50_fpn
batch_size, size, steps, num_classes, _ = json.loads(sys.argv[1])
model = retinanet_resnet50_fpn(
    weights=None,
    weights_backbone=None,
    num_classes=num_classes,
    trainable_backbone_layers=5,
    min_size=size,
    max_size=size,
)
model.train()
optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
torch.manual_seed(0)
images = list(torch.rand(batch_size, 3, size, size))
corners = torch.rand(batch_size, 5, 2) * size / 2
boxes = torch.cat([corners, corners + 8 + torch.rand(batch_size, 5, 2) * size / 3], -1)
labels = torch.randint(0, num_classes, (batch_size, 5))
targets = [{"boxes": b, "labels": l} for b, l in zip(boxes, labels)]

def train():
    optimizer.zero_grad()
    sum(model(images, targets).values()).backward()
    optimizer.step()

train()
train()
first = time.time()
for _ in range(steps):
    train()
print(json.dumps(steps * batch_size / (time.time() - first)))
"""

OFFICIAL = """
import json, sys, time
import tensorflow as tf
from benchmarks.peers import official_retinanet
batch_size, size, steps, num_classes, xla = json.loads(sys.argv[1])
step, specs = official_retinanet.build_step(batch_size, size, num_classes, tf.float32, xla)
batch = official_retinanet.random_batch(specs, num_classes)
step(*batch)
step(*batch).numpy()
first = time.time()
for _ in range(steps):
    loss = step(*batch)
loss.numpy()
print(json.dumps(steps * batch_size / (time.time() - first)))
"""

PEERS = {  # name: (program, XLA)
    "torchvision": (TORCHVISION, False),
    "official": (OFFICIAL, False),
    "official_xla": (OFFICIAL, True),
}

flags.DEFINE_list("sizes", ["256"], "Heights and widths of images, multiples of 128.")
flags.DEFINE_integer("batch_size", 4, "Images per step.")
flags.DEFINE_list("peers", ["torchvision", "official"], f"Peers: {', '.join(PEERS)}.")
flags.DEFINE_string("peers_python", None, "Python with the peers.", required=True)
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_integer("steps", 8, "Training steps.")


def main(_):
    """Runs the rounds and prints a line per size and side."""
    wanted = flags.FLAGS
    for size in map(int, wanted.sizes):
        peers = {name: functools.partial(_peer, name) for name in wanted.peers}
        compare(f"{size}x{size}", {"ours": _ours, **peers}, wanted.rounds, size)


def _ours(size):
    return train_rate(
        "--model=retinanet",
        "--dataset=synthetic",
        "--synthetic_task=detection",
        f"--synthetic_classes={NUM_CLASSES}",
        f"--image_size={size}x{size}",
        f"--train_batch_size={flags.FLAGS.batch_size}",
        f"--train_steps={flags.FLAGS.steps + 1}",
        "--params=backbone=resnet50,optimizer=momentum,momentum=0.9,learning_rate=0.001",
    )


def _peer(name, size):
    code, xla = PEERS[name]
    settings = flags.FLAGS.batch_size, size, flags.FLAGS.steps, NUM_CLASSES, xla
    return run_python(code, json.dumps(settings), python=flags.FLAGS.peers_python)


if __name__ == "__main__":
    app.run(main)
