"""Modeled TPU step time of ours and of other programs, by the TPU compiler with full effort.

    python -m benchmarks.tpu_peers [--steps=resnet,transformer] [--topologies=v2-8,v3-8]
        [--flax_python=flax/bin/python] [--official_python=official/bin/python]
        [--tpu_checkout=DIR] [--flax_checkout=DIR] [--parts]

All steps are in bfloat16:

    resnet       ResNet-50 v1 of `tf.keras.applications`, 128 images of 224x224 per core, momentum;
                 also in Flax with --flax_python (`flax_resnet`)
    resnet_v1.5  configs/imagenet_resnet50.cfg without label smoothing and `resnet_main.py` of
                 tensorflow/tpu in --tpu_checkout (`tensorflow_tpu_resnet`), 128 images per core
    transformer  configs/wmt14_base.cfg and Keras layers, 32 rows of 128 tokens per core, Adam; also
                 tf-models-official in --official_python (`official_transformer`) and the WMT
                 example of --flax_checkout with --flax_python (`flax_transformer`). Only ours, the
                 Keras layers and Flax know packed rows.
    retinanet    configs/coco_retinanet_r50_v3-8.cfg and the same network of tf-models-official in
                 --official_python (`detection_speed`), 8 images of 640x640 per core. Our step
                 assigns boxes to anchors, tf-models-official does it on the host and has no
                 gradient clipping.

--parts compiles the products (with the convolutions) and the optimizer of our step alone, too: what
no program for the same job does without.

The compiler's estimate for one core excludes all-reduces, infeed and the instructions of the last
column. Needs libtpu (docs/check.md), no TPU. Takes 15 minutes; RetinaNet 10 minutes and 8 GiB of
memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from absl import app, flags

from benchmarks import hlo_parts, hlo_table
from benchmarks.subprocesses import ROOT, run_python
from tpu.connect import topology

flags.DEFINE_list("steps", ["resnet", "transformer"], "Networks.")
flags.DEFINE_list("topologies", ["v2-8", "v3-8"], "Slices to compile for.")
flags.DEFINE_string("flax_python", "", "Python with Flax (flax_resnet.py, flax_transformer.py).")
flags.DEFINE_string("flax_checkout", "", "Checkout of google/flax.")
flags.DEFINE_string("official_python", "", "Python with tf-models-official (detection_speed.py).")
flags.DEFINE_string("tpu_checkout", "", "Checkout of tensorflow/tpu.")
flags.DEFINE_bool("parts", False, "Whether to compile parts of our step alone, too.")

PARTS = {
    "forward products": (hlo_parts.is_forward_product, 0, 1),
    "gradient products, half": (hlo_parts.is_gradient_product, 0, 2),
    "gradient products, other half": (hlo_parts.is_gradient_product, 1, 2),
    "optimizer": (hlo_parts.is_update, 0, 1),
}

BATCH_PER_CORE = {"resnet": 128, "resnet_v1.5": 128, "transformer": 32, "retinanet": 8}
RESNET = [
    "--flagfile=configs/imagenet_resnet50.cfg",
    "--image_size=224x224",
    "--synthetic_classes=1000",
    "--params=label_smoothing=0",
]
RECIPES = {
    "resnet": [*RESNET, "--params=stride_in_1x1=true,weight_decay=0"],
    "resnet_v1.5": RESNET,
    "transformer": ["--flagfile=configs/wmt14_base.cfg", "--synthetic_text=128x32768"],
    "retinanet": [
        "--flagfile=configs/coco_retinanet_r50_v3-8.cfg",
        "--synthetic_task=detection",
        "--synthetic_classes=80",
    ],
}

KERAS = """
import sys
import tensorflow as tf
from benchmarks import keras_transformer
from models import registry
path, network = sys.argv[1:]
tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
if network == "resnet":
    model = tf.keras.applications.ResNet50(weights=None, classifier_activation=None)
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    specs = tf.TensorSpec([128, 224, 224, 3], tf.uint8), tf.TensorSpec([128], tf.int32)

    def forward(images, labels):
        return model(tf.cast(images, tf.bfloat16), training=True), labels
else:
    params = {**registry.find("transformer_base").default_params(), "vocab_size": 32768}
    model = keras_transformer.build(params, 128)
    optimizer = tf.keras.optimizers.Adam(0.001, beta_2=0.98)
    loss = keras_transformer.loss(params["label_smoothing"])
    specs = [tf.TensorSpec([32, 128], tf.int32)] * 2

    def forward(source, target):
        return model({"source": source, "target": target}, training=True), target

optimizer.build(model.trainable_variables)

@tf.function(jit_compile=True)
def step(*batch):
    with tf.GradientTape() as tape:
        logits, labels = forward(*batch)
        value = loss(labels, tf.cast(logits, tf.float32))
    gradients = tape.gradient(value, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return value

with open(path, "wb") as file:
    file.write(step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized"))
print("null")
"""

OFFICIAL = """
import sys
import tensorflow as tf
path, network = sys.argv[1:]
tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
if network == "retinanet":
    from benchmarks import official_retinanet
    step, specs = official_retinanet.build_step(8, 640, 80, tf.bfloat16, jit_compile=True)
else:
    from benchmarks import official_transformer
    step, specs = official_transformer.build_step(32, 128, 32768)
with open(path, "wb") as file:
    file.write(step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized"))
print("null")
"""


def main(_):
    """Prints a row per network, generation and program."""
    print(hlo_table.HEADER)
    with tempfile.TemporaryDirectory() as folder:
        for network in flags.FLAGS.steps:
            peers = _write_peers(network, folder)
            for name in flags.FLAGS.topologies:
                found, ours = topology.find(name), os.path.join(folder, f"{network}_{name}")
                batch_size = f"--train_batch_size={BATCH_PER_CORE[network] * found.num_cores}"
                run_python(hlo_table.OURS, ours, name, "train", *RECIPES[network], batch_size)
                parts = _write_parts(ours) if flags.FLAGS.parts else {}
                hlo_table.print_rows(network, found, {"ours": ours, **peers, **parts})


def _write_parts(path):
    """Writes the HLO of parts of a step; returns `{name: path}`."""
    for part, (is_part, first, stride) in PARTS.items():
        hlo_parts.extract(path, is_part, f"{path}_{part}", first, stride)
    return {f"{part} of ours": f"{path}_{part}" for part in PARTS}


def _write_peers(network, folder):
    """Writes the HLO of the peers, which is the same for all slices; returns `{peer: path}`."""
    if network == "resnet_v1.5":
        path = os.path.join(folder, "resnet_tensorflow_tpu")
        module = "benchmarks.tensorflow_tpu_resnet"
        arguments = path, flags.FLAGS.topologies[0], flags.FLAGS.tpu_checkout
        subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, check=True)
        return {"tensorflow/tpu": path}
    peers, given = {}, flags.FLAGS
    if network != "retinanet":
        peers["Keras"] = os.path.join(folder, f"{network}_keras")
        run_python(KERAS, peers["Keras"], network)
    if network != "resnet" and given.official_python:
        peers["tf-models-official"] = os.path.join(folder, f"{network}_official")
        run_python(OFFICIAL, peers["tf-models-official"], network, python=given.official_python)
    scripts = {"resnet": ("flax_resnet.py",)}
    if given.flax_checkout:
        scripts["transformer"] = "flax_transformer.py", given.flax_checkout
    if network in scripts and given.flax_python:
        peers["Flax"] = os.path.join(folder, f"{network}_flax")
        script, *more = scripts[network]
        script = ROOT / "benchmarks" / script
        subprocess.run([given.flax_python, script, peers["Flax"], *more], check=True)
    return peers


if __name__ == "__main__":
    app.run(main)
