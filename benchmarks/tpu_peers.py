"""Modeled TPU step time of ours, `tf.keras` and Flax, by the TPU compiler with full effort.

    python -m benchmarks.tpu_peers [--steps=resnet,transformer] [--topologies=v2-8,v3-8]
        [--flax_python=flax/bin/python]

ResNet-50 of `tf.keras.applications` with 128 images of 224x224 per core and momentum, also in Flax
(`flax_resnet`) with --flax_python; the Transformer of configs/wmt14_base.cfg beside Keras layers
with 32 rows of 128 tokens per core and Adam; all in bfloat16. The compiler's estimate for one core
excludes all-reduces, infeed and the instructions of the last column. Needs libtpu (docs/check.md),
no TPU. Takes 15 minutes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile

from absl import app, flags

from benchmarks.subprocesses import ROOT, run_python

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tensorflow.compiler.xla.service import hlo_pb2

from tpu.check import compiler, cost
from tpu.connect import topology

flags.DEFINE_list("steps", ["resnet", "transformer"], "Networks.")
flags.DEFINE_list("topologies", ["v2-8", "v3-8"], "Slices to compile for.")
flags.DEFINE_string("flax_python", "", "Python with Flax (flax_resnet.py).")

RECIPES = {
    "resnet": [
        "--flagfile=configs/imagenet_resnet50.cfg",
        "--image_size=224x224",
        "--synthetic_classes=1000",
        "--params=stride_in_1x1=true,label_smoothing=0,weight_decay=0",
    ],
    "transformer": ["--flagfile=configs/wmt14_base.cfg", "--synthetic_text=128x32768"],
}

OURS = """
import sys
import tensorflow as tf
from engine.cli import resolve_flags, runtime
runtime.prepare()
import run_tpu
from tpu.connect import connection, topology
from tpu.check import graph_builder, hlo
from engine.cli.flags import FLAGS
path, slice_name, *arguments = sys.argv[1:]
arguments += ["--dataset=synthetic", "--eval_split=test", "--best_metric=", "--model_dir=none"]
FLAGS(["run_tpu", f"--tpu_topology={slice_name}", *arguments])
settings, state = resolve_flags.resolve(iterations_per_loop=10)
found = topology.find(slice_name)
resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
estimator = run_tpu.build_estimator(settings, state, connection.Connection(found, resolver))
input_fn = run_tpu.build_input_fns(settings).train(0)
step = graph_builder.build_step(estimator, input_fn, "train", found, True)
with open(path, "wb") as file:
    file.write(hlo.lower(*step))
print("null")
"""

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


def main(_):
    """Prints a row per network, generation and program."""
    print("| step, program | core | time | ours / this | memory | bytes accessed | not counted |")
    with tempfile.TemporaryDirectory() as folder:
        for network in flags.FLAGS.steps:
            peers = _write_peers(network, folder)
            for name in flags.FLAGS.topologies:
                ours = os.path.join(folder, f"{network}_{name}")
                run_python(OURS, ours, name, *RECIPES[network])
                _compare(network, topology.find(name), {"ours": ours, **peers})


def _write_peers(network, folder):
    """Writes the HLO of the peers; returns `{peer: path}`."""
    keras = os.path.join(folder, f"{network}_keras")
    run_python(KERAS, keras, network)
    if network != "resnet" or not flags.FLAGS.flax_python:
        return {"Keras": keras}
    flax = os.path.join(folder, f"{network}_flax")
    script = ROOT / "benchmarks" / "flax_resnet.py"
    subprocess.run([flags.FLAGS.flax_python, script, flax], check=True)
    return {"Keras": keras, "Flax": flax}


def _compare(network, found, programs):
    """Prints a row per program, `{name: path}`, ours first."""
    ours = None
    for name, path in programs.items():
        compiled = _compile(path, found)
        time = cost.estimate_step_time(compiled.optimized, found.generation, compiled.flops, str)
        ours = ours or time.seconds
        print(
            f"| {network}, {name} | {found.generation} | {time.seconds * 1e3:.1f} ms | "
            f"{ours / time.seconds:.2f} | {compiled.memory['peak'] / 2**30:.2f} GiB | "
            f"{compiled.bytes_accessed / 2**30:.1f} GiB | {time.not_counted} |",
            flush=True,
        )


def _compile(path, found):
    with open(path, "rb") as file:
        step = _remove_all_reduces(file.read())
    compiled = compiler.compile_hlo(step, compiler.get_target(found), compiler.FULL)
    if not compiled.fits:
        raise RuntimeError(compiled.error)
    return compiled


def _remove_all_reduces(hlo):
    """Returns the step with each all-reduce replaced by its operand; the peers have none."""
    module = hlo_pb2.HloModuleProto.FromString(hlo)
    for computation in module.computations:
        sums = [i for i in computation.instructions if i.opcode == "all-reduce"]
        replacements = {}
        for instruction in sums:
            (operand,) = instruction.operand_ids
            replacements[instruction.id] = replacements.get(operand, operand)
        for instruction in computation.instructions:
            instruction.operand_ids[:] = [replacements.get(i, i) for i in instruction.operand_ids]
        for instruction in sums:
            computation.instructions.remove(instruction)
    return module.SerializeToString()


if __name__ == "__main__":
    app.run(main)
